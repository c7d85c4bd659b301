/* The walk over a chunk's units, planned once: which buffer every unit reads and writes, forwards and backwards.
 *
 * Forward buffers all live as long as their micro-batch. Gradients of wires live from the last unit that reads the wire
 * (the first one met on the way back) to the unit that makes it, and are placed first-fit. In a chunk whose backward is
 * split, what weight gradients read stays until W, so nothing of it is placed twice. */
#include "layout.h"

#include <stdlib.h>
#include <string.h>

static int64_t padded(int64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

int64_t pd_wire_bytes(const pd_program *program, int wire) {
  return padded(pd_wire_data_bytes(program, wire));
}

int64_t pd_unit_count(const pd_program *program) {
  int64_t count = 0;
  for (int s = 0; s < program->segment_count; s++) count += program->segments[s].trips;
  return count;
}

void pd_unit_locate(const pd_program *program, int64_t unit, int *segment, int64_t *trip) {
  int s = 0;
  while (s + 1 < program->segment_count && unit >= program->segments[s].trips) unit -= program->segments[s++].trips;
  *segment = s;
  *trip = unit;
}

int pd_read_wire(const pd_segment_info *segment, int64_t trip, int k) {
  int carried = segment->in_carried[k];
  return trip == 0 || carried == PD_NONE ? segment->in_wire[k] : segment->out_wire[carried];
}

static bool makes(const pd_segment_info *segment, int wire) {
  for (int k = 0; k < segment->out_count; k++) {
    if (segment->out_wire[k] == wire) return true;
  }
  return false;
}

/* Whether `segment`, whose first unit is `first`, reads from outside what `wire` holds before `unit`. */
static bool reads_later(const pd_segment_info *segment, int64_t first, int wire, int64_t unit) {
  for (int k = 0; k < segment->in_count; k++) {
    if (segment->in_wire[k] != wire) continue;
    int64_t last = segment->in_carried[k] == PD_NONE ? first + segment->trips - 1 : first;
    if (last >= unit) return true;
  }
  return false;
}

static bool is_carried(const pd_segment_info *segment, int out) {
  for (int k = 0; k < segment->in_count; k++) {
    if (segment->in_carried[k] == out) return true;
  }
  return false;
}

int pd_live_wires(const pd_program *program, int64_t unit, int *wires) {
  int count = 0;
  for (int wire = 0; wire < program->wire_count; wire++) {
    bool live = false;
    int64_t first = 0; /* first unit of segment s */
    int maker = PD_NONE;
    for (int s = 0; s < program->segment_count && !live; s++) {
      const pd_segment_info *segment = &program->segments[s];
      if (maker != PD_NONE) live = reads_later(segment, first, wire, unit);
      for (int k = 0; k < segment->out_count && first < unit; k++) {
        if (segment->out_wire[k] != wire) continue;
        if (first + segment->trips > unit) { /* inside its own loop: the next trip reads it, or nobody does */
          live = live || is_carried(segment, k);
          s = program->segment_count;
        }
        maker = s;
      }
      first += segment->trips;
    }
    if (live && count < PD_MAX_WIRES) wires[count] = wire;
    count += live;
  }
  return count;
}

bool pd_gradient_produced(const pd_program *program, int64_t unit, int wire) {
  if (!program->wires[wire].needs_grad) return false;
  int64_t first = 0;
  for (int s = 0; s < program->segment_count; s++) {
    const pd_segment_info *segment = &program->segments[s];
    for (int64_t trip = unit > first ? unit - first : 0; trip < segment->trips; trip++) {
      for (int k = 0; k < segment->in_count; k++) {
        if (segment->gives_d_in[k] && pd_read_wire(segment, trip, k) == wire) return true;
      }
      if (makes(segment, wire)) return false; /* what is read from here on is made anew */
      if (trip > 0) break;                    /* further trips read the same as this one */
    }
    first += segment->trips;
  }
  return false;
}

/* Last unit before `unit` that makes `wire`; PD_NONE if there is none. */
static int64_t maker_before(const pd_program *program, int64_t unit, int wire) {
  int64_t first = 0, found = PD_NONE;
  for (int s = 0; s < program->segment_count && first < unit; s++) {
    const pd_segment_info *segment = &program->segments[s];
    int64_t end = first + segment->trips;
    if (makes(segment, wire)) found = (end < unit ? end : unit) - 1;
    first = end;
  }
  return found;
}

/* ---- forward ---- */

static int64_t take(int64_t *used, int64_t bytes) {
  int64_t at = *used;
  *used += padded(bytes);
  return at;
}

static int live_at(const pd_program *program, int64_t unit, int *wires) {
  int count = pd_live_wires(program, unit, wires);
  return count < PD_MAX_WIRES ? count : PD_MAX_WIRES;
}

static void plan_forward(const pd_program *program, pd_chunk_plan *plan, int64_t *current) {
  pd_edge *previous = &plan->previous, *next = &plan->next;
  int64_t used = 0;
  for (int w = 0; w < program->wire_count; w++) current[w] = PD_NONE;
  previous->wire_count = live_at(program, plan->first_unit, previous->wire);
  for (int i = 0; i < previous->wire_count; i++) {
    int wire = previous->wire[i];
    current[wire] = previous->wire_at[i] = take(&used, pd_wire_bytes(program, wire));
  }
  for (int64_t u = 0; u < plan->unit_count; u++) {
    pd_unit_plan *unit = &plan->units[u];
    unit->unit = plan->first_unit + u;
    pd_unit_locate(program, unit->unit, &unit->segment, &unit->trip);
    const pd_segment_info *segment = &program->segments[unit->segment];
    for (int k = 0; k < segment->in_count; k++) unit->in[k] = current[pd_read_wire(segment, unit->trip, k)];
    for (int k = 0; k < segment->out_count; k++) {
      unit->out[k] = take(&used, pd_wire_bytes(program, segment->out_wire[k]));
    }
    for (int k = 0; k < segment->out_count; k++) current[segment->out_wire[k]] = unit->out[k];
    unit->act = program->recompute ? PD_NONE : take(&used, segment->act_bytes);
  }
  next->wire_count = live_at(program, plan->first_unit + plan->unit_count, next->wire);
  for (int i = 0; i < next->wire_count; i++) next->wire_at[i] = current[next->wire[i]];
  plan->activations.bytes = used;
}

/* ---- backward ---- */

typedef struct block {
  int64_t offset, bytes;
} block;

typedef struct space { /* first-fit: live blocks in ascending order */
  block *blocks;
  int64_t count, high; /* high: most bytes ever in use */
} space;

static int64_t space_take(space *s, int64_t bytes) {
  int64_t at = 0, i = 0;
  for (; i < s->count && s->blocks[i].offset - at < bytes; i++) at = s->blocks[i].offset + s->blocks[i].bytes;
  memmove(&s->blocks[i + 1], &s->blocks[i], (size_t)(s->count - i) * sizeof s->blocks[0]);
  s->blocks[i] = (block){at, bytes};
  s->count++;
  if (at + bytes > s->high) s->high = at + bytes;
  return at;
}

static void space_give(space *s, int64_t offset) {
  int64_t i = 0;
  while (i < s->count && s->blocks[i].offset != offset) i++;
  if (i == s->count) return;
  s->count--;
  memmove(&s->blocks[i], &s->blocks[i + 1], (size_t)(s->count - i) * sizeof s->blocks[0]);
}

/* Gradients that cross a boundary: slots in the order of the wires. Returns the slot's bytes. */
static int64_t plan_crossing(const pd_program *program, int64_t boundary, pd_edge *edge) {
  int64_t used = 0;
  edge->grad_count = 0;
  for (int i = 0; i < edge->wire_count; i++) {
    int wire = edge->wire[i];
    if (!program->wires[wire].needs_grad) continue;
    int g = edge->grad_count++;
    edge->grad_wire[g] = wire;
    edge->grad_at[g] = take(&used, pd_wire_bytes(program, wire));
    edge->grad_known[g] = pd_gradient_produced(program, boundary, wire);
    edge->grad_from[g] = (pd_place){PD_HOME_NONE, 0};
  }
  return used;
}

static int64_t sent_offset(const pd_edge *previous, int wire) {
  for (int g = 0; g < previous->grad_count; g++) {
    if (previous->grad_wire[g] == wire) return previous->grad_at[g];
  }
  return PD_NONE;
}

/* Where input_grad of `unit` writes the gradients of its wires in; `current` is where every wire's gradient is now. */
static void plan_unit_d_in(const pd_program *program, pd_chunk_plan *plan, pd_unit_plan *unit, pd_place *current,
                           space *inner) {
  const pd_segment_info *segment = &program->segments[unit->segment];
  int64_t temp = 0;
  for (int k = 0; k < segment->in_count; k++) {
    unit->d_in[k] = unit->sum[k] = (pd_place){PD_HOME_NONE, 0};
    if (!segment->gives_d_in[k]) continue;
    unit->backward = true;
    int wire = pd_read_wire(segment, unit->trip, k);
    bool wanted = program->wires[wire].needs_grad;
    if (!wanted || current[wire].home != PD_HOME_NONE) {
      if (wanted) unit->sum[k] = current[wire];
      unit->d_in[k] = (pd_place){PD_HOME_TEMP, take(&temp, pd_wire_bytes(program, wire))};
      continue;
    }
    if (maker_before(program, unit->unit, wire) < plan->first_unit) {
      current[wire] = (pd_place){PD_HOME_SENT, sent_offset(&plan->previous, wire)};
    } else {
      current[wire] = (pd_place){PD_HOME_INNER, space_take(inner, pd_wire_bytes(program, wire))};
    }
    unit->d_in[k] = current[wire];
  }
  if (temp > plan->temp_bytes) plan->temp_bytes = temp;
}

static void plan_unit_backward(const pd_program *program, pd_chunk_plan *plan, pd_unit_plan *unit, pd_place *current,
                               space *inner) {
  const pd_segment_info *segment = &program->segments[unit->segment];
  pd_place made[PD_MAX_WIRES];
  unit->backward = segment->has_weight_grad;
  for (int k = 0; k < segment->out_count; k++) {
    int wire = segment->out_wire[k];
    made[k] = current[wire];
    current[wire] = (pd_place){PD_HOME_NONE, 0};
    unit->d_out[k] = (pd_place){PD_HOME_NONE, 0};
    if (!segment->needs_d_out[k]) continue;
    unit->d_out[k] = made[k].home != PD_HOME_NONE ? made[k] : (pd_place){PD_HOME_ZERO, 0};
    int64_t bytes = pd_wire_bytes(program, wire);
    if (made[k].home == PD_HOME_NONE && bytes > plan->zero_bytes) plan->zero_bytes = bytes;
  }
  plan_unit_d_in(program, plan, unit, current, inner);
  bool until_w = plan->split && segment->has_weight_grad;
  for (int k = 0; k < segment->out_count; k++) {
    if (made[k].home == PD_HOME_INNER && !(until_w && segment->needs_d_out[k])) space_give(inner, made[k].offset);
  }
}

/* The stash lies at the front of the inner slot: one block for all units, or, until W, one for each. */
static int64_t plan_stash(const pd_program *program, pd_chunk_plan *plan) {
  int64_t used = 0, largest = 0;
  for (int64_t u = 0; u < plan->unit_count; u++) {
    pd_unit_plan *unit = &plan->units[u];
    int64_t bytes = padded(program->segments[unit->segment].stash_bytes);
    unit->stash = plan->split ? used : 0;
    used += bytes;
    if (bytes > largest) largest = bytes;
  }
  return plan->split ? used : largest;
}

static void shift_inner(pd_place *place, int64_t by) {
  if (place->home == PD_HOME_INNER) place->offset += by;
}

static void plan_backward(const pd_program *program, pd_chunk_plan *plan, pd_place *current, space *inner) {
  pd_edge *previous = &plan->previous, *next = &plan->next;
  plan->sent.bytes = plan_crossing(program, plan->first_unit, previous);
  plan->received.bytes = plan_crossing(program, plan->first_unit + plan->unit_count, next);
  plan->temp_bytes = plan->zero_bytes = 0;
  plan->backward = false;
  for (int w = 0; w < program->wire_count; w++) current[w] = (pd_place){PD_HOME_NONE, 0};
  for (int g = 0; g < next->grad_count; g++) {
    if (next->grad_known[g]) current[next->grad_wire[g]] = (pd_place){PD_HOME_RECEIVED, next->grad_at[g]};
  }
  for (int64_t u = plan->unit_count - 1; u >= 0; u--) {
    plan_unit_backward(program, plan, &plan->units[u], current, inner);
    plan->backward = plan->backward || plan->units[u].backward;
  }
  for (int g = 0; g < previous->grad_count; g++) previous->grad_from[g] = current[previous->grad_wire[g]];
  int64_t stash = plan_stash(program, plan);
  for (int64_t u = 0; u < plan->unit_count; u++) {
    pd_unit_plan *unit = &plan->units[u];
    for (int k = 0; k < PD_MAX_WIRES; k++) {
      shift_inner(&unit->d_out[k], stash);
      shift_inner(&unit->d_in[k], stash);
      shift_inner(&unit->sum[k], stash);
    }
  }
  plan->inner.bytes = stash + inner->high;
}

void pd_walk_plan(const pd_program *program, pd_chunk_plan *plan) {
  size_t wires = (size_t)program->wire_count + 1;
  int64_t *offsets = malloc(wires * sizeof *offsets);
  pd_place *places = malloc(wires * sizeof *places);
  space inner = {malloc(((size_t)plan->unit_count + 1) * PD_MAX_WIRES * sizeof(block)), 0, 0};
  if (offsets == NULL || places == NULL || inner.blocks == NULL) abort();
  plan_forward(program, plan, offsets);
  plan_backward(program, plan, places, &inner);
  free(offsets);
  free(places);
  free(inner.blocks);
}
