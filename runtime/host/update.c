/* The host's updates of parameters: optimizers, and running statistics. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "host/host.h"

/* ---- lamb: lengths of tensors, whole ones and parts, and of their directions ---- */

void pd_host_open_update(pd_device *device) {
  if (device->program->optimizer != PD_LAMB) return;
  device->lengths = calloc(4 * (size_t)device->tensors + 1, sizeof *device->lengths);
  if (device->lengths == NULL) pd_fail(PD_EXIT_MEMORY, "out of memory");
}

void pd_host_close_update(pd_device *device) {
  free(device->lengths);
}

/* Of the tensor, and after it of its direction. */
static double *lengths_of(const pd_device *device, const pd_change *change) {
  return device->lengths + 2 * ((change->split ? device->tensors : 0) + change->index);
}

static double lamb_ratio(const pd_device *device, const pd_change *change) {
  const double *lengths = lengths_of(device, change);
  return change->adapts && lengths[0] > 0 && lengths[1] > 0 ? sqrt(lengths[0] / lengths[1]) : 1;
}

/* ---- optimizers ---- */

/* Adam with decay as part of the gradient, as PyTorch's: element-wise, so a block at a time gives the same numbers. */
#define ADAM_BLOCK 1024
#define DEFINE_UPDATE(R, set)                                                                                          \
  static void adam_##set(const pd_device *device, const pd_change *change, double c1, double c2) {                     \
    const pd_program *program = device->program;                                                                       \
    R *w = change->weights, *m = change->moments[0], *v = change->moments[1];                                          \
    const R *gradient = change->gradients;                                                                             \
    R block[ADAM_BLOCK];                                                                                               \
    for (int64_t first = 0; first < change->elements; first += ADAM_BLOCK) {                                           \
      int64_t n = change->elements - first < ADAM_BLOCK ? change->elements - first : ADAM_BLOCK;                       \
      for (int64_t i = 0; i < n; i++) {                                                                                \
        block[i] = (R)(device->factor * gradient[first + i] + change->decay * w[first + i]);                           \
      }                                                                                                                \
      device->set->adamw(n, w + first, block, m + first, v + first, 1, device->pass.rate, program->beta1,              \
                         program->beta2, program->eps, 0, c1, c2);                                                     \
    }                                                                                                                  \
  }                                                                                                                    \
  static void update_##set(const pd_device *device, const pd_change *change) {                                         \
    const pd_program *program = device->program;                                                                       \
    const double rate = device->pass.rate, factor = device->factor;                                                    \
    const double c1 = 1 - pow(program->beta1, (double)device->pass.update);                                            \
    const double c2 = 1 - pow(program->beta2, (double)device->pass.update);                                            \
    if (program->optimizer == PD_SGD) {                                                                                \
      device->set->sgd(change->elements, change->weights, change->gradients, change->moments[0], factor, rate,         \
                       program->momentum, change->decay);                                                              \
    } else if (program->optimizer == PD_LAMB) {                                                                        \
      device->set->lamb_step(change->elements, change->weights, change->moments[0], change->moments[1],                \
                             rate *lamb_ratio(device, change), program->eps, change->decay, c1, c2);                   \
    } else if (program->optimizer == PD_ADAM && change->decay != 0) {                                                  \
      adam_##set(device, change, c1, c2);                                                                              \
    } else {                                                                                                           \
      device->set->adamw(change->elements, change->weights, change->gradients, change->moments[0], change->moments[1], \
                         factor, rate, program->beta1, program->beta2, program->eps, change->decay, c1, c2);           \
    }                                                                                                                  \
  }
DEFINE_UPDATE(float, f32)
DEFINE_UPDATE(double, f64)

static bool changes_nothing(const pd_device *device) {
  return device->pass.update == 0 || !device->finite;
}

void pd_device_update(pd_device *device, const pd_change *change) {
  if (changes_nothing(device)) return;
  if (device->f32 != NULL) {
    update_f32(device, change);
  } else {
    update_f64(device, change);
  }
}

void pd_device_measure(pd_device *device, const pd_change *change) {
  if (changes_nothing(device)) return;
  const pd_program *program = device->program;
  const double c1 = 1 - pow(program->beta1, (double)device->pass.update);
  const double c2 = 1 - pow(program->beta2, (double)device->pass.update);
  double *lengths = lengths_of(device, change);
  if (device->f32 != NULL) {
    lengths[0] = device->f32->sum_squares(change->elements, change->weights);
    lengths[1] = device->f32->lamb_moments(change->elements, change->weights, change->gradients, change->moments[0],
                                           change->moments[1], device->factor, program->beta1, program->beta2,
                                           program->eps, change->decay, c1, c2);
  } else {
    lengths[0] = device->f64->sum_squares(change->elements, change->weights);
    lengths[1] = device->f64->lamb_moments(change->elements, change->weights, change->gradients, change->moments[0],
                                           change->moments[1], device->factor, program->beta1, program->beta2,
                                           program->eps, change->decay, c1, c2);
  }
}

void pd_device_close_measures(pd_device *device) {
  if (changes_nothing(device)) return;
  pd_sum_double(device->world->tensor, device->lengths + 2 * device->tensors, 2 * device->tensors);
}

/* ---- running statistics ---- */

#define DEFINE_STATISTIC(R, set)                                                                                       \
  static void statistic_##set(int64_t n, R *w, const R *sums, double momentum, double count) {                         \
    for (int64_t i = 0; i < n; i++) w[i] = (R)((1 - momentum) * (double)w[i] + momentum * ((double)sums[i] / count));  \
  }
DEFINE_STATISTIC(float, f32)
DEFINE_STATISTIC(double, f64)

void pd_device_update_statistic(pd_device *device, const pd_change *change, double momentum, double count) {
  if (changes_nothing(device)) return;
  if (device->f32 != NULL) {
    statistic_f32(change->elements, change->weights, change->gradients, momentum, count);
  } else {
    statistic_f64(change->elements, change->weights, change->gradients, momentum, count);
  }
}
