/* Parameters of a rank: where they are, their first values, the norm of their gradients, their update. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine_state.h"
#include "random.h"

static int64_t trips_of(const pd_program *program, const pd_param_info *param) {
  return param->per_trip ? program->segments[param->segment].trips : 1;
}

static int64_t first_unit_of(const pd_program *program, int segment) {
  int64_t unit = 0;
  for (int s = 0; s < segment; s++) unit += program->segments[s].trips;
  return unit;
}

/* An axis that does not divide evenly is padded: the last ranks have fewer real positions. */
static pd_local local_part(const pd_world *world, const pd_param_info *param) {
  pd_local local = {.rank = param->rank};
  int64_t others = 1;
  for (int k = 0; k < param->rank; k++) {
    local.size[k] = local.global[k] = param->shape[k];
    if (k != param->split_axis) others *= param->shape[k];
  }
  if (param->rank == 0) local = (pd_local){.rank = 1, .size = {1}, .global = {1}};
  if (param->split_axis == PD_NONE || others == 0) return local;
  const int64_t axis_size = param->shape[param->split_axis], extent = param->elements / others;
  int64_t first = extent * world->tp_rank;
  if (first > axis_size) first = axis_size;
  local.first[param->split_axis] = first;
  local.size[param->split_axis] = axis_size - first < extent ? axis_size - first : extent;
  return local;
}

/* Where the newest weights lie that have this offset. */
static char *newest_at(const pd_engine *engine, int64_t offset) {
  return engine->memory + offset + engine->newest * engine->layout->version_bytes;
}

static void *at_or_null(const pd_engine *engine, int64_t base, int64_t offset) {
  return base == PD_NONE ? NULL : engine->memory + base + offset;
}

static void find_tied(const pd_engine *engine, int param, pd_part *part) {
  const pd_layout *layout = engine->layout;
  for (int t = 0; t < layout->tied_count; t++) {
    const pd_tied_plan *tied = &layout->tied[t];
    if (tied->param != param) continue;
    int lowest = tied->slots[0].rank;
    for (int i = 1; i < tied->slot_count; i++) {
      if (tied->slots[i].rank < lowest) lowest = tied->slots[i].rank;
    }
    part->owner = lowest == layout->pp_rank;
    part->weights = newest_at(engine, tied->weights);
    part->gradients = at_or_null(engine, tied->gradients, 0);
    for (int i = 0; i < 2; i++) part->moments[i] = at_or_null(engine, tied->moments[i], 0);
  }
}

static void find_own(const pd_engine *engine, const pd_param_info *param, int64_t trip, pd_part *part) {
  const pd_layout *layout = engine->layout;
  const int64_t unit = first_unit_of(engine->program, param->segment) + trip;
  const int64_t offset = param->offset * engine->program->real_bytes;
  for (int c = 0; c < layout->chunk_count; c++) {
    const pd_chunk_plan *plan = &layout->chunks[c];
    if (unit < plan->first_unit || unit >= plan->first_unit + plan->unit_count) continue;
    const pd_unit_plan *at = &plan->units[unit - plan->first_unit];
    part->owner = true;
    part->weights = newest_at(engine, at->weights + offset);
    if (param->frozen) continue;
    part->gradients = at_or_null(engine, at->gradients, offset);
    for (int i = 0; i < 2; i++) part->moments[i] = at_or_null(engine, at->moments[i], offset);
  }
}

pd_part pd_engine_part(pd_engine *engine, int param, int64_t trip) {
  const pd_param_info *info = &engine->program->params[param];
  pd_part part = {0};
  if (info->segment == PD_NONE) {
    find_tied(engine, param, &part);
  } else if (trip >= 0 && trip < trips_of(engine->program, info)) {
    find_own(engine, info, trip, &part);
  }
  part.local = local_part(engine->world, info);
  part.elements = 1;
  for (int k = 0; k < part.local.rank; k++) part.elements *= part.local.size[k];
  part.owner =
      part.owner && engine->world->dp_rank == 0 && (info->split_axis != PD_NONE || engine->world->tp_rank == 0);
  return part;
}

/* ---- first values ---- */

/* "layers.{}.wq" in trip 3: "layers.3.wq". The result is malloc'd. */
static char *name_in_trip(const char *name, int64_t trip) {
  const char *hole = strstr(name, "{}");
  char *text;
  int length = hole == NULL ? asprintf(&text, "%s", name)
                            : asprintf(&text, "%.*s%lld%s", (int)(hole - name), name, (long long)trip, hole + 2);
  if (length < 0) pd_fail(PD_EXIT_MEMORY, "out of memory");
  return text;
}

static void initialise_f32(const pd_engine *engine, const pd_param_info *info, pd_key key, const pd_part *part) {
  const pd_kernels_f32 *kernels = engine->f32;
  switch (info->init) {
  case PD_INIT_NUMBER:
    kernels->fill(part->elements, (float)info->a, part->weights);
    break;
  case PD_INIT_NORMAL:
    kernels->init_normal(key, part->elements, &part->local, info->a, part->weights);
    break;
  case PD_INIT_UNIFORM:
    kernels->init_uniform(key, part->elements, &part->local, info->a, info->b, part->weights);
    break;
  }
}

static void initialise_f64(const pd_engine *engine, const pd_param_info *info, pd_key key, const pd_part *part) {
  const pd_kernels_f64 *kernels = engine->f64;
  switch (info->init) {
  case PD_INIT_NUMBER:
    kernels->fill(part->elements, info->a, part->weights);
    break;
  case PD_INIT_NORMAL:
    kernels->init_normal(key, part->elements, &part->local, info->a, part->weights);
    break;
  case PD_INIT_UNIFORM:
    kernels->init_uniform(key, part->elements, &part->local, info->a, info->b, part->weights);
    break;
  }
}

void pd_engine_initialise(pd_engine *engine, uint64_t seed) {
  for (int p = 0; p < engine->program->param_count; p++) {
    const pd_param_info *info = &engine->program->params[p];
    for (int64_t trip = 0; trip < trips_of(engine->program, info); trip++) {
      pd_part part = pd_engine_part(engine, p, trip);
      if (part.weights == NULL || part.elements == 0) continue;
      char *name = name_in_trip(info->name, trip);
      pd_key key = {seed, pd_purpose(name)};
      free(name);
      if (engine->f32 != NULL) {
        initialise_f32(engine, info, key, &part);
      } else {
        initialise_f64(engine, info, key, &part);
      }
    }
  }
}

/* ---- norm ---- */

static double sum_squares(const pd_engine *engine, const pd_part *part) {
  return engine->f32 != NULL ? engine->f32->sum_squares(part->elements, part->gradients)
                             : engine->f64->sum_squares(part->elements, part->gradients);
}

/* Whether this pipeline rank is the one that counts the parameter (whatever its replica and tensor rank). */
static bool counts_here(const pd_engine *engine, int param) {
  const pd_layout *layout = engine->layout;
  for (int t = 0; t < layout->tied_count; t++) {
    const pd_tied_plan *tied = &layout->tied[t];
    if (tied->param != param) continue;
    for (int i = 0; i < tied->slot_count; i++) {
      if (tied->slots[i].rank < layout->pp_rank) return false;
    }
  }
  return true;
}

int pd_engine_tensor_count(const pd_engine *engine) {
  int64_t count = 0;
  for (int p = 0; p < engine->program->param_count; p++)
    count += trips_of(engine->program, &engine->program->params[p]);
  return (int)count;
}

void pd_engine_squares(pd_engine *engine, double *whole, double *split) {
  const pd_program *program = engine->program;
  int i = 0;
  for (int p = 0; p < program->param_count; p++) {
    const pd_param_info *info = &program->params[p];
    for (int64_t trip = 0; trip < trips_of(program, info); trip++, i++) {
      pd_part part = pd_engine_part(engine, p, trip);
      whole[i] = split[i] = 0;
      if (part.gradients == NULL || !counts_here(engine, p)) continue;
      *(info->split_axis == PD_NONE ? &whole[i] : &split[i]) = sum_squares(engine, &part);
    }
  }
}

double pd_engine_norm_of(pd_engine *engine, double *whole, double *split) {
  const int count = pd_engine_tensor_count(engine);
  pd_sum_double(engine->world->tensor, split, count);
  for (int i = 0; i < count; i++) whole[i] += split[i];
  pd_sum_double(engine->world->pipe, whole, count); /* of which one is not zero */
  double sum = 0;
  for (int i = 0; i < count; i++) sum += whole[i];
  return sqrt(sum);
}

double pd_engine_grad_norm(pd_engine *engine) {
  const size_t count = (size_t)pd_engine_tensor_count(engine);
  double *squares = calloc(2 * count + 1, sizeof *squares);
  if (squares == NULL) pd_fail(PD_EXIT_MEMORY, "out of memory");
  pd_engine_squares(engine, squares, squares + count);
  double norm = pd_engine_norm_of(engine, squares, squares + count);
  free(squares);
  return norm;
}

/* ---- update ---- */

typedef struct moment_update {
  double rate, factor, decay, c1, c2;
} moment_update;

/* Adam with decay as part of the gradient, as PyTorch's: element-wise, so a block at a time gives the same numbers. */
#define ADAM_BLOCK 1024
#define DEFINE_ADAM(R, set)                                                                                            \
  static void adam_##set(const pd_engine *engine, const pd_part *part, const moment_update *u) {                       \
    const pd_program *program = engine->program;                                                                       \
    R *w = part->weights, *m = part->moments[0], *v = part->moments[1];                                                \
    const R *gradient = part->gradients;                                                                               \
    R block[ADAM_BLOCK];                                                                                               \
    for (int64_t first = 0; first < part->elements; first += ADAM_BLOCK) {                                             \
      int64_t n = part->elements - first < ADAM_BLOCK ? part->elements - first : ADAM_BLOCK;                           \
      for (int64_t i = 0; i < n; i++) {                                                                                \
        block[i] = (R)(u->factor * gradient[first + i] + u->decay * w[first + i]);                                     \
      }                                                                                                                \
      engine->set->adamw(n, w + first, block, m + first, v + first, 1, u->rate, program->beta1, program->beta2,        \
                         program->eps, 0, u->c1, u->c2);                                                               \
    }                                                                                                                  \
  }
DEFINE_ADAM(float, f32)
DEFINE_ADAM(double, f64)

#define DEFINE_UPDATE(set)                                                                                             \
  static void update_##set(const pd_engine *engine, const pd_part *part, const moment_update *u) {                     \
    const pd_program *program = engine->program;                                                                       \
    if (program->optimizer == PD_SGD) {                                                                                \
      engine->set->sgd(part->elements, part->weights, part->gradients, part->moments[0], u->factor, u->rate,           \
                       program->momentum, u->decay);                                                                   \
    } else if (program->optimizer == PD_ADAM && u->decay != 0) {                                                       \
      adam_##set(engine, part, u);                                                                                     \
    } else {                                                                                                           \
      engine->set->adamw(part->elements, part->weights, part->gradients, part->moments[0], part->moments[1],           \
                         u->factor, u->rate, program->beta1, program->beta2, program->eps, u->decay, u->c1, u->c2);    \
    }                                                                                                                  \
  }
DEFINE_UPDATE(f32)
DEFINE_UPDATE(f64)

void pd_engine_update(pd_engine *engine, int64_t update, double rate, double factor) {
  const pd_program *program = engine->program;
  moment_update u = {.rate = rate, .factor = factor};
  u.c1 = 1 - pow(program->beta1, (double)update);
  u.c2 = 1 - pow(program->beta2, (double)update);
  for (int p = 0; p < program->param_count; p++) {
    const pd_param_info *info = &program->params[p];
    u.decay = info->decay ? program->decay : 0;
    for (int64_t trip = 0; trip < trips_of(program, info); trip++) {
      pd_part part = pd_engine_part(engine, p, trip);
      if (part.gradients == NULL || part.elements == 0) continue;
      if (engine->f32 != NULL) {
        update_f32(engine, &part, &u);
      } else {
        update_f64(engine, &part, &u);
      }
    }
  }
}
