/* Blocks that nothing calls are called here, with inputs made for them, and what that adds to the program is forgotten.
 *
 * Of a block whose inputs have known shapes that is the whole check. Of a generic block only a call says what its sizes
 * and its `..` are, so it is tried with many: each size is an axis of its own that matches every axis but the other
 * sizes (Axis.open), with made-up numbers; `..` is every number of axes that there is room for. Only when all trials
 * have errors is something reported, and only errors count that follow from ranks, names and arguments: what numbers
 * decide (`group = heads / kv`, windows of images, `if (n > 8)`) is right for some call, perhaps. So nothing is reported
 * of a block that some call of it can compile, unless that call gives one axis for two of its sizes. */
#include <string.h>

#include "semantic/elaborate.h"

typedef struct Trial {
  unsigned run;   /* axes that `..` stands for */
  unsigned sizes; /* which numbers: below */
} Trial;

/* All alike; each a multiple of the one before, of the one after; the least; a prime. */
enum { SIZES_ALIKE, SIZES_RISING, SIZES_FALLING, SIZES_ONE, SIZES_PRIME, SIZES_COUNT };
enum { MOST_STEPS = 5, RUN_SIZE = 2 }; /* so that the elements of MAX_RANK axes can be counted */

static int64_t made_up_size(unsigned sizes, uint32_t index) {
  unsigned step = index < MOST_STEPS ? index : MOST_STEPS;
  switch (sizes) {
  case SIZES_ALIKE:
    return 48;
  case SIZES_RISING:
    return (int64_t)4 << step;
  case SIZES_FALLING:
    return (int64_t)4 << (MOST_STEPS - step);
  case SIZES_PRIME:
    return 7;
  default:
    return 1;
  }
}

static Id open_axis(Sem *sem, const char *name, int64_t size, Span span) {
  Id axis = anonymous_axis(sem, size, NULL, span);
  sem->graph->axes.at[axis].name = name;
  sem->graph->axes.at[axis].open = true;
  return axis;
}

static bool has_run(const Item *item) {
  for (uint32_t i = 0; i < item->input_count; i++)
    if (item->inputs[i].type && item->inputs[i].type->leading_run) return true;
  return false;
}

/* An input as if it came from the data; false when its type cannot be had. `run` has the axes of `..`. */
static bool make_input(Sem *sem, Frame *frame, const Input *input, const Trial *trial, const Id *run) {
  Local local = {.name = input->name.text, .span = input->name.span, .is_value = true, .value = val_error()};
  const TypeExpr *type = input->type;
  if (type) {
    Value value = {.kind = VALUE_DATA, .name = input->name.text, .span = input->name.span, .segment = NO_ID};
    uint32_t rank = type->leading_run ? trial->run : 0;
    if (rank + type->dim_count > MAX_RANK || !type_dtype(sem, type, &value.dtype)) return false;
    memcpy(value.axes, run, rank * sizeof *run);
    for (uint32_t i = 0; i < type->dim_count; i++)
      value.axes[rank++] = axis_of_expr(sem, frame->unit, frame, type->dims[i]);
    value.rank = (uint8_t)rank;
    const char *what = arena_printf(sem->arena, "input `%s`", input->name.text);
    if (!check_tensor(sem, type->span, what, value.rank, value.axes)) return false;
    vec_push(sem->arena, &sem->graph->values, value);
    local.value = val_tensor(sem->graph->values.count - 1);
  }
  add_local(sem, frame, local);
  return true;
}

static Expr *name_expr(Sem *sem, const Name *name) {
  Expr *expr = ARENA_NEW(sem->arena, Expr);
  *expr = (Expr){.kind = EXPR_NAME, .span = name->span, .name = *name};
  return expr;
}

/* The call itself: sizes by name, then the inputs. */
static void call_once(Sem *sem, Symbol *block, const Trial *trial) {
  const Item *item = block->item;
  Naming naming = {.prefix = ""};
  Frame caller = {.unit = block->unit, /* of no block: nobody is told of this call */
                  .naming = &naming,
                  .call = item->name.span};
  Expr call = {.kind = EXPR_CALL, .span = item->name.span, .name = item->name};
  Expr **args = ARENA_ARRAY(sem->arena, Expr *, item->size_count + item->input_count + 1);
  Name *names = ARENA_ARRAY(sem->arena, Name, item->size_count + item->input_count + 1);
  uint32_t count = 0;
  Id run[MAX_RANK];
  for (unsigned i = 0; i < trial->run; i++) run[i] = open_axis(sem, "..", RUN_SIZE, item->name.span);
  for (uint32_t i = 0; i < item->size_count; i++) {
    Id axis = open_axis(sem, item->sizes[i].text, made_up_size(trial->sizes, i), item->sizes[i].span);
    add_local(sem, &caller,
              (Local){.name = item->sizes[i].text, .span = item->sizes[i].span, .is_size = true, .axis = axis});
    names[count] = item->sizes[i];
    args[count++] = name_expr(sem, &item->sizes[i]);
  }
  for (uint32_t i = 0; i < item->input_count; i++) {
    if (!make_input(sem, &caller, &item->inputs[i], trial, run)) return;
    if (item->inputs[i].type) args[count++] = name_expr(sem, &item->inputs[i].name);
  }
  begin_segment(sem, block->name, item->name.span);
  call_block(sem, &caller, block, &call, count, args, names);
}

/* Calls the block and forgets what that adds to the program. */
static void call_and_forget(Sem *sem, Symbol *block, const Trial *trial) {
  uint32_t values = sem->graph->values.count, ops = sem->graph->ops.count, params = sem->graph->params.count,
           drafts = sem->drafts.count, sums = sem->batch_sum.count, data = sem->graph->data.count;
  if (!data) vec_push(sem->arena, &sem->graph->data, (Data){.name = "data", .span = block->span}); /* a library */
  Data first = sem->graph->data.at[0]; /* which the made inputs say they are */
  sem->graph->data.at[0].ignores = false;
  sem->checking = true;
  call_once(sem, block, trial);
  sem->checking = false;
  sem->current = NO_ID;
  sem->graph->data.at[0] = first;
  sem->graph->data.count = data;
  sem->graph->values.count = values;
  sem->graph->ops.count = ops;
  sem->graph->params.count = params;
  sem->drafts.count = drafts;
  if (sem->batch_sum.count > sums) sem->batch_sum.count = sums;
}

/* ---- what all trials report ---- */

void uncertain_from_here(Sem *sem) {
  uint32_t now = diag_mark(sem->diagnostics);
  if (now < sem->certain) sem->certain = now;
}

/* Numbers, the batch and the layout are those of a call. */
static bool is_certain(const Sem *sem, const Diag *diag) {
  static const char *const codes[] = {"E0201", "E0202", "E0203", "E0204", "E0215", "E0217", "E0219", "E0221", "E0223",
                                      "E0301", "E0303", "E0305", "E0306", "E0307", "E0308", "E0309", "E0312"};
  for (uint32_t i = 0; i < sem->of_numbers.count; i++)
    if (sem->of_numbers.at[i] == diag) return false;
  for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
    if (!strcmp(codes[i], diag_code(diag))) return true;
  return false;
}

static bool has_same(const DiagList *list, const Diag *diag) {
  for (uint32_t i = 0; i < list->count; i++) {
    Span a = diag_span(list->at[i]), b = diag_span(diag);
    if (!strcmp(diag_code(list->at[i]), diag_code(diag)) && a.file == b.file && a.begin == b.begin && a.end == b.end)
      return true;
  }
  return false;
}

typedef struct Findings {
  bool any;
  DiagList first, common; /* of the first trial; those of them that all trials have */
} Findings;

/* `..` was taken for so many axes that a tensor in the block has more than there may be: this says nothing. */
static bool is_too_wide(const DiagList *reported) {
  for (uint32_t i = 0; i < reported->count; i++)
    if (!strcmp(diag_code(reported->at[i]), "E0320")) return true;
  return false;
}

/* One trial; false when it finds nothing that is certain: some call may be right. */
static bool narrow(Sem *sem, Symbol *block, const Trial *trial, Findings *findings) {
  DiagList reported = {0}, certain = {0}, both = {0};
  uint32_t mark = diag_mark(sem->diagnostics);
  sem->of_numbers.count = 0;
  sem->certain = UINT32_MAX;
  call_and_forget(sem, block, trial);
  diag_take_back(sem->diagnostics, mark, &reported);
  if (trial->run > 0 && is_too_wide(&reported)) return !sem->too_long;
  for (uint32_t i = 0; i < reported.count && mark + i < sem->certain; i++)
    if (is_certain(sem, reported.at[i])) vec_push(sem->arena, &certain, reported.at[i]);
  for (uint32_t i = 0; i < findings->common.count; i++)
    if (has_same(&certain, findings->common.at[i])) vec_push(sem->arena, &both, findings->common.at[i]);
  if (!findings->any) findings->first = certain;
  findings->common = findings->any ? both : certain;
  findings->any = true;
  return certain.count > 0 && !sem->too_long;
}

/* First the shapes that are most likely meant, so that those are told. */
static void try_all(Sem *sem, Symbol *block, Findings *findings) {
  static const unsigned runs[] = {1, 2, 0, 3, 4, 5, 6, 7, 8};
  bool run = has_run(block->item);
  for (size_t r = 0; r < (run ? sizeof runs / sizeof *runs : 1); r++)
    for (unsigned sizes = 0; sizes < (block->item->size_count ? SIZES_COUNT : 1); sizes++) {
      Trial trial = {.run = run ? runs[r] : 0, .sizes = sizes};
      bool room = true;
      for (uint32_t i = 0; i < block->item->input_count; i++) {
        const TypeExpr *type = block->item->inputs[i].type;
        room &= !type || !type->leading_run || type->dim_count + trial.run <= MAX_RANK;
      }
      if (room && !narrow(sem, block, &trial, findings)) {
        findings->first.count = findings->common.count = 0;
        return;
      }
    }
}

/* Each sentence once: an unknown name is told where it is met first. */
static void tell(Sem *sem, const Symbol *block, const DiagList *told) {
  for (uint32_t i = 0; i < told->count; i++) {
    Diag *diag = told->at[i];
    if (diag_said(sem->diagnostics, diag_sentence(diag))) continue;
    if (block->item->size_count && strcmp(diag_code(diag), "E03") >= 0)
      diag_note(diag, "`%s` is not called, so each of its sizes is an axis of its own", block->name);
    diag_put_back(sem->diagnostics, diag);
  }
}

/* A size and an input, or two of them, of one name: this has been told (imports.c), and no call could tell them apart. */
static bool has_a_name_twice(const Item *item) {
  for (uint32_t i = 0; i < item->size_count + item->input_count; i++)
    if (earlier_in_signature(item, i)) return true;
  return false;
}

void check_uncalled(Sem *sem, Symbol *block) {
  bool generic = block->item->size_count || has_run(block->item);
  if (sem->too_long || has_a_name_twice(block->item)) return;
  if (!generic && sem->model) {
    call_and_forget(sem, block, &(Trial){0});
    return;
  }
  Findings findings = {0};
  bool too_long = sem->too_long;
  sem->trial = true;
  sem->generic = generic;
  try_all(sem, block, &findings);
  sem->trial = sem->generic = false;
  sem->too_long = too_long;
  tell(sem, block, findings.common.count ? &findings.common : &findings.first);
}
