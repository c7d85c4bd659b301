/* Parameters of a rank: where they are, their first values, the norm of their gradients, their update. */
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

/* Version `version` of the weights, that the optimizer changes, of what the model reads at byte `offset` of the
 * allocation. */
static char *version_at(const pd_engine *engine, int64_t offset, int64_t version) {
  const pd_layout *layout = engine->layout;
  const int64_t number = layout->masters > 1 ? version : 0;
  const int64_t inside = offset - layout->base[PD_MEMORY_PARAMETERS] + number * layout->version_bytes;
  return engine->memory + layout->master + inside / engine->program->real_bytes * pd_wide_bytes(engine->program);
}

/* `inside`: bytes, as wide as the optimizer's */
static void set_weights(const pd_engine *engine, int64_t offset, int64_t inside, pd_part *part) {
  const int real = engine->program->real_bytes, wide = pd_wide_bytes(engine->program);
  part->weights = version_at(engine, offset, engine->newest) + inside;
  if (real < wide) {
    part->copy = engine->memory + offset + engine->newest * engine->layout->version_bytes + inside / wide * real;
  }
  if (engine->pipeline->delay > 0) {
    part->before = version_at(engine, offset, (engine->newest + 1) % engine->layout->versions) + inside;
  }
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
    set_weights(engine, tied->weights, 0, part);
    part->gradients = at_or_null(engine, tied->gradients, 0);
    for (int i = 0; i < 2; i++) part->moments[i] = at_or_null(engine, tied->moments[i], 0);
  }
}

static void find_own(const pd_engine *engine, const pd_param_info *param, int64_t trip, pd_part *part) {
  const pd_layout *layout = engine->layout;
  const int64_t unit = first_unit_of(engine->program, param->segment) + trip;
  const int64_t offset = param->offset * pd_wide_bytes(engine->program);
  for (int c = 0; c < layout->chunk_count; c++) {
    const pd_chunk_plan *plan = &layout->chunks[c];
    if (unit < plan->first_unit || unit >= plan->first_unit + plan->unit_count) continue;
    const pd_unit_plan *at = &plan->units[unit - plan->first_unit];
    part->owner = plan->chunk < pd_copy_chunks(engine->pipeline); /* the first copy speaks */
    set_weights(engine, at->weights, offset, part);
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

void pd_engine_initialise(pd_engine *engine, uint64_t seed) {
  for (int p = 0; p < engine->program->param_count; p++) {
    const pd_param_info *info = &engine->program->params[p];
    for (int64_t trip = 0; trip < trips_of(engine->program, info); trip++) {
      pd_part part = pd_engine_part(engine, p, trip);
      if (part.weights == NULL || part.elements == 0) continue;
      char *name = name_in_trip(info->name, trip);
      pd_key key = {seed, pd_purpose(name)};
      free(name);
      pd_device_draw(engine->device, info, key, &part.local, part.elements, part.weights);
    }
  }
}

/* ---- norm ---- */

/* Whether this pipeline rank is the one that counts the parameter in this trip (whatever its replica and tensor rank).
 */
static bool counts_here(const pd_engine *engine, int param, int64_t trip) {
  const pd_param_info *info = &engine->program->params[param];
  pd_part part = {.owner = false};
  if (info->segment == PD_NONE) {
    find_tied(engine, param, &part);
  } else {
    find_own(engine, info, trip, &part);
  }
  return part.owner;
}

int pd_device_tensors(const pd_program *program) {
  int64_t count = 0;
  for (int p = 0; p < program->param_count; p++) count += trips_of(program, &program->params[p]);
  return (int)count;
}

void pd_engine_queue_squares(pd_engine *engine, int set) {
  const pd_program *program = engine->program;
  int i = 0;
  for (int p = 0; p < program->param_count; p++) {
    const pd_param_info *info = &program->params[p];
    for (int64_t trip = 0; trip < trips_of(program, info); trip++, i++) {
      pd_part part = pd_engine_part(engine, p, trip);
      if (part.gradients == NULL || info->statistic || !counts_here(engine, p, trip)) continue;
      pd_device_add_squares(engine->device, set, i, info->split_axis != PD_NONE, part.elements, part.gradients);
    }
  }
}

double pd_engine_grad_norm(pd_engine *engine) {
  pd_engine_queue_squares(engine, 0);
  pd_device_decide(engine->device, 0);
  return pd_device_norm(engine->device, 0);
}

/* ---- update ---- */

static void update_statistic(pd_engine *engine, const pd_param_info *info, const pd_change *change) {
  const pd_program *program = engine->program;
  const int64_t microbatches = engine->pipeline->step > 0 ? engine->pipeline->step : program->microbatches;
  pd_device_update_statistic(engine->device, change, info->momentum, (double)microbatches * program->dp);
}

/* Lamb measures all tensors before it moves the first: the lengths of shared ones are summed over their ranks at once.
 */
void pd_engine_queue_update(pd_engine *engine) {
  const pd_program *program = engine->program;
  const bool lamb = program->optimizer == PD_LAMB;
  for (int measuring = lamb ? 1 : 0; measuring >= 0; measuring--) {
    int index = 0;
    for (int p = 0; p < program->param_count; p++) {
      const pd_param_info *info = &program->params[p];
      for (int64_t trip = 0; trip < trips_of(program, info); trip++, index++) {
        pd_part part = pd_engine_part(engine, p, trip);
        if (part.gradients == NULL || part.elements == 0) continue;
        const pd_change change = {.elements = part.elements,
                                  .weights = part.weights,
                                  .gradients = part.gradients,
                                  .moments = {part.moments[0], part.moments[1]},
                                  .copy = part.copy,
                                  .decay = info->decay ? program->decay : 0,
                                  .index = index,
                                  .split = info->split_axis != PD_NONE,
                                  .adapts = info->decay};
        if (info->statistic) {
          if (!measuring) update_statistic(engine, info, &change);
        } else if (measuring) {
          pd_device_measure(engine->device, &change);
        } else {
          pd_device_update(engine->device, &change);
        }
      }
    }
    if (measuring) pd_device_close_measures(engine->device);
  }
}

void pd_engine_update(pd_engine *engine, int64_t update, double rate, double factor) {
  pd_device_set_update(engine->device, update, rate, factor);
  pd_engine_queue_update(engine);
}
