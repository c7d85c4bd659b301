/* The layout of a rank's memory, and what it stands on: actions as text, micro-batches in flight, live wires, the plan
 * of a chunk's walk. The programs are descriptions without functions, as the compiler has them. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "layout.h"

/* ---- actions ---- */

Test(schedule, action_text) {
  static const char *const texts[] = {"0F3",      "12I0",     "3B7",      "1W2",         "2SEND_F1",
                                      "3RECV_F1", "3SEND_B0", "2RECV_B0", "4REDUCE_GRAD"};
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    pd_action action;
    char text[48];
    cr_assert(pd_action_parse(texts[i], &action), "%s", texts[i]);
    pd_action_text(action, text);
    cr_assert_str_eq(text, texts[i]);
  }
}

Test(schedule, what_is_no_action) {
  static const char *const texts[] = {
      "",     "F3",   "0",    "0F",      "0G1",           "0f1",           " 0F1",
      "0F1 ", "-1F0", "0F-1", "0SEND_1", "0REDUCE_GRAD1", "99999999999F1", "0F2147483648",
      "0FF1", "0F1x"};
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    pd_action action = {PD_W, 7, 7};
    cr_assert_not(pd_action_parse(texts[i], &action), "%s", texts[i]);
    cr_assert(action.kind == PD_W && action.chunk == 7, "left alone by %s", texts[i]);
  }
}

/* ---- pipelines from text ---- */

typedef struct pipe {
  pd_pipeline pipeline;
  int rank_of[8];
  int64_t first_unit[9];
  pd_action_list ranks[4];
  pd_action actions[4][128];
} pipe;

/* One list of words a rank. */
static void pipe_make(pipe *p, int pp, int chunks, int64_t microbatches, const char *const *lists) {
  for (int r = 0; r < pp; r++) {
    p->ranks[r] = (pd_action_list){p->actions[r], 0};
    char words[1024];
    snprintf(words, sizeof words, "%s", lists[r]);
    for (char *word = strtok(words, " "); word != NULL; word = strtok(NULL, " ")) {
      cr_assert(pd_action_parse(word, &p->actions[r][p->ranks[r].count++]), "%s", word);
    }
  }
  p->pipeline = (pd_pipeline){.pp = pp,
                              .chunk_count = chunks,
                              .microbatches = microbatches,
                              .rank_of = p->rank_of,
                              .first_unit = p->first_unit,
                              .ranks = p->ranks};
}

Test(schedule, in_flight_counts_from_the_receive) {
  static pipe p;
  static const char *const lists[] = {"0F0 0SEND_F0 0F1 0SEND_F1 0F2 0SEND_F2 0RECV_B0 0B0 0RECV_B1 0B1 0RECV_B2 0B2",
                                      "1RECV_F0 1F0 1RECV_F1 1B0 1SEND_B0 1F1 1B1 1SEND_B1 1RECV_F2 1F2 1B2 1SEND_B2"};
  pipe_make(&p, 2, 2, 3, lists);
  p.rank_of[1] = 1;
  cr_assert_eq(pd_in_flight(&p.pipeline, 0), 3);
  cr_assert_eq(pd_in_flight(&p.pipeline, 1), 2);
}

Test(schedule, weights_end_what_is_in_flight) {
  static pipe p;
  static const char *const lists[] = {"0F0 0I0 0F1 0I1 0W0 0W1 0F2 0I2 0W2"};
  pipe_make(&p, 1, 1, 3, lists);
  cr_assert_eq(pd_in_flight(&p.pipeline, 0), 2);
}

Test(schedule, slots_of_micro_batches_out_of_order) {
  static pipe p;
  static const char *const lists[] = {"0F0 0F2 0B0 0B2 0F1 0B1 0F3 0B3"};
  pipe_make(&p, 1, 1, 4, lists);
  pd_window window = {0, 0, 1u << PD_F, 1u << PD_B};
  cr_assert_eq(pd_window_peak(&p.pipeline, 0, window), 2);
  cr_assert_eq(pd_window_slots(&p.pipeline, 0, window), 3); /* 0 and 2 may not share slot 0 of 2 */
  cr_assert_eq(pd_in_flight(&p.pipeline, 0), 2);
}

/* ---- a program: embed, a loop of `trips`, head; wires 0 x (carried), 1 skip (captured by the loop, read by head),
 * 2 the loop's out, 3 made anew in every trip. The embedding's matrix is tied to the head's. ---- */

typedef struct sample {
  pd_program program;
  pd_segment_info segments[3];
  pd_wire_info wires[4];
  pd_param_info params[3];
  pd_data_info data[2];
} sample;

static void sample_make(sample *s, int64_t trips, int64_t elements, int64_t weights, int64_t tied) {
  memset(s, 0, sizeof *s);
  s->segments[0] = (pd_segment_info){.name = "embed",
                                     .trips = 1,
                                     .out_count = 2,
                                     .shared_count = 1,
                                     .out_wire = {0, 1},
                                     .needs_d_out = {true, true},
                                     .shared = {0},
                                     .act_bytes = 128,
                                     .stash_bytes = 64,
                                     .has_weight_grad = true,
                                     .uses_data = {true, false}};
  s->segments[1] = (pd_segment_info){.name = "loop",
                                     .trips = trips,
                                     .in_count = 2,
                                     .out_count = 2,
                                     .in_wire = {0, 1},
                                     .in_carried = {0, PD_NONE},
                                     .out_wire = {2, 3},
                                     .needs_d_out = {true, true},
                                     .gives_d_in = {true, true},
                                     .act_bytes = 256,
                                     .stash_bytes = 192,
                                     .scratch_bytes = 320,
                                     .tp_elements = elements,
                                     .weight_elements = weights,
                                     .trained_elements = weights,
                                     .has_weight_grad = true};
  s->segments[2] = (pd_segment_info){.name = "head",
                                     .trips = 1,
                                     .in_count = 3,
                                     .shared_count = 1,
                                     .in_wire = {2, 1, 3},
                                     .in_carried = {PD_NONE, PD_NONE, PD_NONE},
                                     .gives_d_in = {true, true, true},
                                     .shared = {0},
                                     .act_bytes = 64,
                                     .stash_bytes = 64,
                                     .has_weight_grad = true,
                                     .uses_data = {false, true}};
  for (int w = 0; w < 4; w++) s->wires[w] = (pd_wire_info){.name = "w", .elements = elements, .needs_grad = true};
  s->params[0] = (pd_param_info){
      .name = "tied", .rank = 1, .shape = {tied}, .split_axis = PD_NONE, .segment = PD_NONE, .elements = tied};
  s->params[1] = (pd_param_info){.name = "loop.{}.w",
                                 .rank = 1,
                                 .shape = {weights},
                                 .split_axis = PD_NONE,
                                 .segment = 1,
                                 .per_trip = true,
                                 .elements = weights};
  s->params[2] = (pd_param_info){
      .name = "unused", .rank = 1, .shape = {7}, .split_axis = PD_NONE, .segment = PD_NONE, .elements = 7};
  for (int d = 0; d < 2; d++)
    s->data[d] =
        (pd_data_info){.name = "d", .is_integer = true, .rank = 1, .shape = {5}, .elements = 5, .split_axis = PD_NONE};
  s->program = (pd_program){.real_bytes = 4,
                            .pp = 1,
                            .dp = 2,
                            .tp = 1,
                            .chunks = 1,
                            .batch = 8,
                            .microbatch = 1,
                            .microbatches = 4,
                            .segment_count = 3,
                            .wire_count = 4,
                            .param_count = 3,
                            .data_count = 2,
                            .segments = s->segments,
                            .wires = s->wires,
                            .params = s->params,
                            .data = s->data,
                            .loss_segment = 2,
                            .logits_segment = PD_NONE,
                            .optimizer = PD_ADAMW};
}

static const char *const one_rank[] = {"0F0 0B0 0F1 0B1 0F2 0B2 0F3 0B3 0REDUCE_GRAD"};
static const char *const two_ranks[] = {
    "0F0 0SEND_F0 0F1 0SEND_F1 0RECV_B0 0B0 0F2 0SEND_F2 0RECV_B1 0B1 0F3 0SEND_F3 0RECV_B2 0B2 0RECV_B3 0B3",
    "1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1 1RECV_F2 1F2 1B2 1SEND_B2 1RECV_F3 1F3 1B3 1SEND_B3"};

static void on_one_rank(pipe *p, const sample *s) {
  pipe_make(p, 1, 1, 4, one_rank);
  p->first_unit[1] = pd_unit_count(&s->program);
}

static void on_two_ranks(pipe *p, const sample *s, int64_t cut) {
  pipe_make(p, 2, 2, 4, two_ranks);
  p->rank_of[1] = 1;
  p->first_unit[1] = cut;
  p->first_unit[2] = pd_unit_count(&s->program);
}

Test(layout, units) {
  static sample s;
  sample_make(&s, 6, 16, 32, 16);
  cr_assert_eq(pd_unit_count(&s.program), 8);
  int segment;
  int64_t trip;
  pd_unit_locate(&s.program, 0, &segment, &trip);
  cr_assert(segment == 0 && trip == 0);
  pd_unit_locate(&s.program, 6, &segment, &trip);
  cr_assert(segment == 1 && trip == 5);
  pd_unit_locate(&s.program, 7, &segment, &trip);
  cr_assert(segment == 2 && trip == 0);
}

static void expect_live(const sample *s, int64_t unit, int count, int a, int b, int c) {
  int wires[PD_MAX_WIRES];
  int expected[3] = {a, b, c};
  cr_assert_eq(pd_live_wires(&s->program, unit, wires), count, "boundary %d", (int)unit);
  for (int i = 0; i < count; i++) cr_assert_eq(wires[i], expected[i], "boundary %d", (int)unit);
}

Test(layout, live_wires) {
  static sample s;
  sample_make(&s, 3, 16, 32, 16);
  expect_live(&s, 0, 0, 0, 0, 0);
  expect_live(&s, 1, 2, 0, 1, 0); /* x and the skip go into the loop */
  expect_live(&s, 2, 2, 1, 2, 0); /* x is dead, the loop's own out travels */
  expect_live(&s, 3, 2, 1, 2, 0);
  expect_live(&s, 4, 3, 1, 2, 3); /* what the last trip made anew is read by the head */
  expect_live(&s, 5, 0, 0, 0, 0);
}

Test(layout, a_captured_wire_that_is_carried_too_stays_live) {
  static sample s;
  sample_make(&s, 3, 16, 32, 16);
  s.segments[1].in_wire[1] = 0; /* x starts the chain and is read in every trip */
  s.segments[2].in_wire[1] = 2;
  expect_live(&s, 1, 1, 0, 0, 0);
  expect_live(&s, 3, 2, 0, 2, 0);
  expect_live(&s, 4, 2, 2, 3, 0);
}

Test(layout, gradients_that_are_produced) {
  static sample s;
  sample_make(&s, 3, 16, 32, 16);
  cr_assert(pd_gradient_produced(&s.program, 1, 0));
  cr_assert_not(pd_gradient_produced(&s.program, 2, 0)); /* only trip 0 reads it */
  cr_assert(pd_gradient_produced(&s.program, 2, 2));
  s.segments[2].gives_d_in[0] = false;
  cr_assert_not(pd_gradient_produced(&s.program, 4, 2));
  cr_assert(pd_gradient_produced(&s.program, 3, 2)); /* the last trip still gives one */
  s.wires[1].needs_grad = false;
  cr_assert_not(pd_gradient_produced(&s.program, 1, 1));
}

/* ---- offsets ---- */

typedef struct span {
  int64_t from, to;
} span;
typedef struct spans {
  span at[4096];
  int count;
} spans;

static void use(spans *all, int64_t offset, int64_t bytes) {
  if (offset == PD_NONE || bytes == 0) return;
  cr_assert_eq(offset % 64, 0);
  cr_assert_lt(all->count, 4096);
  all->at[all->count++] = (span){offset, offset + bytes};
}

static int by_start(const void *a, const void *b) {
  const span *x = a, *y = b;
  return (x->from > y->from) - (x->from < y->from);
}

/* Nothing that a rank holds at one time shares a byte; everything together is the whole allocation. */
static void check_tight(const pd_program *program, const pd_layout *layout) {
  static spans all;
  all.count = 0;
  int64_t shared_inner = 0, real = program->real_bytes;
  for (int c = 0; c < layout->chunk_count; c++) {
    const pd_chunk_plan *plan = &layout->chunks[c];
    const pd_slots *slots[4] = {&plan->activations, &plan->received, &plan->sent, &plan->inner};
    for (int i = 0; i < (plan->split ? 4 : 3); i++) use(&all, slots[i]->base, slots[i]->bytes * slots[i]->count);
    if (!plan->split && plan->inner.bytes > shared_inner) shared_inner = plan->inner.bytes;
    for (int64_t u = 0; u < plan->unit_count; u++) {
      const pd_unit_plan *unit = &plan->units[u];
      const pd_segment_info *segment = &program->segments[unit->segment];
      int64_t trained = (segment->trained_elements * real + 63) / 64 * 64;
      use(&all, unit->weights, (segment->weight_elements * real + 63) / 64 * 64);
      use(&all, unit->gradients, trained);
      use(&all, unit->moments[0], trained);
      use(&all, unit->moments[1], trained);
    }
  }
  for (int c = 0; c < layout->chunk_count; c++) {
    if (!layout->chunks[c].split) use(&all, c == 0 ? layout->chunks[c].inner.base : PD_NONE, shared_inner);
  }
  for (int t = 0; t < layout->tied_count; t++) {
    const pd_tied_plan *tied = &layout->tied[t];
    int64_t bytes = (program->params[tied->param].elements * real + 63) / 64 * 64;
    use(&all, tied->weights, bytes);
    for (int i = 0; i < tied->slot_count; i++) use(&all, tied->slots[i].at, bytes);
    for (int i = 0; i < 2; i++) use(&all, tied->moments[i], bytes);
  }
  for (int d = 0; d < program->data_count; d++) {
    use(&all, layout->data[d], layout->data_stride[d] * program->microbatches);
  }
  /* blocks of the workspace: to the next */
  int64_t blocks[] = {layout->scratch, layout->act, layout->temp, layout->zero, layout->tensor};
  for (size_t i = 0; i + 1 < sizeof blocks / sizeof blocks[0]; i++) use(&all, blocks[i], blocks[i + 1] - blocks[i]);
  use(&all, layout->tensor, (layout->tensor_elements * real + 63) / 64 * 64);
  use(&all, layout->reductions[0], 2 * (layout->reductions[1] - layout->reductions[0]));
  int64_t piece = (layout->tied_piece + 63) / 64 * 64;
  use(&all, layout->tied_sum[0], piece);
  use(&all, layout->tied_receive, piece);
  qsort(all.at, (size_t)all.count, sizeof(span), by_start);
  int64_t end = 0;
  for (int i = 0; i < all.count; i++) {
    cr_assert_eq(all.at[i].from, end, "a gap or an overlap at byte %lld", (long long)end);
    end = all.at[i].to;
  }
  cr_assert_eq(end, pd_layout_total(layout));
  int64_t sum = 0;
  for (int k = 0; k < PD_MEMORY_CLASSES; k++) sum += pd_layout_bytes(layout, (pd_memory_class)k);
  cr_assert_eq(sum, end);
}

Test(layout, nothing_overlaps_and_nothing_is_wasted) {
  static sample s;
  static pipe p;
  for (int variant = 0; variant < 8; variant++) {
    sample_make(&s, 6, 17, 33, 29);
    s.program.recompute = variant & 1;
    s.program.tp = variant & 2 ? 4 : 1;
    if (variant & 4) s.program.optimizer = PD_SGD;
    on_one_rank(&p, &s);
    pd_layout *layout = pd_layout_new(&s.program, &p.pipeline, 0);
    check_tight(&s.program, layout);
    pd_layout_free(layout);
    for (int64_t cut = 0; cut <= 8; cut++) {
      on_two_ranks(&p, &s, cut);
      s.program.pp = 2;
      for (int rank = 0; rank < 2; rank++) {
        layout = pd_layout_new(&s.program, &p.pipeline, rank);
        check_tight(&s.program, layout);
        pd_layout_free(layout);
      }
    }
  }
}

Test(layout, split_backwards_keep_what_weights_read) {
  static sample s;
  static pipe p;
  static const char *const split[] = {"0F0 0I0 0F1 0I1 0F2 0I2 0W0 0W1 0W2 0F3 0I3 0W3"};
  sample_make(&s, 6, 16, 32, 16);
  pipe_make(&p, 1, 1, 4, split);
  p.first_unit[1] = 8;
  pd_layout *layout = pd_layout_new(&s.program, &p.pipeline, 0);
  const pd_chunk_plan *plan = &layout->chunks[0];
  check_tight(&s.program, layout);
  cr_assert_eq(plan->inner.count, 3);
  /* stash of every unit; a gradient of every version of x and of its start, one of the skip, one of the last wire */
  cr_assert_eq(plan->inner.bytes, 64 + 6 * 192 + 64 + (6 + 1 + 1 + 1) * 64);
  pd_layout_free(layout);
  on_one_rank(&p, &s);
  layout = pd_layout_new(&s.program, &p.pipeline, 0);
  /* fused: one stash; the skip's gradient, and two of x in turn; the last wire's is done when the third would be made
   */
  cr_assert_eq(layout->chunks[0].inner.bytes, 192 + 4 * 64);
  pd_layout_free(layout);
}

Test(layout, memory_does_not_grow_with_micro_batches) {
  static sample s;
  static pipe p;
  static const char *const six[] = {"0F0 0B0 0F1 0B1 0F2 0B2 0F3 0B3 0F4 0B4 0F5 0B5"};
  sample_make(&s, 6, 16, 32, 16);
  on_one_rank(&p, &s);
  pd_layout *four = pd_layout_new(&s.program, &p.pipeline, 0);
  s.program.microbatches = 6;
  pipe_make(&p, 1, 1, 6, six);
  p.first_unit[1] = 8;
  pd_layout *layout = pd_layout_new(&s.program, &p.pipeline, 0);
  cr_assert_eq(pd_layout_total(layout) - pd_layout_total(four), 2 * 2 * 64); /* rows of data alone */
  pd_layout_free(layout);
  pd_layout_free(four);
}

Test(layout, recompute_keeps_one_act_block) {
  static sample s;
  static pipe p;
  sample_make(&s, 6, 16, 32, 16);
  on_one_rank(&p, &s);
  pd_layout *kept = pd_layout_new(&s.program, &p.pipeline, 0);
  s.program.recompute = true;
  pd_layout *again = pd_layout_new(&s.program, &p.pipeline, 0);
  cr_assert_eq(pd_layout_bytes(kept, PD_MEMORY_ACTIVATIONS) - pd_layout_bytes(again, PD_MEMORY_ACTIVATIONS),
               128 + 6 * 256 + 64);
  cr_assert_eq(pd_layout_bytes(again, PD_MEMORY_WORKSPACE) - pd_layout_bytes(kept, PD_MEMORY_WORKSPACE), 256);
  pd_layout_free(kept);
  pd_layout_free(again);
}

Test(layout, tied_parameters) {
  static sample s;
  static pipe p;
  sample_make(&s, 6, 16, 32, 16);
  s.program.pp = 2;
  on_two_ranks(&p, &s, 4);
  pd_layout *first = pd_layout_new(&s.program, &p.pipeline, 0), *last = pd_layout_new(&s.program, &p.pipeline, 1);
  cr_assert_eq(first->tied_count, 1);
  cr_assert_eq(last->tied_count, 2); /* and the one nobody uses */
  cr_assert_eq(first->tied[0].slot_count, 2);
  cr_assert(first->tied[0].slots[0].unit == 0 && first->tied[0].slots[1].unit == 7);
  cr_assert(first->tied[0].slots[0].at != PD_NONE && first->tied[0].slots[1].at == PD_NONE);
  cr_assert(last->tied[0].slots[0].at == PD_NONE && last->tied[0].slots[1].at == last->tied[0].gradients);
  cr_assert(last->tied[1].param == 2 && !last->tied[1].used && last->tied[1].gradients != PD_NONE);
  cr_assert_eq(first->tied_piece, 64);
  pd_layout_free(first);
  pd_layout_free(last);
  s.params[0].frozen = true;
  last = pd_layout_new(&s.program, &p.pipeline, 1);
  cr_assert(last->tied[0].gradients == PD_NONE && last->tied[0].moments[0] == PD_NONE && last->tied_piece == 0);
  check_tight(&s.program, last);
  pd_layout_free(last);
}

/* ---- buckets ---- */

/* Every gradient of a unit lies in exactly one bucket, in the order in which they become final. */
static void check_buckets_of(const pd_program *program, const pd_layout *layout, int expected, int64_t most) {
  const pd_bucket *buckets;
  int count = pd_layout_buckets(layout, &buckets);
  if (expected >= 0) cr_assert_eq(count, expected, "%d buckets", count);
  int64_t covered = 0, held = 0;
  for (int b = 0; b < count; b++) {
    cr_assert_leq(buckets[b].elements * program->real_bytes, most);
    cr_assert_gt(buckets[b].elements, 0);
    cr_assert_eq(buckets[b].chunk == PD_NONE, buckets[b].param != PD_NONE);
    if (b > 0) cr_assert(buckets[b].chunk == PD_NONE || buckets[b - 1].chunk != PD_NONE, "tied ones are last");
    if (b > 0 && buckets[b].chunk != PD_NONE && buckets[b].chunk == buckets[b - 1].chunk) {
      cr_assert_leq(buckets[b].unit, buckets[b - 1].unit);
    }
    for (int a = 0; a < b; a++) {
      cr_assert(buckets[a].offset + buckets[a].elements * program->real_bytes <= buckets[b].offset ||
                buckets[b].offset + buckets[b].elements * program->real_bytes <= buckets[a].offset);
    }
    if (buckets[b].chunk != PD_NONE) covered += buckets[b].elements * program->real_bytes;
  }
  for (int c = 0; c < layout->chunk_count; c++) {
    for (int64_t u = 0; u < layout->chunks[c].unit_count; u++) {
      int segment = layout->chunks[c].units[u].segment;
      held += (program->segments[segment].trained_elements * program->real_bytes + 63) / 64 * 64;
    }
  }
  cr_assert_eq(covered, held);
}

static void check_buckets(const pd_program *program, const pd_layout *layout, int expected) {
  check_buckets_of(program, layout, expected, PD_BUCKET_BYTES);
}

Test(layout, small_units_share_a_bucket_and_large_ones_are_cut) {
  static sample s;
  static pipe p;
  const int64_t mib = 1 << 20;
  sample_make(&s, 6, 16, 32, 16);
  on_one_rank(&p, &s);
  pd_layout *layout = pd_layout_new(&s.program, &p.pipeline, 0);
  check_buckets(&s.program, layout, 2); /* all units, the tied one */
  pd_layout_free(layout);
  sample_make(&s, 6, 16, 2 * mib, 16); /* 8 MiB a unit: two in a bucket */
  layout = pd_layout_new(&s.program, &p.pipeline, 0);
  check_buckets(&s.program, layout, 4);
  const pd_bucket *buckets;
  pd_layout_buckets(layout, &buckets);
  cr_assert(buckets[0].unit == 5 && buckets[1].unit == 3 && buckets[2].unit == 1);
  pd_layout_free(layout);
  sample_make(&s, 6, 16, 10 * mib, 5 * mib); /* 40 MiB a unit: three pieces; the tied one: two */
  layout = pd_layout_new(&s.program, &p.pipeline, 0);
  check_buckets(&s.program, layout, 20);
  pd_layout_buckets(layout, &buckets);
  cr_assert(buckets[0].unit == 6 && buckets[2].unit == 6 && buckets[3].unit == 5);
  pd_layout_free(layout);
}

Test(layout, buckets_of_a_huge_model_are_larger) {
  static sample s;
  static pipe p;
  sample_make(&s, 6, 16, (int64_t)PD_BUCKET_BYTES / 4 * 1000, 16); /* 6000 of the usual size */
  on_one_rank(&p, &s);
  pd_layout *layout = pd_layout_new(&s.program, &p.pipeline, 0);
  check_buckets_of(&s.program, layout, 6 * 167 + 1, 6 * PD_BUCKET_BYTES); /* 1000 / 6 a unit, the tied one */
  pd_layout_free(layout);
}

Test(layout, buckets_follow_the_last_weight_gradients) {
  static sample s;
  static pipe p;
  static const char *const there_and_back[] = {"0F0 1F0 1B0 0B0 0F1 1F1 1B1 0B1", "0F0"};
  sample_make(&s, 6, 16, 32, 16);
  s.program.microbatches = 2;
  pipe_make(&p, 1, 2, 2, there_and_back);
  p.first_unit[1] = 4;
  p.first_unit[2] = 8;
  pd_layout *layout = pd_layout_new(&s.program, &p.pipeline, 0);
  const pd_bucket *buckets;
  check_buckets(&s.program, layout, 3);
  pd_layout_buckets(layout, &buckets);
  cr_assert(buckets[0].chunk == 1 && buckets[1].chunk == 0 && buckets[2].param == 0);
  check_tight(&s.program, layout);
  pd_layout_free(layout);
}

/* ---- two copies of the model ---- */

Test(layout, each_copy_has_its_own_of_everything) {
  static sample s;
  static pipe p;
  static const char *const both_ways[] = {"0F0 3F1 0B0 3B1", "2F1 1F0 1B0 2B1"};
  sample_make(&s, 6, 16, 32, 16);
  s.program.pp = 2;
  s.program.microbatches = 2;
  pipe_make(&p, 2, 4, 2, both_ways);
  p.pipeline.copies = 2;
  p.rank_of[1] = p.rank_of[2] = 1;
  p.first_unit[1] = 3;
  p.first_unit[2] = 8;
  pd_layout *layout = pd_layout_new(&s.program, &p.pipeline, 0);
  cr_assert_eq(layout->chunk_count, 2);
  cr_assert(layout->chunks[1].first_unit == 3 && layout->chunks[1].unit_count == 5);
  cr_assert(layout->chunks[0].previous.peer == PD_NONE && layout->chunks[0].next.peer == 1);
  cr_assert(layout->chunks[1].previous.peer == 1 && layout->chunks[1].next.peer == PD_NONE);
  cr_assert_eq(layout->tied[0].slot_count, 4); /* two units in two copies, half of them here */
  cr_assert_neq(layout->chunks[0].units[0].shared_gradients[0], layout->chunks[1].units[4].shared_gradients[0]);
  check_tight(&s.program, layout);
  pd_layout_free(layout);
}

Test(layout, sums_of_halves) {
  static sample s;
  static pipe p;
  sample_make(&s, 6, 16, 32, 16);
  on_one_rank(&p, &s);
  pd_layout *one = pd_layout_new(&s.program, &p.pipeline, 0);
  p.pipeline.accumulators = 2;
  pd_layout *two = pd_layout_new(&s.program, &p.pipeline, 0);
  cr_assert(one->sums == 1 && two->sums == 2 && two->sum_bytes == pd_layout_bytes(one, PD_MEMORY_GRADIENTS));
  for (pd_memory_class kind = 0; kind < PD_MEMORY_CLASSES; kind++) {
    int64_t sets = kind == PD_MEMORY_GRADIENTS ? 2 : 1;
    cr_assert_eq(pd_layout_bytes(two, kind), sets * pd_layout_bytes(one, kind));
  }
  pd_layout_free(one);
  pd_layout_free(two);
}

/* ---- versions of the weights ---- */

Test(layout, versions_of_the_weights) {
  static sample s;
  static pipe p;
  sample_make(&s, 6, 16, 32, 16);
  static const char *const list[] = {"0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3"};
  pipe_make(&p, 1, 1, 4, list);
  p.first_unit[1] = pd_unit_count(&s.program);
  pd_layout *one = pd_layout_new(&s.program, &p.pipeline, 0);
  p.pipeline.step = 1;
  pd_layout *many = pd_layout_new(&s.program, &p.pipeline, 0);
  cr_assert_eq(many->versions, 2); /* all begin with the first, and the newest */
  cr_assert_eq(many->version_bytes, pd_layout_bytes(one, PD_MEMORY_PARAMETERS));
  cr_assert_eq(pd_layout_total(many), pd_layout_total(one) + many->version_bytes);
  cr_assert_eq(many->base[PD_MEMORY_GRADIENTS], 2 * many->version_bytes);
  pd_layout_free(one);
  pd_layout_free(many);
}

/* In bf16 the optimizer has the newest version in f32; with a delay all of them, which a checkpoint holds. Squares and
 * counts of targets are those of each update of the list. */
Test(layout, versions_in_bf16) {
  static sample s;
  static pipe p;
  sample_make(&s, 6, 16, 32, 16);
  s.program.target = PD_TARGET_CUDA;
  s.program.real_bytes = 2;
  static const char *const list[] = {"0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3"};
  pipe_make(&p, 1, 1, 4, list);
  p.first_unit[1] = pd_unit_count(&s.program);
  pd_layout *one = pd_layout_new(&s.program, &p.pipeline, 0);
  cr_assert(one->masters == 1 && one->master == one->version_bytes);
  cr_assert_eq(pd_layout_bytes(one, PD_MEMORY_PARAMETERS), 3 * one->version_bytes);
  p.pipeline.step = 1;
  pd_layout *newest = pd_layout_new(&s.program, &p.pipeline, 0);
  cr_assert(newest->versions == 2 && newest->masters == 1 && newest->master == 2 * one->version_bytes);
  cr_assert_eq(pd_layout_bytes(newest, PD_MEMORY_PARAMETERS), 4 * one->version_bytes);
  cr_assert_geq(newest->partial_squares - newest->squares, 4 * (one->partial_squares - one->squares) - 3 * 64);
  p.pipeline.delay = 1;
  pd_layout *all = pd_layout_new(&s.program, &p.pipeline, 0);
  cr_assert(all->versions == 2 && all->masters == 2);
  cr_assert_eq(pd_layout_bytes(all, PD_MEMORY_PARAMETERS), 6 * one->version_bytes);
  pd_layout_free(one);
  pd_layout_free(newest);
  pd_layout_free(all);
}

/* ---- sizes ---- */

Test(layout, sizes_beyond_32_bits) {
  static sample s;
  static pipe p;
  const int64_t wire = INT64_C(2048) * 12288, weights = INT64_C(12) * 12288 * 12288, tied = INT64_C(50304) * 12288;
  sample_make(&s, 96, wire, weights, tied);
  on_one_rank(&p, &s);
  pd_layout *layout = pd_layout_new(&s.program, &p.pipeline, 0);
  cr_assert_eq(pd_layout_bytes(layout, PD_MEMORY_PARAMETERS), 4 * (96 * weights + tied) + 64);
  cr_assert_eq(pd_layout_bytes(layout, PD_MEMORY_OPTIMIZER), 8 * (96 * weights + tied) + 128);
  cr_assert_eq(pd_layout_bytes(layout, PD_MEMORY_GRADIENTS), 4 * (96 * weights + 2 * tied) + 64);
  check_buckets_of(&s.program, layout, -1, INT64_C(41) * PD_BUCKET_BYTES); /* 650 GiB of gradients on one rank */
  check_tight(&s.program, layout);
  pd_layout_free(layout);
}

Test(layout, scratch_of_a_sum) {
  cr_assert_eq(pd_sum_scratch(100, 1), 0);
  cr_assert_eq(pd_sum_scratch(100, 2), 100);
  cr_assert_eq(pd_sum_scratch(100, 3), 68);
  cr_assert_eq(pd_sum_scratch(100, 4), 75);
  cr_assert_eq(pd_sum_scratch(0, 4), 0);
}

/* ---- the walk ---- */

/* Forwards, a wire that only passes through a chunk keeps its buffer; backwards, sums go to where they leave from. */
Test(walk, a_wire_that_passes) {
  static sample s;
  static pipe p;
  sample_make(&s, 6, 16, 32, 16);
  s.segments[1].gives_d_in[1] = false; /* the loop reads the skip, but gives no gradient for it */
  on_two_ranks(&p, &s, 7);
  pd_layout *layout = pd_layout_new(&s.program, &p.pipeline, 1);
  const pd_chunk_plan *head = &layout->chunks[0];
  cr_assert_eq(head->previous.wire_count, 3);
  cr_assert_eq(head->units[0].in[1], head->previous.wire_at[0]);
  for (int k = 0; k < 3; k++) cr_assert_eq(head->units[0].d_in[k].home, PD_HOME_SENT);
  cr_assert_eq(head->sent.bytes, 3 * 64);
  pd_layout_free(layout);

  static const char *const three[] = {"0F0 0B0", "1F0 1B0", "2F0 2B0"};
  pipe_make(&p, 3, 3, 1, three);
  for (int c = 0; c < 3; c++) p.rank_of[c] = c;
  p.first_unit[1] = 3;
  p.first_unit[2] = 5;
  p.first_unit[3] = 8;
  s.program.pp = 3;
  s.program.microbatches = 1;
  layout = pd_layout_new(&s.program, &p.pipeline, 1);
  const pd_chunk_plan *middle = &layout->chunks[0];
  cr_assert(middle->previous.wire_count == 2 && middle->next.wire_count == 2);
  cr_assert(middle->previous.wire[0] == 1 && middle->next.wire[0] == 1);
  cr_assert_eq(middle->previous.wire_at[0], middle->next.wire_at[0], "the skip is relayed from where it came");
  cr_assert_neq(middle->previous.wire_at[1], middle->next.wire_at[1], "the loop's wire is another one");
  cr_assert_eq(middle->previous.grad_from[0].home, PD_HOME_RECEIVED);
  cr_assert_eq(middle->previous.grad_from[1].home, PD_HOME_SENT);
  cr_assert_eq(middle->units[1].d_out[1].home, PD_HOME_ZERO, "no trip but the last makes what the head reads");
  pd_layout_free(layout);
}

Test(walk, contributions_are_added_backwards) {
  static sample s;
  static pipe p;
  sample_make(&s, 3, 16, 32, 16);
  on_one_rank(&p, &s);
  pd_layout *layout = pd_layout_new(&s.program, &p.pipeline, 0);
  const pd_unit_plan *units = layout->chunks[0].units;
  pd_place skip = units[4].d_in[1]; /* the head's gradient of the skip is the first: it is written in place */
  cr_assert_eq(skip.home, PD_HOME_INNER);
  for (int u = 3; u >= 1; u--) {
    cr_assert_eq(units[u].d_in[1].home, PD_HOME_TEMP);
    cr_assert(units[u].sum[1].home == PD_HOME_INNER && units[u].sum[1].offset == skip.offset);
    cr_assert_eq(units[u].d_in[0].home, PD_HOME_INNER);
    cr_assert_eq(units[u].sum[0].home, PD_HOME_NONE);
    cr_assert_neq(units[u].d_in[0].offset, units[u].d_out[0].offset);
  }
  cr_assert(units[0].d_out[1].home == PD_HOME_INNER && units[0].d_out[1].offset == skip.offset);
  cr_assert_eq(units[0].d_out[0].offset, units[1].d_in[0].offset);
  pd_layout_free(layout);
}
