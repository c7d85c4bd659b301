/* The engine against itself. Started with pp * dp * tp ranks, every rank also runs the same model alone in its pipeline
 * (pp = 1), which must give the same bits whatever the schedule, and quite alone, which must give the same numbers.
 * usage: engine_program PP DP TP BATCH MICROBATCH; prints "N passed, N failed". */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "engine_model.h"
#include "engine_schedules.h"
#include "watch.h"

enum { STEPS = 3, PARAMS = 9 };

/* What a run leaves behind. */
typedef struct record {
  double results[STEPS][2], norm[STEPS], evaluated[2][2];
  pd_part parts[PARAMS][LAYERS]; /* weights after the last step, gradients of the first: copies, NULL where not held */
} record;

static pd_world world;
static int passed, failed;
static const char *context = "";

static void check(bool good, const char *what) {
  good ? passed++ : failed++;
  if (!good) printf("FAILED rank %d, %s: %s\n", world.rank, context, what);
}

static void *copy_of(const void *from, int64_t elements) {
  if (from == NULL) return NULL;
  void *copy = malloc((size_t)elements * sizeof(REAL) + 1);
  if (copy == NULL) abort();
  memcpy(copy, from, (size_t)elements * sizeof(REAL));
  return copy;
}

static int64_t trips_of(int p) {
  return p >= 2 && p < 5 ? LAYERS : 1;
}

static void forget(record *r) {
  for (int p = 0; p < PARAMS; p++) {
    for (int64_t t = 0; t < trips_of(p); t++) {
      free(r->parts[p][t].weights);
      free(r->parts[p][t].gradients);
    }
  }
}

static double inverse_count(uint64_t step, int64_t batch) {
  int64_t count = 0;
  for (int64_t s = 0; s < batch; s++) {
    for (int p = 0; p < SEQ; p++) count += model_target(step, s, p) != PD_IGNORE;
  }
  return count == 0 ? 0 : 1 / (double)count;
}

static void fill_rows(pd_engine *engine, const pd_program *program, uint64_t step) {
  for (int64_t mb = 0; mb < program->microbatches; mb++) {
    int64_t first = pd_engine_first_sample(engine, mb);
    int32_t *tokens = pd_engine_data(engine, 0, mb), *targets = pd_engine_data(engine, 1, mb);
    for (int64_t i = 0; i < program->microbatch * SEQ; i++) {
      if (tokens != NULL) tokens[i] = model_token(step, first + i / SEQ, (int)(i % SEQ));
      if (targets != NULL) targets[i] = model_target(step, first + i / SEQ, (int)(i % SEQ));
    }
  }
}

/* Whatever is read before it is written now gives a loss that is not a number. */
static void poison(pd_engine *engine) {
  const pd_layout *layout = pd_engine_layout(engine);
  const pd_chunk_plan *chunk = &layout->chunks[0];
  char *memory = NULL; /* its start, found from something inside */
  for (int t = 0; t < layout->tied_count; t++) {
    memory = (char *)pd_engine_part(engine, layout->tied[t].param, 0).weights - layout->tied[t].weights;
  }
  for (int d = 0; d < 2; d++) {
    if (pd_engine_uses_data(engine, d)) memory = (char *)pd_engine_data(engine, d, 0) - layout->data[d];
  }
  if (memory == NULL) return;
  for (int c = 0; c < layout->chunk_count; c++, chunk++) {
    const pd_slots *all[4] = {&chunk->activations, &chunk->received, &chunk->sent, &chunk->inner};
    for (int i = 0; i < 4; i++) memset(memory + all[i]->base, 0xff, (size_t)(all[i]->bytes * all[i]->count));
  }
  memset(memory + layout->scratch, 0xff, (size_t)(layout->zero - layout->scratch)); /* scratch, act, temp */
}

/* Training with an evaluation pass in the middle. */
static record run(const model *m, const schedule *s, pd_world *in, const char *kernels) {
  record r;
  memset(&r, 0, sizeof r);
  const pd_program *program = &m->program;
  model_use(m);
  pd_engine *engine = pd_engine_new(program, &s->pipeline, in, kernels);
  int64_t planned = 0;
  pd_layout *layout = pd_layout_new(program, &s->pipeline, in->pp_rank);
  for (int k = 0; k < PD_MEMORY_CLASSES; k++) planned += pd_layout_bytes(layout, (pd_memory_class)k);
  check(planned == pd_engine_allocated_bytes(engine) && planned == pd_layout_total(layout), "planned bytes");
  pd_layout_free(layout);
  pd_engine_initialise(engine, 1234);
  for (int step = 0; step < STEPS; step++) {
    double inverse = inverse_count((uint64_t)step, program->batch);
    fill_rows(engine, program, (uint64_t)step);
    poison(engine);
    pd_engine_step(engine, (uint64_t)step, 99, &inverse, r.results[step]);
    r.norm[step] = pd_engine_grad_norm(engine);
    for (int p = 0; p < PARAMS && step == 0; p++) {
      for (int64_t t = 0; t < trips_of(p); t++) {
        r.parts[p][t] = pd_engine_part(engine, p, t);
        r.parts[p][t].gradients = copy_of(r.parts[p][t].gradients, r.parts[p][t].elements);
      }
    }
    pd_engine_update(engine, step + 1, 0.005, r.norm[step] > 1 ? 1 / r.norm[step] : 1);
    if (step != 1) continue;
    int64_t samples[64], last = program->microbatches - 1;
    inverse = inverse_count(77, program->batch - 1);
    fill_rows(engine, program, 77);
    /* all rows but the last of the last replica; then the first micro-batch of the first replica alone */
    for (int pass = 0; pass < 2; pass++) {
      for (int64_t i = 0; i <= last; i++) {
        samples[i] = pass == 0 ? program->microbatch : i == 0 && in->dp_rank == 0 ? program->microbatch : 0;
      }
      if (pass == 0 && in->dp_rank == in->dp - 1) samples[last]--;
      pd_engine_evaluate(engine, pass == 0 ? last + 1 : 1, samples, &inverse, 1, r.evaluated[pass]);
    }
    int c = 0; /* the chunk with the last unit; those after it are empty */
    while (s->first_unit[c + 1] < UNITS) c++;
    bool holds_loss = s->rank_of[c] == in->pp_rank;
    double logit;
    check(pd_engine_logits(engine, 0, 0, 1, &logit) == (holds_loss && in->dp_rank == 0), "logits");
  }
  for (int p = 0; p < PARAMS; p++) {
    for (int64_t t = 0; t < trips_of(p); t++) {
      pd_part part = pd_engine_part(engine, p, t);
      r.parts[p][t].weights = copy_of(part.weights, part.elements);
    }
  }
  check(strstr(pd_engine_position(engine), "step 3, end") != NULL, "position");
  pd_engine_free(engine);
  return r;
}

static bool same_bits(const void *a, const void *b, int64_t elements) {
  return a == NULL || b == NULL || memcmp(a, b, (size_t)elements * sizeof(REAL)) == 0;
}

static void check_same(const record *a, const record *b) {
  check(memcmp(a->results, b->results, sizeof a->results) == 0, "results are the same bits");
  check(memcmp(a->norm, b->norm, sizeof a->norm) == 0, "norms are the same bits");
  check(memcmp(a->evaluated, b->evaluated, sizeof a->evaluated) == 0, "evaluation gives the same bits");
  bool gradients = true, weights = true;
  for (int p = 0; p < PARAMS; p++) {
    for (int64_t t = 0; t < trips_of(p); t++) {
      const pd_part *x = &a->parts[p][t], *y = &b->parts[p][t];
      gradients = gradients && same_bits(x->gradients, y->gradients, x->elements);
      weights = weights && same_bits(x->weights, y->weights, x->elements);
    }
  }
  check(gradients, "gradients are the same bits");
  check(weights, "weights are the same bits");
}

static bool close_to(double a, double b, double scale) {
  double tolerance = sizeof(REAL) == 4 ? 1e-6 : 1e-13;
  return isfinite(a) && isfinite(b) && fabs(a - b) <= tolerance * scale;
}

/* The largest difference between `part` and the same elements of the whole tensor, against the largest element. */
static bool part_is_close(const pd_part *part, const REAL *mine, const REAL *whole) {
  const pd_local *at = &part->local;
  int64_t columns = at->rank > 1 ? at->size[1] : 1, all = at->rank > 1 ? at->global[1] : 1;
  double largest = 1e-3, difference = 0;
  for (int64_t i = 0; i < at->size[0]; i++) {
    for (int64_t j = 0; j < columns; j++) {
      double a = (double)mine[i * columns + j];
      double b = (double)whole[(i + at->first[0]) * all + j + (at->rank > 1 ? at->first[1] : 0)];
      if (!isfinite(a)) return false;
      largest = fmax(largest, fabs(b));
      difference = fmax(difference, fabs(a - b));
    }
  }
  return difference <= (sizeof(REAL) == 4 ? 1e-5 : 1e-13) * largest;
}

static void check_close(const record *a, const record *serial) {
  bool results = true, norms = true, gradients = true;
  for (int step = 0; step < STEPS; step++) {
    for (int i = 0; i < 2; i++) {
      double b = serial->results[step][i];
      results = results && close_to(a->results[step][i], b, step == 0 ? fabs(b) : 10 * fabs(b));
    }
    norms = norms && close_to(a->norm[step], serial->norm[step], (step == 0 ? 5 : 30) * serial->norm[step]);
  }
  check(results, "results agree with one rank");
  check(norms, "norms agree with one rank");
  check(close_to(a->evaluated[0][0], serial->evaluated[0][0], 10 * fabs(serial->evaluated[0][0])), "evaluation agrees");
  for (int p = 0; p < PARAMS; p++) {
    for (int64_t t = 0; t < trips_of(p); t++) {
      const pd_part *x = &a->parts[p][t];
      if (x->gradients == NULL) continue;
      gradients = gradients && part_is_close(x, x->gradients, serial->parts[p][t].gradients);
    }
  }
  check(gradients, "gradients agree with one rank");
}

/* Parameters are held by someone, and one rank speaks for each part. */
static void check_owners(const record *r, int tp) {
  for (int p = 0; p < PARAMS; p++) {
    for (int64_t t = 0; t < trips_of(p); t++) {
      int mine[2] = {r->parts[p][t].owner, r->parts[p][t].weights != NULL}, all[2];
      MPI_Allreduce(mine, all, 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
      bool split = r->parts[p][t].local.size[0] != r->parts[p][t].local.global[0] ||
                   r->parts[p][t].local.size[1] != r->parts[p][t].local.global[1];
      if (all[0] != (split ? tp : 1) || all[1] == 0) check(false, "one owner for each part");
    }
  }
  passed++;
}

/* Gradients against differences of the loss, for some elements of every tensor. Only in f64, on one rank. */
static void check_numerically(const model *m, const schedule *s, pd_world *in) {
  const pd_program *program = &m->program;
  model_use(m);
  pd_engine *engine = pd_engine_new(program, &s->pipeline, in, "ref");
  pd_engine_initialise(engine, 4321);
  double inverse = inverse_count(5, program->batch), results[2];
  fill_rows(engine, program, 5);
  bool good = true;
  for (int p = 0; p < PARAMS; p++) {
    for (int64_t t = 0; t < trips_of(p); t++) {
      pd_part part = pd_engine_part(engine, p, t);
      for (int64_t i = 0; i < part.elements && part.gradients != NULL; i += 3) {
        REAL *weight = (REAL *)part.weights + i, before = *weight;
        const REAL h = (REAL)1e-5;
        double loss[2];
        for (int side = 0; side < 2; side++) {
          *weight = before + (side == 0 ? -h : h);
          pd_engine_step(engine, 5, 99, &inverse, results);
          loss[side] = results[0];
        }
        *weight = before;
        pd_engine_step(engine, 5, 99, &inverse, results);
        double numeric = (loss[1] - loss[0]) / (2 * (double)h), exact = (double)((REAL *)part.gradients)[i];
        if (fabs(numeric - exact) > 1e-7 * fmax(1, fabs(exact))) {
          printf("parameter %d, trip %d, element %d: %.12g by differences, %.12g\n", p, (int)t, (int)i, numeric, exact);
          good = false;
        }
      }
    }
  }
  check(good, "gradients agree with differences of the loss");
  pd_engine_free(engine);
}

static void one_schedule(const model *m, const record *alone, style kind, shape form) {
  static const char *const names[] = {"gpipe", "1f1b", "split", "mixed"};
  static char text[128];
  snprintf(text, sizeof text, "%s, %d chunks%s, cut %d, %d copies, %d accumulators%s", names[kind], form.chunks,
           form.vee ? " in a V" : "", form.cut, form.copies, form.accumulators,
           m->program.recompute ? ", recompute" : "");
  context = text;
  schedule s = schedule_make(&m->program, kind, form, m->program.dp > 1);
  record r = run(m, &s, &world, "host");
  check_same(&r, alone);
  check_owners(&r, m->program.tp);
  forget(&r);
  schedule_free(&s);
}

static record run_alone(int dp, int tp, int64_t batch, int64_t microbatch, variant how, int accumulators) {
  model m;
  model_build(&m, 1, dp, tp, batch, microbatch, how);
  schedule s = schedule_make(&m.program, STYLE_GPIPE, (shape){1, false, 0, 1, accumulators}, false);
  pd_world small = world;
  small.pp = 1;
  small.pp_rank = 0;
  small.pipe = MPI_COMM_SELF;
  small.dp = dp;
  small.tp = tp;
  if (dp == 1) small.replicas = MPI_COMM_SELF;
  if (tp == 1) small.tensor = MPI_COMM_SELF;
  if (dp == 1) small.dp_rank = 0;
  if (tp == 1) small.tp_rank = 0;
  small.rank = small.dp_rank * tp + small.tp_rank;
  small.size = dp * tp;
  record r = run(&m, &s, &small, "host");
  if (world.size == 1 && sizeof(REAL) == 8) check_numerically(&m, &s, &small);
  schedule_free(&s);
  return r;
}

static void all_schedules(const model *m, const record *alone) {
  for (int kind = STYLE_GPIPE; kind <= STYLE_MIXED; kind++) {
    for (int cut = 0; cut < 5; cut += 4) one_schedule(m, alone, (style)kind, (shape){1, false, cut, 1, 1});
    one_schedule(m, alone, (style)kind, (shape){2, true, 0, 1, 1});
    one_schedule(m, alone, (style)kind, (shape){2, false, 1, 1, 1});
    one_schedule(m, alone, (style)kind, (shape){3, false, 2, 1, 1}); /* with 4 ranks some chunks are empty */
  }
}

/* Two copies of the model, if they can share the ranks and the micro-batches. */
static void all_copies(const model *m, const record *alone, int accumulators) {
  if (m->program.pp % 2 != 0 || m->program.microbatches % 2 != 0) return;
  for (int kind = STYLE_GPIPE; kind <= STYLE_MIXED; kind++) {
    for (int cut = 0; cut < 5; cut += 4) one_schedule(m, alone, (style)kind, (shape){1, false, cut, 2, accumulators});
  }
}

static record run_alone_and_compare(const int *n, variant how, int accumulators) {
  context = "one rank";
  record serial = run_alone(1, 1, n[3], 1, how, 1);
  context = "one pipeline rank";
  record alone = run_alone(n[1], n[2], n[3], n[4], how, accumulators);
  check_close(&alone, &serial);
  forget(&serial);
  return alone;
}

/* One bit of the tied matrix is another on one of two ranks that hold it. */
_Noreturn static void differ(const model *m) {
  schedule s = schedule_make(&m->program, STYLE_1F1B, (shape){1, false, 0, 1, 1}, false);
  pd_engine *engine = pd_engine_new(&m->program, &s.pipeline, &world, "host");
  pd_engine_initialise(engine, 1);
  pd_check_replicas(engine, &world, &m->program); /* says nothing */
  for (int p = 0; p < PARAMS && world.rank == world.size - 1; p++) {
    pd_part part = pd_engine_part(engine, p, 0);
    if (m->program.params[p].segment == PD_NONE && part.weights != NULL) *(unsigned char *)part.weights ^= 1;
  }
  pd_check_replicas(engine, &world, &m->program);
  printf("a difference was not found\n");
  exit(1);
}

/* ---- reductions hide ----
 *
 * Replica 1 does not end its last weight gradient of the last chunk before replica 0 has begun those of the first:
 * which it can only if it does not wait in the REDUCE_GRAD between them. */

static pd_segment_function *plain_embed, *plain_head;
static int64_t embeds, heads, head_count;
static bool told; /* the message of replica 0 has come */

static void embed_that_tells(const pd_frame *f) {
  if (embeds++ == 0 && world.dp_rank == 0) MPI_Send(NULL, 0, MPI_INT, 1, 7, MPI_COMM_WORLD);
  plain_embed(f);
}

static void head_that_waits(const pd_frame *f) {
  plain_head(f);
  if (++heads < head_count || world.dp_rank == 0) return;
  int there = 0;
  for (int i = 0; i < 20000 && !there; i++) {
    MPI_Iprobe(0, 7, MPI_COMM_WORLD, &there, MPI_STATUS_IGNORE);
    if (!there) usleep(1000);
  }
  told = there;
}

static void reductions_hide(const int *n) {
  context = "reductions hide";
  model m;
  model_build(&m, 1, 2, 1, n[3], n[4], (variant){false, false, PD_SGD});
  plain_embed = m.segments[0].weight_grad;
  plain_head = m.segments[3].weight_grad;
  m.segments[0].weight_grad = embed_that_tells;
  m.segments[3].weight_grad = head_that_waits;
  head_count = m.program.microbatches;
  schedule s = schedule_make(&m.program, STYLE_GPIPE, (shape){2, false, 0, 1, 1}, true);
  pd_action_list *list = &s.ranks[0];
  int64_t last = 0;
  for (int64_t i = 0; i < list->count; i++) {
    if (list->at[i].kind == PD_B && list->at[i].chunk == 1) last = i;
  }
  /* the two reductions stand at the end, chunk 1's first: it goes behind that chunk's last backward */
  memmove(&list->at[last + 2], &list->at[last + 1], (size_t)(list->count - 3 - last) * sizeof list->at[0]);
  list->at[last + 1] = (pd_action){PD_REDUCE_GRAD, 1, PD_NO_MICROBATCH};
  model_use(&m);
  pd_engine *engine = pd_engine_new(&m.program, &s.pipeline, &world, "host");
  pd_engine_initialise(engine, 1234);
  double inverse = inverse_count(0, m.program.batch), results[2];
  fill_rows(engine, &m.program, 0);
  pd_engine_step(engine, 0, 99, &inverse, results);
  if (world.dp_rank == 0) {
    passed++;
  } else {
    check(told, "the other replica went on behind its REDUCE_GRAD");
  }
  if (world.dp_rank == 1) MPI_Recv(NULL, 0, MPI_INT, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
  pd_engine_free(engine);
  schedule_free(&s);
}

/* `who`: a rank, or "all". Ends the run with exit code 5 and one line that starts with "error:". */
_Noreturn static void fail(const char *who) {
  if (strcmp(who, "all") == 0 || atoi(who) == world.rank) pd_fail(PD_EXIT_NUMERIC, "loss is not finite");
  MPI_Barrier(world.all);
  for (;;) MPI_Barrier(world.all);
}

int main(int argc, char **argv) {
  int provided;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  int n[5] = {1, 1, 1, 4, 1};
  for (int i = 1; i < argc && i <= 5; i++) n[i - 1] = atoi(argv[i]);
  model m;
  model_build(&m, n[0], n[1], n[2], n[3], n[4], (variant){false, false, PD_ADAMW});
  pd_world_open(&world, &m.program);
  pd_watch_open(&world, 0);
  if (argc > 6 && strcmp(argv[6], "differ") == 0) differ(&m);
  if (argc > 6) fail(argv[6]);
  if (n[0] == 1 && n[1] == 2 && n[2] == 1) reductions_hide(n);
  record alone = run_alone_and_compare(n, (variant){false, false, PD_ADAMW}, 1);
  all_schedules(&m, &alone);
  all_copies(&m, &alone, 1);
  forget(&alone);
  alone = run_alone_and_compare(n, (variant){false, false, PD_ADAMW}, 2);
  one_schedule(&m, &alone, STYLE_1F1B, (shape){1, false, 0, 1, 2});
  one_schedule(&m, &alone, STYLE_MIXED, (shape){2, true, 1, 1, 2});
  all_copies(&m, &alone, 2);
  forget(&alone);
  static const variant variants[] = {{true, false, PD_SGD}, {true, true, PD_ADAM}, {false, true, PD_SGD}};
  for (size_t v = 0; v < sizeof variants / sizeof variants[0]; v++) {
    variant plain = variants[v];
    plain.recompute = false; /* which changes no bit */
    alone = run_alone_and_compare(n, plain, 1);
    model_build(&m, n[0], n[1], n[2], n[3], n[4], variants[v]);
    one_schedule(&m, &alone, STYLE_1F1B, (shape){1, false, 0, 1, 1});
    one_schedule(&m, &alone, STYLE_SPLIT, (shape){1, false, 4, 1, 1});
    one_schedule(&m, &alone, STYLE_MIXED, (shape){2, true, 0, 1, 1});
    all_copies(&m, &alone, 1);
    forget(&alone);
  }
  int mine[2] = {passed, failed}, all[2];
  MPI_Allreduce(mine, all, 2, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (world.rank == 0) printf("%d passed, %d failed\n", all[0], all[1]);
  pd_watch_close();
  pd_world_close(&world);
  MPI_Finalize();
  return all[1] == 0 ? 0 : 1;
}
