/* Passes: what goes to the device before one and comes back after it, the recorded step, memory operations, the norm of
 * gradients and the update. */
#include "cuda/cuda.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void pd_cuda_fork(pd_device *device, cudaStream_t stream) {
  CUDA_CHECK(cudaEventRecord(device->before, device->compute));
  CUDA_CHECK(cudaStreamWaitEvent(stream, device->before, 0));
}

void pd_cuda_join(pd_device *device, cudaStream_t stream, cudaEvent_t event) {
  CUDA_CHECK(cudaEventRecord(event, stream));
  CUDA_CHECK(cudaStreamWaitEvent(device->compute, event, 0));
}

static void *at(const pd_device *device, int64_t offset) {
  return device->memory + offset;
}

static pd_step_values *device_values(const pd_device *device) {
  return at(device, device->layout->values);
}

/* ---- passes ---- */

static void set_values(const pd_device *device, pd_step_values *values) {
  const pd_program *program = device->program;
  const pd_pass *pass = &device->pass;
  memset(values, 0, sizeof *values);
  values->step = pass->step;
  values->rate = pass->rate;
  values->c1 = 1 - pow(program->beta1, (double)pass->update);
  values->c2 = 1 - pow(program->beta2, (double)pass->update);
  values->update = pass->update != 0;
}

static void send_values(pd_device *device, const pd_step_values *values) {
  CUDA_CHECK(cudaMemcpyAsync(device_values(device), values, sizeof *values, cudaMemcpyHostToDevice, device->compute));
}

static void send_counts(pd_device *device) {
  const pd_pass *pass = &device->pass;
  const int64_t count = (pass->updates > 0 ? pass->updates : 1) * device->program->normaliser_count;
  if (count == 0 || pass->inverse_counts == NULL) return;
  const size_t bytes = (size_t)count * sizeof *device->counts;
  memcpy(device->counts, pass->inverse_counts, bytes);
  CUDA_CHECK(cudaMemcpyAsync(at(device, device->layout->counts), device->counts, bytes, cudaMemcpyHostToDevice,
                             device->compute));
}

void pd_device_open_pass(pd_device *device, const pd_pass *pass) {
  const pd_layout *layout = device->layout;
  device->pass = *pass;
  if (device->masters_changed) pd_cuda_refresh_copies(device);
  if (layout->rows_bytes > 0) {
    CUDA_CHECK(cudaMemcpyAsync(at(device, layout->rows), device->rows, (size_t)layout->rows_bytes,
                               cudaMemcpyHostToDevice, device->copies));
    pd_cuda_join(device, device->copies, device->rows_there);
  }
  device->values_used = 0;
  set_values(device, device->values);
  send_values(device, device->values);
  send_counts(device);
  const int64_t results = (device->program->microbatches + 1) * device->result_count * (int64_t)sizeof(double);
  pd_device_clear(device, at(device, layout->results), results);
}

void pd_device_close_pass(pd_device *device, double *results) {
  const int64_t bytes = device->program->microbatches * device->result_count * (int64_t)sizeof *results;
  CUDA_CHECK(cudaMemcpyAsync(device->results, at(device, device->layout->results), (size_t)bytes,
                             cudaMemcpyDeviceToHost, device->compute));
  CUDA_CHECK(cudaMemcpyAsync(device->values, device_values(device), sizeof *device->values, cudaMemcpyDeviceToHost,
                             device->compute));
  CUDA_CHECK(cudaStreamSynchronize(device->compute));
  device->norm_there = true;
  memcpy(results, device->results, (size_t)bytes);
}

double *pd_device_results(const pd_device *device, int64_t mb) {
  const int64_t row = mb == PD_NONE ? device->program->microbatches : mb;
  return (double *)at(device, device->layout->results) + row * device->result_count;
}

const double *pd_device_inverse_counts(const pd_device *device) {
  return at(device, device->layout->counts);
}

void pd_device_frame(const pd_device *device, pd_frame *frame) {
  frame->device = (pd_device *)device;
  frame->stream = device->compute;
  frame->values = device_values(device);
  frame->constants = at(device, device->layout->constants);
  frame->space = at(device, device->layout->kernels);
}

/* ---- the recorded step ----
 *
 * The first step runs as it is queued: libraries set themselves up in it. The second is captured, and the same graph is
 * launched from then on. */

bool pd_device_begin_step(pd_device *device) {
  device->norm_there = false;
  if (device->graph != NULL) {
    CUDA_CHECK(cudaGraphLaunch(device->graph, device->compute));
    return false;
  }
  if (device->records && device->steps > 0) {
    CUDA_CHECK(cudaStreamBeginCapture(device->compute, cudaStreamCaptureModeThreadLocal));
  }
  return true;
}

void pd_device_end_step(pd_device *device) {
  if (device->records && device->steps > 0) {
    cudaGraph_t graph;
    CUDA_CHECK(cudaStreamEndCapture(device->compute, &graph));
    CUDA_CHECK(cudaGraphInstantiate(&device->graph, graph, 0));
    CUDA_CHECK(cudaGraphDestroy(graph));
    CUDA_CHECK(cudaGraphLaunch(device->graph, device->compute));
  }
  device->steps++;
}

/* ---- memory ---- */

void pd_device_clear(pd_device *device, void *to, int64_t bytes) {
  if (bytes > 0) CUDA_CHECK(cudaMemsetAsync(to, 0, (size_t)bytes, device->compute));
}

void pd_device_copy(pd_device *device, void *to, const void *from, int64_t bytes) {
  if (bytes == 0) return;
  CUDA_CHECK(cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDeviceToDevice, device->compute));
}

void pd_device_add(pd_device *device, bool wide, int64_t n, const void *a, void *out) {
  if (n > 0) pd_cuda_add(device->compute, wide, n, a, out);
}

void pd_move(const pd_frame *f, void *to, const void *from, int64_t bytes) {
  pd_device_copy(f->device, to, from, bytes);
}

void pd_cuda_refresh_copies(pd_device *device) {
  const pd_layout *layout = device->layout;
  device->masters_changed = false;
  if (device->program->real_bytes == 4) return;
  const int64_t elements = layout->version_bytes / device->program->real_bytes;
  for (int64_t v = 0; v < layout->versions; v++) {
    const float *master = (const float *)at(device, layout->master) + (layout->masters > 1 ? v : 0) * elements;
    pd_cuda_cast(device->compute, elements, master,
                 (char *)at(device, layout->base[PD_MEMORY_PARAMETERS]) + v * layout->version_bytes);
  }
}

/* ---- norm and update ---- */

void pd_device_add_squares(pd_device *device, int set, int index, bool split, int64_t n, const void *x) {
  double *out = (double *)at(device, device->layout->squares) + (int64_t)set * device->tensors + index;
  if (split || device->world->tp_rank == 0) {
    pd_cuda_sum_squares(device->compute, n, x, at(device, device->layout->partial_squares), out);
  }
}

void pd_device_decide(pd_device *device, int set) {
  device->norm_there = false;
  double *squares = (double *)at(device, device->layout->squares) + (int64_t)set * device->tensors;
  const size_t count = (size_t)device->tensors;
  if (device->tensor != NULL) {
    NCCL_CHECK(ncclAllReduce(squares, squares, count, ncclDouble, ncclSum, device->tensor, device->compute));
  }
  if (device->pipe != NULL) {
    NCCL_CHECK(ncclAllReduce(squares, squares, count, ncclDouble, ncclSum, device->pipe, device->compute));
  }
  pd_cuda_decide(device->compute, device->tensors, squares, device->program->clip, device_values(device));
  pd_device_clear(device, squares, device->tensors * (int64_t)sizeof *squares); /* those of other ranks are zero */
}

double pd_device_norm(pd_device *device, int set) {
  (void)set; /* that of the last decision */
  if (!device->norm_there) {
    pd_device_read(device, device->values, device_values(device), (int64_t)sizeof *device->values);
  }
  return device->values->norm;
}

void pd_device_set_update(pd_device *device, int64_t update, double rate, double factor) {
  if (device->values_used == device->sets) { /* more updates than a list has: what the host wrote is read first */
    CUDA_CHECK(cudaStreamSynchronize(device->compute));
    device->values_used = 0;
  }
  pd_step_values *values = &device->values[1 + device->values_used++];
  device->pass.update = update;
  device->pass.rate = rate;
  set_values(device, values);
  values->finite = 1;
  values->factor = factor;
  send_values(device, values);
}

/* Lamb: of a tensor, and after it of its direction; those of parts lie behind those of whole tensors. */
static double *lengths_of(const pd_device *device, const pd_change *change) {
  double *lengths = at(device, device->layout->lengths);
  return lengths + 2 * ((change->split ? device->tensors : 0) + change->index);
}

void pd_device_update(pd_device *device, const pd_change *change) {
  const pd_program *program = device->program;
  if (program->optimizer == PD_SGD) {
    pd_cuda_sgd(device->compute, change->elements, change->weights, change->copy, change->gradients, change->moments[0],
                device_values(device), program->momentum, change->decay);
  } else if (program->optimizer == PD_LAMB) {
    pd_cuda_lamb(device->compute, change->elements, change->weights, change->copy, change->moments[0],
                 change->moments[1], device_values(device), program->eps, change->decay,
                 change->adapts ? lengths_of(device, change) : NULL);
  } else {
    pd_cuda_adamw(device->compute, change->elements, change->weights, change->copy, change->gradients,
                  change->moments[0], change->moments[1], device_values(device), program->beta1, program->beta2,
                  program->eps, change->decay, program->optimizer == PD_ADAM);
  }
}

void pd_device_measure(pd_device *device, const pd_change *change) {
  const pd_program *program = device->program;
  pd_cuda_lamb_measure(device->compute, change->elements, change->weights, change->gradients, change->moments[0],
                       change->moments[1], device_values(device), program->beta1, program->beta2, program->eps,
                       change->decay, at(device, device->layout->partial_squares), lengths_of(device, change));
}

void pd_device_close_measures(pd_device *device) {
  double *parts = (double *)at(device, device->layout->lengths) + 2 * device->tensors;
  const size_t count = 2 * (size_t)device->tensors;
  if (device->tensor == NULL) return;
  NCCL_CHECK(ncclAllReduce(parts, parts, count, ncclDouble, ncclSum, device->tensor, device->compute));
}

void pd_device_update_statistic(pd_device *device, const pd_change *change, double momentum, double count) {
  pd_cuda_update_statistic(device->compute, change->elements, change->weights, change->copy, change->gradients,
                           device_values(device), momentum, count);
}
