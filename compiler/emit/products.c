/* Contractions and sums: as a matrix product where the labels allow it, by the general strided kernel where not. */
#include <string.h>

#include "emit/writer.h"

/* A label of a contraction with its local size and its stride in each tensor (0 where absent). */
typedef struct Label {
  uint8_t label;
  int64_t size;
  int64_t stride[3]; /* in[0], in[1], out[0] */
  bool present[3];
  bool batch;
} Label;

typedef struct Labels {
  Label at[2 * MAX_RANK];
  unsigned count;
} Labels;

static void add_tensor(const Writer *w, Labels *labels, unsigned tensor, const Value *value, const uint8_t *label) {
  int64_t stride = 1;
  for (unsigned i = value->rank; i-- > 0;) {
    int64_t size = axis_local(w->graph, w->config, value->axes[i]);
    Label *found = NULL;
    for (unsigned k = 0; k < labels->count; k++)
      if (labels->at[k].label == label[i]) found = &labels->at[k];
    if (!found) {
      found = &labels->at[labels->count++];
      *found = (Label){.label = label[i], .size = size};
    }
    found->batch |= value->axes[i] == w->graph->batch;
    found->stride[tensor] += stride; /* a repeated label walks the diagonal */
    found->present[tensor] = true;
    stride *= size;
  }
}

static Labels labels_of(const Writer *w, const Op *op) {
  Labels labels = {.count = 0};
  const Value *out = &w->graph->values.at[op->out[0]];
  add_tensor(w, &labels, 2, out, op->label[2]);
  for (unsigned k = 0; k < op->in_count; k++)
    add_tensor(w, &labels, k, &w->graph->values.at[op->in[k]], op->kind == OP_SUM ? op->label[0] : op->label[k]);
  return labels;
}

/* Where the result goes: the gradient accumulator, or the value's memory. */
static const char *target(Writer *w, const Op *op) {
  return op->accumulate != NO_ID ? write_gradient(w, op->accumulate) : write_name(w, op->out[0]);
}

const char *write_target_type(const Writer *w, const Op *op) {
  return op->accumulate != NO_ID ? write_gradient_type(w) : write_type(w, op->out[0]);
}

void call_target(Call *call, const Op *op) {
  Writer *w = call->w;
  call_argument(call, arena_printf(w->input->arena, "%s *", write_target_type(w, op)), target(w, op));
}

/* The second operand of a sum, which may be absent. */
static void call_second(Call *call, const Op *op) {
  if (op->in_count == 2) call_in(call, op->in[1]);
  else call_argument(call, arena_printf(call->w->input->arena, "const %s *", write_type(call->w, op->in[0])), "NULL");
}

static void write_general(Writer *w, const Op *op, const Labels *labels, double factor) {
  ViewAxis axes[2 * MAX_RANK];
  bool samples = false;
  unsigned rank = 0;
  for (unsigned pass = 0; pass < 2; pass++) /* labels of the result first, in their order */
    for (unsigned k = 0; k < labels->count; k++) {
      const Label *l = &labels->at[k];
      if (l->present[2] != (pass == 0)) continue;
      bool summed = l->batch && !l->present[2] && w->function == FUNCTION_FORWARD;
      samples |= summed;
      axes[rank++] = (ViewAxis){l->size, l->stride[2], l->stride[0], l->stride[1], summed};
    }
  const char *view = write_view(w, axes, rank);
  Call call = call_begin(w, "contract");
  call_type(&call, write_type(w, op->in[0]));
  call_type(&call, write_type(w, op->in[op->in_count == 2 ? 1 : 0]));
  call_type(&call, write_target_type(w, op));
  call_argument(&call, "const pd_view *", arena_printf(w->input->arena, "&%s", view));
  call_in(&call, op->in[0]);
  call_second(&call, op);
  const char *scale = samples ? w->cuda ? " * (float)f->batch_scale" : " * (real)f->batch_scale" : "";
  call_argument(&call, "float", arena_printf(w->input->arena, "%s%s", write_number(w, factor), scale));
  call_flag(&call, op->accumulate != NO_ID);
  call_target(&call, op);
  call_end(&call);
}

enum { ROLE_BATCH, ROLE_M, ROLE_N, ROLE_K, ROLES };

static int role_of(const Label *l) {
  if (l->present[0] && l->present[1]) return l->present[2] ? ROLE_BATCH : ROLE_K;
  if (!l->present[2]) return -1;
  return l->present[0] ? ROLE_M : l->present[1] ? ROLE_N : -1;
}

/* The roles of a tensor's axes as runs, e.g. "MK"; false when a role comes in two pieces or in another order than in
 * `order`, which collects the labels of each role in the order of the first tensor that has it. */
static bool runs_of(const Writer *w, const Labels *labels, const Value *value, const uint8_t *label, char *runs,
                    uint8_t order[ROLES][MAX_RANK], unsigned *order_count) {
  static const char letter[] = "BMNK";
  unsigned count = 0;
  unsigned position[ROLES] = {0};
  (void)w;
  bool first[ROLES];
  for (int r = 0; r < ROLES; r++) first[r] = order_count[r] == 0;
  for (unsigned i = 0; i < value->rank; i++) {
    const Label *found = NULL;
    for (unsigned k = 0; k < labels->count; k++)
      if (labels->at[k].label == label[i]) found = &labels->at[k];
    for (unsigned j = 0; j < i; j++)
      if (label[j] == label[i]) return false;
    int role = role_of(found);
    if (role < 0) return false;
    if (!count || runs[count - 1] != letter[role]) {
      for (unsigned j = 0; j < count; j++)
        if (runs[j] == letter[role]) return false;
      runs[count++] = letter[role];
    }
    if (first[role]) order[role][order_count[role]++] = label[i];
    else if (order[role][position[role]] != label[i]) return false;
    position[role]++;
  }
  runs[count] = 0;
  return true;
}

/* With empty runs put back: every tensor has its two letters, so that "M" of a [M]-only tensor is "MK" with K = 1. */
static void complete_runs(char *runs, char first, char second) {
  bool batch = runs[0] == 'B';
  char *rest = runs + (batch ? 1 : 0);
  if (!strchr(rest, first) && !strchr(rest, second)) {
    rest[0] = first, rest[1] = second, rest[2] = 0;
  } else if (!strchr(rest, first)) {
    rest[1] = first, rest[2] = 0;
  } else if (!strchr(rest, second)) {
    rest[1] = second, rest[2] = 0;
  }
}

static int element_bytes(const Writer *w, const char *type) {
  return strcmp(type, "float") == 0 ? 4 : real_bytes(w->config);
}

uint32_t product_number(Writer *w, const pd_product *p) {
  for (uint32_t i = 0; i < w->products.count; i++) {
    const pd_product *q = &w->products.at[i];
    if (q->ta == p->ta && q->tb == p->tb && q->accumulate == p->accumulate && q->m == p->m && q->n == p->n && q->k == p->k &&
        q->batch == p->batch && q->a_bytes == p->a_bytes && q->b_bytes == p->b_bytes && q->c_bytes == p->c_bytes && q->epilogue == p->epilogue)
      return i;
  }
  vec_push(w->input->arena, &w->products, *p);
  return w->products.count - 1;
}

void write_multiply(Writer *w, pd_product product, const char *a, const char *b, const char *c) {
  uint32_t number = product_number(w, &product);
  write_line(w, "pd_multiply(f, &products[%u], %s, %s, %s); // %s[%lld, %lld] %s= %s[%lld, %lld] %s[%lld, %lld]", number, a, b, c,
             product.batch > 1 ? "each " : "", (long long)product.m, (long long)product.n, product.accumulate ? "+" : "",
             product.ta ? "transposed " : "", (long long)(product.ta ? product.k : product.m),
             (long long)(product.ta ? product.m : product.k), product.tb ? "transposed " : "",
             (long long)(product.tb ? product.n : product.k), (long long)(product.tb ? product.k : product.n));
}

/* A contraction as a row-major product of two operands, or the same as C^T = B^T A^T. */
typedef struct Gemm {
  pd_product product; /* of the operands as they are; ta, tb, m, n change places when `swapped` */
  bool swapped;
} Gemm;

/* C^T = B^T A^T as a row-major product of its own: B^T is its first operand. */
static pd_product unswapped(const Gemm *gemm) {
  pd_product product = gemm->product;
  product.ta = !gemm->product.tb, product.tb = !gemm->product.ta;
  product.m = gemm->product.n, product.n = gemm->product.m;
  return product;
}

static bool find_gemm(const Writer *w, const Op *op, const Labels *labels, Gemm *gemm) {
  const Value *values[3] = {&w->graph->values.at[op->in[0]], &w->graph->values.at[op->in[1]], &w->graph->values.at[op->out[0]]};
  uint8_t order[ROLES][MAX_RANK];
  unsigned order_count[ROLES] = {0};
  char runs[3][8];
  for (unsigned t = 0; t < 3; t++)
    if (!runs_of(w, labels, values[t], op->label[t], runs[t], order, order_count)) return false;
  for (unsigned t = 0; t < 3; t++)
    if (strchr(runs[t], 'B') && runs[t][0] != 'B') return false;
  complete_runs(runs[0], 'M', 'K');
  complete_runs(runs[1], 'K', 'N');
  complete_runs(runs[2], 'M', 'N');
  int64_t size[ROLES] = {1, 1, 1, 1};
  for (unsigned k = 0; k < labels->count; k++) size[role_of(&labels->at[k])] *= labels->at[k].size;
  const char *a = runs[0] + (runs[0][0] == 'B'), *b = runs[1] + (runs[1][0] == 'B'), *c = runs[2] + (runs[2][0] == 'B');
  pd_product *p = &gemm->product;
  *p = (pd_product){.ta = a[0] == 'K', .tb = b[0] == 'N', .accumulate = op->accumulate != NO_ID, .m = size[ROLE_M],
                    .n = size[ROLE_N], .k = size[ROLE_K], .batch = size[ROLE_BATCH],
                    .a_bytes = element_bytes(w, write_type(w, op->in[0])), .b_bytes = element_bytes(w, write_type(w, op->in[1])),
                    .c_bytes = element_bytes(w, write_target_type(w, op))};
  gemm->swapped = c[0] == 'N';
  return p->a_bytes == p->b_bytes; /* cuBLASLt has no mixed operands */
}

static void write_host_gemm(Writer *w, const pd_product *p, bool swapped, const char *pa, const char *pb, const char *pc) {
  if (p->batch > 1) {
    write_line(w, "for (int64_t i = 0; i < %lld; i++)", (long long)p->batch);
    pa = arena_printf(w->input->arena, "%s + i * %lld", pa, (long long)(p->m * p->k));
    pb = arena_printf(w->input->arena, "%s + i * %lld", pb, (long long)(p->k * p->n));
    pc = arena_printf(w->input->arena, "%s + i * %lld", pc, (long long)(p->m * p->n));
    w->indent++;
  }
  const char *beta = p->accumulate ? "1" : "0";
  int64_t lda = p->ta ? p->m : p->k, ldb = p->tb ? p->k : p->n;
  if (!swapped)
    write_line(w, "K->gemm(%s, %s, %lld, %lld, %lld, 1, %s, %lld, %s, %lld, %s, %s, %lld);", p->ta ? "true" : "false",
               p->tb ? "true" : "false", (long long)p->m, (long long)p->n, (long long)p->k, pa, (long long)lda, pb, (long long)ldb,
               beta, pc, (long long)p->n);
  else /* C^T = B^T A^T */
    write_line(w, "K->gemm(%s, %s, %lld, %lld, %lld, 1, %s, %lld, %s, %lld, %s, %s, %lld);", p->tb ? "false" : "true",
               p->ta ? "false" : "true", (long long)p->n, (long long)p->m, (long long)p->k, pb, (long long)ldb, pa, (long long)lda,
               beta, pc, (long long)p->m);
  if (p->batch > 1) w->indent--;
}

static bool write_gemm(Writer *w, const Op *op, const Labels *labels) {
  Gemm gemm;
  if (!find_gemm(w, op, labels, &gemm)) return false;
  pd_product p = gemm.product;
  const char *pa = write_name(w, op->in[0]), *pb = write_name(w, op->in[1]), *pc = target(w, op);
  if (!w->cuda) write_host_gemm(w, &p, gemm.swapped, pa, pb, pc);
  else if (gemm.swapped) write_multiply(w, unswapped(&gemm), pb, pa, pc);
  else write_multiply(w, p, pa, pb, pc);
  return true;
}

/* Sums over samples in the forward pass are scaled in evaluation, which a product cannot do. */
static bool is_product(const Writer *w, const Op *op, const Labels *labels) {
  bool sums_batch = false;
  for (unsigned k = 0; k < labels->count; k++) sums_batch |= labels->at[k].batch && !labels->at[k].present[2];
  return op->in_count == 2 && (op->real[0] == 0 || op->real[0] == 1) && !(sums_batch && w->function == FUNCTION_FORWARD);
}

bool find_plain_product(const Writer *w, const Op *op, pd_product *product, Id operands[2]) {
  Labels labels = labels_of(w, op);
  Gemm gemm;
  if (!is_product(w, op, &labels) || !find_gemm(w, op, &labels, &gemm) || gemm.product.batch > 1) return false;
  *product = gemm.swapped ? unswapped(&gemm) : gemm.product;
  operands[0] = op->in[gemm.swapped], operands[1] = op->in[!gemm.swapped];
  return true;
}

void write_product(Writer *w, const Op *op) {
  Labels labels = labels_of(w, op);
  if (!is_product(w, op, &labels) || !write_gemm(w, op, &labels)) write_general(w, op, &labels, op->real[0] != 0 ? op->real[0] : 1);
}

void write_sum(Writer *w, const Op *op) {
  Labels labels = labels_of(w, op);
  const Value *in = &w->graph->values.at[op->in[0]], *out = &w->graph->values.at[op->out[0]];
  int64_t total = write_elements(w, op->in[0]), kept = write_elements(w, op->out[0]);
  bool leading = true, trailing = true; /* the result's labels are a leading or trailing run of the input's */
  for (unsigned i = 0; i < out->rank; i++) {
    leading &= op->label[2][i] == op->label[0][i];
    trailing &= op->label[2][i] == op->label[0][in->rank - out->rank + i];
  }
  bool sums_batch = false;
  for (unsigned k = 0; k < labels.count; k++) sums_batch |= labels.at[k].batch && !labels.at[k].present[2];
  if (op->real[0] != 1 || (sums_batch && w->function == FUNCTION_FORWARD) || !(leading || trailing)) {
    write_general(w, op, &labels, op->real[0]);
    return;
  }
  bool by_rows = trailing && out->rank > 0;
  Call call = call_begin(w, by_rows ? "sum_rows" : "sum_cols");
  call_type(&call, write_type(w, op->in[0]));
  call_type(&call, write_target_type(w, op));
  call_size(&call, by_rows ? total / kept : kept);
  if (by_rows) call_width(&call, kept);
  else call_size(&call, total / kept);
  call_in(&call, op->in[0]);
  call_second(&call, op);
  call_flag(&call, op->accumulate != NO_ID);
  call_target(&call, op);
  call_end(&call);
}
