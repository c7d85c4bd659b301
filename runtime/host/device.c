/* The host as a device: memory of the process, kernels in C. What is queued happens at once. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "host/host.h"

static void *allocate(size_t count, size_t size) {
  void *block = calloc(count + 1, size);
  if (block == NULL) pd_fail(PD_EXIT_MEMORY, "out of memory");
  return block;
}

/* ---- start and end ---- */

static void map_memory(pd_device *device) {
  device->bytes = pd_layout_total(device->layout);
  if (device->bytes == 0) return;
  void *memory = mmap(NULL, (size_t)device->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    pd_fail(PD_EXIT_MEMORY, "cannot allocate the %lld bytes of the plan: %s", (long long)device->bytes,
            strerror(errno));
  }
  madvise(memory, (size_t)device->bytes, MADV_HUGEPAGE); /* fewer page faults where the system has them */
  device->memory = memory;
  const char *fill = getenv("PDC_MEMORY"); /* for tests (device.h) */
  if (fill != NULL && strcmp(fill, "nan") == 0) memset(memory, 0xff, (size_t)device->bytes);
}

static void check_tags(const pd_world *world, const pd_pipeline *pipeline) {
  int *largest_tag, flag;
  MPI_Comm_get_attr(world->pipe, MPI_TAG_UB, (void *)&largest_tag, &flag);
  if (flag && *largest_tag / (2 * PD_MAX_WIRES) < pipeline->chunk_count + 2) {
    pd_fail(PD_EXIT_PLAN, "%d chunks are more than this MPI has message tags for", pipeline->chunk_count);
  }
}

/* Most messages of copies of chunks that are under way at once: a block of every chunk, and its tied slots. */
static int sums_of_copies(const pd_layout *layout) {
  int count = layout->chunk_count;
  for (int t = 0; t < layout->tied_count; t++) count += layout->tied[t].slot_count;
  return count;
}

static void open_reductions(pd_device *device, const pd_pipeline *pipeline) {
  const pd_layout *layout = device->layout;
  for (int i = 0; i < 2; i++) {
    device->reductions[i] = (pd_reduction){.comm = device->world->replicas,
                                           .real_bytes = device->program->real_bytes,
                                           .scratch = device->memory + layout->reductions[i],
                                           .requests = allocate(2 * (size_t)device->world->dp, sizeof(MPI_Request))};
  }
  int most = 0; /* slots of one tied parameter */
  for (int t = 0; t < layout->tied_count; t++) {
    if (layout->tied[t].slot_count > most) most = layout->tied[t].slot_count;
  }
  device->tied_room = most * device->world->pp;
  if (pipeline->copies > 1) device->tied_room += sums_of_copies(layout);
  device->tied_requests = allocate((size_t)device->tied_room, sizeof(MPI_Request));
  device->tied_tag = pipeline->chunk_count * PD_MAX_WIRES * 2; /* those below belong to mails */
  pd_reduce_over_tensor(device->world->tensor, device->world->tp, device->memory + layout->tensor,
                        layout->tensor_elements);
}

pd_device *pd_device_open(const pd_program *program, const pd_pipeline *pipeline, const pd_layout *layout,
                          const pd_world *world, const char *kernels) {
  pd_device *device = allocate(0, sizeof *device);
  device->program = program;
  device->layout = layout;
  device->world = world;
  bool single = program->real_bytes == 4;
  device->f32 = single ? pd_kernels_select_f32(kernels) : NULL;
  device->f64 = single ? NULL : pd_kernels_select_f64(kernels);
  if (device->f32 == NULL && device->f64 == NULL) pd_fail(PD_EXIT_USAGE, "there is no kernel set `%s`", kernels);
  if (program->use_kernels != NULL) program->use_kernels(kernels);
  check_tags(world, pipeline);
  map_memory(device);
  open_reductions(device, pipeline);
  device->result_count = 1 + program->metric_count;
  device->results = allocate((size_t)(program->microbatches * device->result_count), sizeof(double));
  device->ignored = allocate((size_t)device->result_count, sizeof(double));
  device->sets = pd_list_updates(pipeline) > 1 ? (int)pd_list_updates(pipeline) : 1;
  device->tensors = pd_device_tensors(program);
  const size_t squares = (size_t)device->sets * (size_t)device->tensors;
  device->whole = allocate(squares, sizeof(double));
  device->split = allocate(squares, sizeof(double));
  device->norms = allocate((size_t)device->sets, sizeof(double));
  pd_host_open_update(device);
  return device;
}

void pd_device_close(pd_device *device) {
  pd_reduce_over_tensor(MPI_COMM_NULL, 0, NULL, 0);
  for (int i = 0; i < 2; i++) free(device->reductions[i].requests);
  free(device->tied_requests);
  free(device->results);
  free(device->ignored);
  free(device->whole);
  free(device->split);
  free(device->norms);
  pd_host_close_update(device);
  if (device->bytes > 0) munmap(device->memory, (size_t)device->bytes);
  free(device);
}

char *pd_device_memory(const pd_device *device) {
  return device->memory;
}

int64_t pd_device_bytes(const pd_device *device) {
  return device->bytes;
}

bool pd_device_sound(const pd_device *device, char *why, size_t room) {
  (void)device, (void)why, (void)room; /* MPI says so itself */
  return true;
}

const char *pd_device_name(const pd_device *device) {
  const char *set = device->f32 != NULL ? device->f32->set : device->f64->set;
  return strcmp(set, "ref") == 0 ? "ref kernels" : "host kernels";
}

#define RATE_SIZE 512 /* of the matrices: large enough for the full rate, small enough for a few in 50 ms */

static void multiply(const pd_device *device, const void *a, const void *b, void *c) {
  const int64_t n = RATE_SIZE;
  if (device->f32 != NULL)
    device->f32->gemm(false, false, n, n, n, 1, a, n, b, n, 0, c, n);
  else
    device->f64->gemm(false, false, n, n, n, 1, a, n, b, n, 0, c, n);
}

double pd_device_product_rate(pd_device *device) {
  const size_t elements = (size_t)RATE_SIZE * RATE_SIZE, bytes = device->f32 != NULL ? 4 : 8;
  char *matrices = calloc(3 * elements, bytes), *b = matrices + elements * bytes, *c = b + elements * bytes;
  double rate = 0;
  if (matrices != NULL) multiply(device, matrices, b, c); /* the first prepares what the others use */
  MPI_Barrier(device->world->all);
  const double began = MPI_Wtime();
  for (int products = 1; matrices != NULL; products++) {
    multiply(device, matrices, b, c);
    const double seconds = MPI_Wtime() - began;
    rate = 2.0 * RATE_SIZE * RATE_SIZE * RATE_SIZE * products / seconds;
    if (seconds >= 0.05) break;
  }
  free(matrices);
  return rate;
}

void pd_device_threads(int threads) {
  pd_kernels_threads(threads);
}

/* ---- the host's access ---- */

void pd_device_read(pd_device *device, void *to, const void *from, int64_t bytes) {
  (void)device;
  memcpy(to, from, (size_t)bytes);
}

void pd_device_write(pd_device *device, void *to, const void *from, int64_t bytes) {
  (void)device;
  memcpy(to, from, (size_t)bytes);
}

void *pd_device_rows(pd_device *device, int64_t at) {
  return device->memory + at;
}

#define DEFINE_DRAW(R, set)                                                                                            \
  static void draw_##set(const pd_device *device, const pd_param_info *info, pd_key key, const pd_local *local,        \
                         int64_t n, R *out) {                                                                          \
    switch (info->init) {                                                                                              \
    case PD_INIT_NUMBER:                                                                                               \
      device->set->fill(n, (R)info->a, out);                                                                           \
      break;                                                                                                           \
    case PD_INIT_NORMAL:                                                                                               \
      device->set->init_normal(key, n, local, info->a, out);                                                           \
      break;                                                                                                           \
    case PD_INIT_UNIFORM:                                                                                              \
      device->set->init_uniform(key, n, local, info->a, info->b, out);                                                 \
      break;                                                                                                           \
    }                                                                                                                  \
  }
DEFINE_DRAW(float, f32)
DEFINE_DRAW(double, f64)

void pd_device_draw(pd_device *device, const pd_param_info *info, pd_key key, const pd_local *local, int64_t n,
                    void *out) {
  if (device->f32 != NULL) {
    draw_f32(device, info, key, local, n, out);
  } else {
    draw_f64(device, info, key, local, n, out);
  }
}

/* ---- passes ---- */

void pd_device_open_pass(pd_device *device, const pd_pass *pass) {
  device->pass = *pass;
  memset(device->results, 0, (size_t)(device->program->microbatches * device->result_count) * sizeof *device->results);
}

bool pd_device_begin_step(pd_device *device) {
  (void)device;
  return true;
}

void pd_device_end_step(pd_device *device) {
  (void)device;
}

void pd_device_close_pass(pd_device *device, double *results) {
  memcpy(results, device->results,
         (size_t)(device->program->microbatches * device->result_count) * sizeof *device->results);
}

double *pd_device_results(const pd_device *device, int64_t mb) {
  return mb == PD_NONE ? device->ignored : device->results + mb * device->result_count;
}

const double *pd_device_inverse_counts(const pd_device *device) {
  return device->pass.inverse_counts;
}

void pd_device_frame(const pd_device *device, pd_frame *frame) {
  (void)device;
  (void)frame;
}

/* ---- memory ---- */

void pd_device_clear(pd_device *device, void *at, int64_t bytes) {
  if (device->f32 != NULL) {
    device->f32->fill(bytes / 4, 0, at);
  } else {
    device->f64->fill(bytes / 8, 0, at);
  }
}

void pd_device_copy(pd_device *device, void *to, const void *from, int64_t bytes) {
  (void)device;
  memcpy(to, from, (size_t)bytes);
}

void pd_device_add(pd_device *device, bool wide, int64_t n, const void *a, void *out) {
  (void)wide; /* the host computes in the precision of its weights */
  if (device->f32 != NULL) {
    device->f32->add(n, a, out);
  } else {
    device->f64->add(n, a, out);
  }
}

/* ---- norm ---- */

void pd_device_add_squares(pd_device *device, int set, int index, bool split, int64_t n, const void *x) {
  double sum = device->f32 != NULL ? device->f32->sum_squares(n, x) : device->f64->sum_squares(n, x);
  (split ? device->split : device->whole)[set * device->tensors + index] = sum;
}

void pd_device_decide(pd_device *device, int set) {
  const int count = device->tensors;
  double *whole = device->whole + set * count, *split = device->split + set * count;
  pd_sum_double(device->world->tensor, split, count);
  for (int i = 0; i < count; i++) whole[i] += split[i];
  pd_sum_double(device->world->pipe, whole, count); /* of which one is not zero */
  double sum = 0;
  for (int i = 0; i < count; i++) sum += whole[i];
  memset(whole, 0, (size_t)count * sizeof *whole);
  memset(split, 0, (size_t)count * sizeof *split);
  const double norm = device->norms[set] = sqrt(sum), clip = device->program->clip;
  device->finite = isfinite(norm);
  device->factor = clip > 0 && norm > clip ? clip / norm : 1;
}

double pd_device_norm(pd_device *device, int set) {
  return device->norms[set];
}

void pd_device_set_update(pd_device *device, int64_t update, double rate, double factor) {
  device->pass.update = update;
  device->pass.rate = rate;
  device->finite = true;
  device->factor = factor;
}
