/* The device of a rank: which one it is, its memory, the host's access to it. */
#include "cuda/cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/sets.h"

/* ---- errors ---- */

static int exit_code_of(cudaError_t error) {
  switch (error) {
  case cudaErrorMemoryAllocation:
    return PD_EXIT_DEVICE_MEMORY;
  case cudaErrorInsufficientDriver:
  case cudaErrorUnsupportedPtxVersion:
  case cudaErrorSystemDriverMismatch:
  case cudaErrorCompatNotSupportedOnDevice:
    return PD_EXIT_DRIVER;
  default:
    return PD_EXIT_CUDA;
  }
}

void pd_cuda_check(cudaError_t error, const char *call, const char *file, int line) {
  if (error == cudaSuccess) return;
  pd_fail(exit_code_of(error), "%s failed with %s: %s (%s:%d)", call, cudaGetErrorName(error),
          cudaGetErrorString(error), file, line);
}

void pd_nccl_check(ncclResult_t result, const char *call, const char *file, int line) {
  if (result == ncclSuccess) return;
  pd_fail(PD_EXIT_CUDA, "%s failed with %s: %s (%s:%d)", call, ncclGetErrorString(result), ncclGetLastError(NULL), file,
          line);
}

void pd_cublas_check(cublasStatus_t status, const char *call, const char *file, int line) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  pd_fail(PD_EXIT_CUDA, "%s failed with %s (%s:%d)", call, cublasLtGetStatusName(status), file, line);
}

void pd_launch_failed(cudaError_t error, const char *kernel, const char *file, int line) {
  if (error == cudaErrorNoKernelImageForDevice) {
    pd_fail(PD_EXIT_CUDA,
            "this program has no code for this device; compile it with --arch=sm_NN for its architecture");
  }
  pd_fail(exit_code_of(error), "the launch of %s failed with %s: %s (%s:%d)", kernel, cudaGetErrorName(error),
          cudaGetErrorString(error), file, line);
}

/* ---- which device ---- */

static int count_devices(void) {
  int driver = 0, runtime = 0, count = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  if (driver == 0) {
    pd_fail(PD_EXIT_DRIVER, "there is no NVIDIA driver here; this program needs one for CUDA %d", runtime / 1000);
  }
  if (driver / 1000 < runtime / 1000) {
    pd_fail(PD_EXIT_DRIVER, "the NVIDIA driver is for CUDA %d.%d and older; this program needs one for CUDA %d",
            driver / 1000, driver % 1000 / 10, runtime / 1000);
  }
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0)) {
    pd_fail(PD_EXIT_NO_DEVICE, "there is no CUDA device here (CUDA_VISIBLE_DEVICES hides devices)");
  }
  pd_cuda_check(error, "cudaGetDeviceCount", __FILE__, __LINE__);
  return count;
}

/* Ranks of a node take its devices in turn. A launcher may show each rank another one, so their identities decide
 * whether two ranks have the same. */
static void choose_device(pd_device *device) {
  const int count = count_devices();
  MPI_Comm node;
  int rank, size;
  MPI_Comm_split_type(device->world->all, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
  MPI_Comm_rank(node, &rank);
  MPI_Comm_size(node, &size);
  CUDA_CHECK(cudaSetDevice(rank % count));
  struct cudaDeviceProp properties;
  CUDA_CHECK(cudaGetDeviceProperties(&properties, rank % count));
  cudaUUID_t *all = malloc((size_t)size * sizeof *all);
  if (all == NULL) pd_fail(PD_EXIT_MEMORY, "out of memory");
  MPI_Allgather(&properties.uuid, (int)sizeof *all, MPI_BYTE, all, (int)sizeof *all, MPI_BYTE, node);
  for (int i = 0; i < size; i++) {
    for (int j = 0; j < i; j++) {
      if (memcmp(&all[i], &all[j], sizeof *all) != 0) continue;
      pd_fail(PD_EXIT_FEW_DEVICES, "%d ranks run on this node, which has %d CUDA device%s: each rank needs its own",
              size, count, count == 1 ? "" : "s");
    }
  }
  free(all);
  MPI_Comm_free(&node);
  device->arch = properties.major * 10 + properties.minor;
  device->fuses = properties.major == 9; /* which is faster on others is not measured */
  snprintf(device->name, sizeof device->name, "%.200s, sm_%d%d", properties.name, properties.major, properties.minor);
}

/* ---- start and end ---- */

static void *pinned(int64_t bytes) {
  void *memory = NULL;
  const cudaError_t error = cudaMallocHost(&memory, (size_t)(bytes > 0 ? bytes : 1));
  if (error == cudaErrorMemoryAllocation) {
    pd_fail(PD_EXIT_MEMORY, "cannot allocate %lld bytes of the host's memory that CUDA may copy from",
            (long long)bytes);
  }
  pd_cuda_check(error, "cudaMallocHost", __FILE__, __LINE__);
  memset(memory, 0, (size_t)bytes);
  return memory;
}

static void allocate(pd_device *device) {
  device->bytes = pd_layout_total(device->layout);
  if (device->bytes == 0) return;
  void *memory = NULL;
  const cudaError_t error = cudaMalloc(&memory, (size_t)device->bytes);
  if (error == cudaErrorMemoryAllocation) {
    size_t unused = 0, total = 0;
    cudaMemGetInfo(&unused, &total);
    pd_fail(PD_EXIT_DEVICE_MEMORY,
            "the plan needs %lld bytes on the device, of whose %zu bytes %zu are unused; a smaller microbatch, more "
            "pipeline stages or recompute=full need less",
            (long long)device->bytes, total, unused);
  }
  pd_cuda_check(error, "cudaMalloc", __FILE__, __LINE__);
  device->memory = memory;
}

static void check_program(const pd_program *program, const pd_pipeline *pipeline) {
  if (pipeline->copies > 2 || program->real_bytes == 8) {
    pd_fail(PD_EXIT_PLAN, "the plan does not fit a program for CUDA");
  }
}

pd_device *pd_device_open(const pd_program *program, const pd_pipeline *pipeline, const pd_layout *layout,
                          const pd_world *world, const char *kernels) {
  (void)kernels; /* the host's */
  check_program(program, pipeline);
  pd_device *device = calloc(1, sizeof *device);
  if (device == NULL) pd_fail(PD_EXIT_MEMORY, "out of memory");
  device->program = program;
  device->layout = layout;
  device->world = world;
  device->result_count = 1 + program->metric_count;
  device->tensors = pd_device_tensors(program);
  device->sets = pipeline->step > 0 ? (int)pd_list_updates(pipeline) : 1;
  const char *graph = getenv("PDC_CUDA_GRAPH");
  device->records = graph == NULL || strcmp(graph, "0") != 0;
  choose_device(device);
  device->kernels = pd_cuda_open_kernels(&pd_cuda_program_kernels, device->arch);
  CUDA_CHECK(cudaStreamCreateWithFlags(&device->compute, cudaStreamNonBlocking));
  CUDA_CHECK(cudaStreamCreateWithFlags(&device->copies, cudaStreamNonBlocking));
  CUDA_CHECK(cudaStreamCreateWithFlags(&device->reductions, cudaStreamNonBlocking));
  CUDA_CHECK(cudaEventCreateWithFlags(&device->rows_there, cudaEventDisableTiming));
  CUDA_CHECK(cudaEventCreateWithFlags(&device->before, cudaEventDisableTiming));
  CUDA_CHECK(cudaEventCreateWithFlags(&device->reduced, cudaEventDisableTiming));
  allocate(device);
  /* of all sets, and lamb's lengths behind them: parts of other ranks stay zero */
  pd_device_clear(device, device->memory + layout->squares, layout->partial_squares - layout->squares);
  if (program->real_bytes != 4) { /* copies are made of all weights at once, with what lies between two of them */
    pd_device_clear(device, device->memory + layout->master,
                    layout->masters * (layout->version_bytes / program->real_bytes * 4));
  }
  device->rows = pinned(layout->rows_bytes);
  device->values = pinned((1 + device->sets) * (int64_t)sizeof *device->values);
  device->counts = pinned(device->sets * program->normaliser_count * (int64_t)sizeof *device->counts);
  device->results = pinned(program->microbatches * device->result_count * (int64_t)sizeof(double));
  pd_device_write(device, device->memory + layout->constants, program->constants,
                  program->constant_count * (int64_t)sizeof(float));
  pd_cuda_open_communicators(device, pipeline);
  pd_cuda_open_products(device);
  if (program->open_attentions != NULL) program->open_attentions(device);
  return device;
}

void pd_device_close(pd_device *device) {
  CUDA_CHECK(cudaDeviceSynchronize());
  if (device->graph != NULL) CUDA_CHECK(cudaGraphExecDestroy(device->graph));
  pd_cuda_close_kernels(&pd_cuda_program_kernels, device->kernels);
  if (device->program->close_attentions != NULL) device->program->close_attentions(device);
  pd_cuda_close_products(device);
  pd_cuda_close_communicators(device);
  CUDA_CHECK(cudaFreeHost(device->rows));
  CUDA_CHECK(cudaFreeHost(device->values));
  CUDA_CHECK(cudaFreeHost(device->counts));
  CUDA_CHECK(cudaFreeHost(device->results));
  if (device->memory != NULL) CUDA_CHECK(cudaFree(device->memory));
  CUDA_CHECK(cudaEventDestroy(device->rows_there));
  CUDA_CHECK(cudaEventDestroy(device->before));
  CUDA_CHECK(cudaEventDestroy(device->reduced));
  CUDA_CHECK(cudaStreamDestroy(device->compute));
  CUDA_CHECK(cudaStreamDestroy(device->copies));
  CUDA_CHECK(cudaStreamDestroy(device->reductions));
  free(device);
}

char *pd_device_memory(const pd_device *device) {
  return device->memory;
}

int64_t pd_device_bytes(const pd_device *device) {
  return device->bytes;
}

void pd_device_threads(int threads) {
  (void)threads; /* the device's own */
}

const char *pd_device_name(const pd_device *device) {
  return device->name;
}

double pd_device_product_rate(pd_device *device) {
  (void)device; /* a device's memory is full, and its rate is in its data sheet: cluster.flops */
  return 0;
}

/* ---- the host's access ---- */

void pd_device_read(pd_device *device, void *to, const void *from, int64_t bytes) {
  CUDA_CHECK(cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDeviceToHost, device->compute));
  CUDA_CHECK(cudaStreamSynchronize(device->compute));
}

void pd_device_write(pd_device *device, void *to, const void *from, int64_t bytes) {
  if (bytes == 0) return;
  CUDA_CHECK(cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyHostToDevice, device->compute));
  CUDA_CHECK(cudaStreamSynchronize(device->compute));
  device->masters_changed = true;
}

void *pd_device_rows(pd_device *device, int64_t at) {
  return device->rows + (at - device->layout->rows);
}

/* Drawn by the host's plain kernels: the same numbers on every target. */
void pd_device_draw(pd_device *device, const pd_param_info *info, pd_key key, const pd_local *local, int64_t n,
                    void *out) {
  const pd_kernels_f32 *kernels = &pd_set_ref_f32;
  float *values = malloc((size_t)n * sizeof *values);
  if (values == NULL) pd_fail(PD_EXIT_MEMORY, "out of memory");
  switch (info->init) {
  case PD_INIT_NUMBER:
    kernels->fill(n, (float)info->a, values);
    break;
  case PD_INIT_NORMAL:
    kernels->init_normal(key, n, local, info->a, values);
    break;
  case PD_INIT_UNIFORM:
    kernels->init_uniform(key, n, local, info->a, info->b, values);
    break;
  }
  pd_device_write(device, out, values, n * (int64_t)sizeof *values);
  free(values);
}
