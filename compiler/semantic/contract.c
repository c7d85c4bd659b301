/* Products: `a @ b`, which contracts the last axes of the left with the same first axes of the right, and einsum, which
 * says with letters what it contracts. Both become one operation with a label per axis. */
#include <ctype.h>
#include <inttypes.h>
#include <string.h>

#include "semantic/internal.h"

/* ---- a @ b ---- */

static bool match_length(const Sem *sem, const Value *a, const Value *b, unsigned length, bool *by_name) {
  *by_name = true;
  for (unsigned i = 0; i < length; i++) {
    Id x = a->axes[a->rank - length + i], y = b->axes[i];
    if (!same_axis(sem, x, y)) return false;
    *by_name &= x == y;
  }
  return true;
}

static const char *short_source(const Sem *sem, const Expr *expr, const char *otherwise) {
  const char *text = source_text(sem, expr->span, 40);
  size_t length = strlen(text);
  return length > 3 && !strcmp(text + length - 3, "...") ? otherwise : arena_printf(sem->arena, "`%s`", text);
}

/* "contract with `w1`, or apply `w2` to `gelu(x @ w1 + b1)`"; false when there is more to say. */
static bool contract_help(Sem *sem, Frame *frame, Diag *diag, Id left, Id right, const Expr *right_expr) {
  const Value *a = value_at(sem, left), *b = value_at(sem, right);
  const char *other = NULL, *source = NULL;
  bool by_name;
  for (uint32_t i = 0; i < frame->locals.count && !other; i++) {
    const Local *local = &frame->locals.at[i];
    if (local->is_size || local->value.kind != VAL_TENSOR || local->value.value == right) continue;
    const Value *candidate = value_at(sem, local->value.value);
    if (candidate->kind == VALUE_PARAM && candidate->rank >= 2 && match_length(sem, a, candidate, 1, &by_name) &&
        by_name)
      other = local->name;
  }
  for (uint32_t i = frame->seen.count; i-- > 0 && !source;) {
    const Seen *seen = &frame->seen.at[i];
    const Value *candidate = value_at(sem, seen->value);
    if (seen->value == left || candidate->kind == VALUE_PARAM || candidate->dtype != DT_REAL || !candidate->rank ||
        b->rank == 0)
      continue;
    if (!match_length(sem, candidate, b, 1, &by_name) || !by_name) continue;
    const char *text = source_text(sem, seen->expr->span, 48);
    if (strlen(text) <= 48) source = text;
  }
  const char *applied = short_source(sem, right_expr, "the right side");
  if (other && source)
    diag_help(diag, "contract with `%s`, or apply %s to `%s`", other, applied, source);
  else if (other)
    diag_help(diag, "contract with `%s`", other);
  else if (source)
    diag_help(diag, "apply %s to `%s`", applied, source);
  return source || (other && !(b->rank == 2 && b->axes[1] == a->axes[a->rank - 1])); /* else it may be transposed */
}

static Val cannot_contract(Sem *sem, Frame *frame, const Expr *expr, Id left, Id right) {
  const Value *a = value_at(sem, left), *b = value_at(sem, right);
  const Expr *left_expr = expr->args[0], *right_expr = expr->args[1];
  if (!a->rank || !b->rank) {
    Diag *diag = report(sem, "E0301", expr->op_span, "`@` cannot contract a tensor without axes");
    diag_label(diag, left_expr->span, "%s", shape_text(sem, left));
    diag_label(diag, right_expr->span, "%s", shape_text(sem, right));
    return val_error();
  }
  Id x = a->axes[a->rank - 1], y = b->axes[0];
  const Axis *p = &sem->graph->axes.at[x], *q = &sem->graph->axes.at[y];
  const char *p_name = p->name ? p->name : arena_printf(sem->arena, "%" PRId64, p->size);
  const char *q_name = q->name ? q->name : arena_printf(sem->arena, "%" PRId64, q->size);
  Diag *diag = report(sem, "E0301", expr->op_span, "`@` cannot contract `%s` with `%s`", p_name, q_name);
  diag_label(diag, left_expr->span, "%s ends with %s", short_source(sem, left_expr, "this"), axis_text(sem, x));
  bool is_param = right_expr->kind == EXPR_NAME && b->kind == VALUE_PARAM;
  diag_label(diag, is_param ? b->span : right_expr->span, "%s starts with %s", short_source(sem, right_expr, "this"),
             axis_text(sem, y));
  Id both[2] = {x, y};
  axis_notes(sem, diag, 2, both);
  mismatch_help(sem, diag, x, y);
  if (contract_help(sem, frame, diag, left, right, right_expr)) return val_error();
  const char *right_text = source_text(sem, right_expr->span, 40), *left_text = source_text(sem, left_expr->span, 40);
  if (b->rank == 2 && b->axes[1] == x)
    diag_help(diag, "its two axes may be the wrong way round: write `%s @ transpose(%s)`, or declare it so", left_text,
              right_text);
  else if (b->axes[b->rank - 1] == a->axes[0])
    diag_help(diag, "the sides may be the wrong way round: `%s @ %s`", right_text, left_text);
  return val_error();
}

static bool real_tensor(Sem *sem, const Expr *expr, const Expr *part, Val v) {
  if (v.kind == VAL_ERROR) return false;
  if (v.kind == VAL_TENSOR && value_at(sem, v.value)->dtype == DT_REAL) return true;
  report(sem, v.kind == VAL_TENSOR ? "E0309" : "E0308", part->span,
         "`%s` contracts tensors of real numbers, and `%s` is %s", expr->kind == EXPR_BINARY ? "@" : "einsum",
         source_text(sem, part->span, 40),
         v.kind == VAL_TENSOR  ? shape_text(sem, v.value)
         : v.kind == VAL_TUPLE ? "several tensors"
                               : const_kind_name(v.number.kind));
  return false;
}

Val contract_at(Sem *sem, Frame *frame, const Expr *expr, Val left, Val right) {
  bool usable = real_tensor(sem, expr, expr->args[0], left);
  usable &= real_tensor(sem, expr, expr->args[1], right);
  if (!usable) return val_error();
  const Value *a = value_at(sem, left.value), *b = value_at(sem, right.value);
  unsigned most = a->rank < b->rank ? a->rank : b->rank, length = 0, shorter = 0;
  bool by_name = true, ignored;
  for (unsigned k = most; k >= 1; k--) {
    if (length == 0 && match_length(sem, a, b, k, &by_name))
      length = k;
    else if (length && !shorter && match_length(sem, a, b, k, &ignored))
      shorter = k;
  }
  if (!length) return cannot_contract(sem, frame, expr, left.value, right.value);
  if (shorter && !by_name) {
    Diag *diag = report(sem, "E0302", expr->op_span, "`@` is ambiguous: the last %u axes match, and the last %s too",
                        length, shorter == 1 ? "one" : arena_printf(sem->arena, "%u", shorter));
    diag_label(diag, expr->args[0]->span, "%s", shape_text(sem, left.value));
    diag_label(diag, expr->args[1]->span, "%s", shape_text(sem, right.value));
    diag_note(diag, "a plain size matches every axis of that size");
    diag_help(diag, "name the axes with `dim`, or say with `einsum` what is contracted");
    return val_error();
  }
  Id axes[2 * MAX_RANK];
  uint8_t label[3][2 * MAX_RANK] = {{0}};
  unsigned rank = 0, next = 'a', kept = a->rank - length, b_rank = b->rank;
  for (unsigned i = 0; i < a->rank; i++) {
    label[0][i] = (uint8_t)next++;
    if (i >= kept) continue;
    label[2][rank] = label[0][i];
    axes[rank++] = a->axes[i];
  }
  for (unsigned i = 0; i < b_rank; i++) {
    label[1][i] = i < length ? label[0][kept + i] : (uint8_t)next++;
    if (i < length) continue;
    label[2][rank] = label[1][i];
    axes[rank++] = b->axes[i];
  }
  Id inputs[2] = {left.value, right.value};
  Val result = emit(sem, OP_CONTRACT, expr->span, inputs, 2, rank, axes);
  if (result.kind == VAL_ERROR) return result;
  for (unsigned p = 0; p < 3; p++) memcpy(op_of(sem, result)->label[p], label[p], MAX_RANK);
  return result;
}

/* ---- einsum ---- */

typedef struct Part { /* the labels of one operand or of the result, as indices into the words */
  unsigned count;
  unsigned word[MAX_RANK];
} Part;

typedef struct Einsum {
  Sem *sem;
  const Expr *spec;
  const char *words[2 * MAX_RANK];
  size_t lengths[2 * MAX_RANK];
  unsigned word_count;
  Part part[3]; /* operands, result */
  unsigned operands;
  Id axis[2 * MAX_RANK]; /* of each word, or NO_ID */
} Einsum;

static bool einsum_error(Einsum *e, const char *why) {
  Diag *diag = report(e->sem, "E0310", e->spec->span, "einsum: %s", why);
  diag_note(diag, "labels are words with blanks between them: \"b s h k, h k e -> b s e\"");
  return false;
}

static bool add_word(Einsum *e, Part *part, const char *text, size_t length) {
  unsigned w = 0;
  while (w < e->word_count && !(e->lengths[w] == length && !memcmp(e->words[w], text, length))) w++;
  if (w == e->word_count) {
    if (e->word_count == 2 * MAX_RANK) return einsum_error(e, "too many labels");
    e->words[w] = text;
    e->lengths[w] = length;
    e->word_count++;
  }
  for (unsigned i = 0; i < part->count; i++)
    if (part->word[i] == w)
      return einsum_error(e, arena_printf(e->sem->arena, "label `%.*s` stands twice in one tensor", (int)length, text));
  if (part->count == MAX_RANK) return einsum_error(e, "more than 8 labels in one tensor");
  part->word[part->count++] = w;
  return true;
}

static bool parse_einsum(Einsum *e, const char *text) {
  unsigned at = 0;
  bool result = false;
  while (*text) {
    if (isspace((unsigned char)*text)) {
      text++;
    } else if (*text == ',') {
      if (result || at == 1) return einsum_error(e, "at most two operands, then `->` and the result");
      at++;
      text++;
    } else if (text[0] == '-' && text[1] == '>') {
      if (result) return einsum_error(e, "`->` stands twice");
      result = true;
      text += 2;
    } else if (isalpha((unsigned char)*text) || *text == '_') {
      const char *begin = text;
      while (isalnum((unsigned char)*text) || *text == '_') text++;
      if (!add_word(e, &e->part[result ? 2 : at], begin, (size_t)(text - begin))) return false;
    } else {
      return einsum_error(e,
                          arena_printf(e->sem->arena, "`%c` is no label", isprint((unsigned char)*text) ? *text : '?'));
    }
  }
  e->operands = at + 1;
  return result || einsum_error(e, "there is no `->`");
}

/* Gives each word its axis from an operand. */
static bool bind_operand(Einsum *e, unsigned which, Id value, const Expr *expr) {
  const Value *v = value_at(e->sem, value);
  const Part *part = &e->part[which];
  if (part->count != v->rank) {
    Diag *diag = report(e->sem, "E0310", e->spec->span, "einsum: %u label%s for %s, which has %u ax%s", part->count,
                        part->count == 1 ? "" : "s", shape_text(e->sem, value), v->rank, v->rank == 1 ? "is" : "es");
    diag_label(diag, expr->span, "%s", shape_text(e->sem, value));
    if (part->count == 1 && e->lengths[part->word[0]] == v->rank && v->rank > 1) {
      Text apart = {.arena = e->sem->arena};
      for (unsigned i = 0; i < v->rank; i++) text_printf(&apart, "%s%c", i ? " " : "", e->words[part->word[0]][i]);
      diag_help(diag, "labels are words with blanks between them: `%s`", apart.at);
    }
    return false;
  }
  for (unsigned i = 0; i < part->count; i++) {
    unsigned w = part->word[i];
    if (e->axis[w] == NO_ID) {
      e->axis[w] = v->axes[i];
    } else if (same_axis(e->sem, e->axis[w], v->axes[i])) {
      e->axis[w] = better_axis(e->sem, e->axis[w], v->axes[i]);
    } else {
      Diag *diag = report(e->sem, "E0310", e->spec->span, "einsum: label `%.*s` is %s and %s", (int)e->lengths[w],
                          e->words[w], axis_text(e->sem, e->axis[w]), axis_text(e->sem, v->axes[i]));
      Id both[2] = {e->axis[w], v->axes[i]};
      axis_notes(e->sem, diag, 2, both);
      mismatch_help(e->sem, diag, both[0], both[1]);
      return false;
    }
  }
  return true;
}

static bool part_has(const Part *part, unsigned word) {
  for (unsigned i = 0; i < part->count; i++)
    if (part->word[i] == word) return true;
  return false;
}

/* Sums out the labels that stand in this operand alone. */
static bool reduce_operand(Einsum *e, const Expr *expr, unsigned which, Id *value) {
  Part *part = &e->part[which];
  unsigned mask = 0, kept = 0;
  for (unsigned i = 0; i < part->count; i++) {
    bool elsewhere =
        part_has(&e->part[2], part->word[i]) || (e->operands == 2 && part_has(&e->part[!which], part->word[i]));
    if (!elsewhere)
      mask |= 1u << i;
    else
      part->word[kept++] = part->word[i];
  }
  if (!mask) return true;
  part->count = kept;
  Val sum = emit_sum(e->sem, expr->span, *value, mask, 1);
  *value = sum.value;
  return sum.kind != VAL_ERROR;
}

Val einsum(Sem *sem, const Expr *expr, const Expr *spec, const char *text, Val a, const Expr *left, const Val *b,
           const Expr *right) {
  Einsum e = {.sem = sem, .spec = spec};
  for (unsigned i = 0; i < 2 * MAX_RANK; i++) e.axis[i] = NO_ID;
  bool usable = real_tensor(sem, expr, left, a);
  if (b) usable &= real_tensor(sem, expr, right, *b);
  if (!usable || !parse_einsum(&e, text)) return val_error();
  if (e.operands != (b ? 2u : 1u)) {
    einsum_error(&e, arena_printf(sem->arena, "labels for %u operand%s, and %u %s given", e.operands,
                                  e.operands == 1 ? "" : "s", b ? 2u : 1u, b ? "are" : "is"));
    return val_error();
  }
  Id x = a.value, y = b ? b->value : NO_ID;
  if (!bind_operand(&e, 0, x, left) || (b && !bind_operand(&e, 1, y, right))) return val_error();
  for (unsigned i = 0; i < e.part[2].count; i++)
    if (e.axis[e.part[2].word[i]] == NO_ID) {
      unsigned w = e.part[2].word[i];
      einsum_error(&e, arena_printf(sem->arena, "the result's `%.*s` is in no operand", (int)e.lengths[w], e.words[w]));
      return val_error();
    }
  if (!reduce_operand(&e, expr, 0, &x) || (b && !reduce_operand(&e, expr, 1, &y))) return val_error();
  if (!b) {
    unsigned order[MAX_RANK] = {0};
    for (unsigned i = 0; i < e.part[2].count; i++)
      while (e.part[0].word[order[i]] != e.part[2].word[i]) order[i]++;
    return emit_permute(sem, expr->span, x, order);
  }
  Id axes[MAX_RANK], inputs[2] = {x, y};
  for (unsigned i = 0; i < e.part[2].count; i++) axes[i] = e.axis[e.part[2].word[i]];
  Val result = emit(sem, OP_CONTRACT, expr->span, inputs, 2, e.part[2].count, axes);
  if (result.kind == VAL_ERROR) return result;
  for (unsigned p = 0; p < 3; p++)
    for (unsigned i = 0; i < e.part[p].count; i++) op_of(sem, result)->label[p][i] = (uint8_t)('a' + e.part[p].word[i]);
  return result;
}
