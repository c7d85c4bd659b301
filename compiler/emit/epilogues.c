/* CUDA: a product that also does the element-wise operations behind it, or the sum of its operand's rows. Devices differ in whether that pays, so both forms
 * are emitted, and the runtime makes plans for products with epilogues where it does. */
#include "emit/writer.h"

/* What follows a product and can be its epilogue: `done` operations of the group behind it. */
typedef struct Fusion {
  pd_epilogue epilogue;
  Id result, row, kept; /* NO_ID: none */
  uint32_t done;
} Fusion;

static unsigned reads_of(const Writer *w, Id value) {
  unsigned reads = 0;
  for (FunctionKind f = 0; f < FUNCTION_KINDS; f++) {
    const IdVec *list = segment_list(&w->graph->segments.at[w->segment], f);
    for (uint32_t i = 0; i < list->count; i++)
      for (unsigned k = 0; k < w->graph->ops.at[list->at[i]].in_count; k++)
        reads += w->memory->root[w->graph->ops.at[list->at[i]].in[k]] == w->memory->root[value];
  }
  return reads;
}

static bool has_memory(const Writer *w, Id value) {
  Place place = w->memory->home[value].place;
  return place != PLACE_REGISTER && place != PLACE_NONE;
}

static bool is_real(const Writer *w, Id value) {
  return w->graph->values.at[value].kind != VALUE_CONST && !value_is_wide(w->graph, w->memory->root[value]);
}

static bool find_bias(const Writer *w, const Id *ops, uint32_t count, Id out, const pd_product *product, Fusion *fusion) {
  const Op *add = &w->graph->ops.at[ops[0]];
  unsigned row = add->in[0] == out ? 1 : 0;
  int64_t cols = 0;
  if (add->kind != OP_ADD || add->in[1 - row] != out || add->in[row] == out || !is_real(w, add->in[row])) return false;
  if (operand_broadcast(w->graph, w->config, add, row, &cols) != BROADCAST_ROW || cols != product->n) return false;
  *fusion = (Fusion){PD_EPILOGUE_BIAS, add->out[0], add->in[row], NO_ID, 1};
  if (count < 2 || product->n % 8 != 0 || !has_memory(w, add->out[0])) return true;
  const Op *gelu = &w->graph->ops.at[ops[1]];
  if (gelu->kind == OP_GELU_TANH && gelu->in[0] == add->out[0] && has_memory(w, gelu->out[0]))
    *fusion = (Fusion){PD_EPILOGUE_BIAS_GELU, gelu->out[0], add->in[row], add->out[0], 2};
  return true;
}

static bool find_gelu_grad(const Writer *w, const Id *ops, Id out, const pd_product *product, Fusion *fusion) {
  const Op *op = &w->graph->ops.at[ops[0]];
  if (op->kind != OP_GELU_TANH_GRAD || op->in[1] != out || op->in[0] == out || !is_real(w, op->in[0])) return false;
  if (product->n % 8 != 0 || !has_memory(w, op->in[0]) || !has_memory(w, op->out[0])) return false;
  if (write_elements(w, op->in[0]) != write_elements(w, out)) return false;
  *fusion = (Fusion){PD_EPILOGUE_GELU_GRAD, op->out[0], NO_ID, op->in[0], 1};
  return true;
}

/* Scratch of the result may be that of an operand which nobody else reads any more. */
static bool overlap(const Writer *w, Id written, Id read) {
  if (written == NO_ID) return false;
  Home a = w->memory->home[w->memory->root[written]], b = w->memory->home[w->memory->root[read]];
  if (a.place != PLACE_SCRATCH || b.place != PLACE_SCRATCH) return false;
  return a.offset < b.offset + value_bytes(w->graph, w->config, read) && b.offset < a.offset + value_bytes(w->graph, w->config, written);
}

uint32_t write_fused_product(Writer *w, const Id *ops, uint32_t count) {
  const Op *op = &w->graph->ops.at[ops[0]];
  Id out = op->out[0];
  pd_product product;
  Id operands[2];
  Fusion fusion;
  if (count < 2 || op->accumulate != NO_ID || reads_of(w, out) != 1 || !find_plain_product(w, op, &product, operands)) return 0;
  if (!find_bias(w, ops + 1, count - 1, out, &product, &fusion) && !find_gelu_grad(w, ops + 1, out, &product, &fusion)) return 0;
  for (unsigned k = 0; k < 2; k++)
    if (overlap(w, fusion.result, op->in[k]) || (fusion.epilogue == PD_EPILOGUE_BIAS_GELU && overlap(w, fusion.kept, op->in[k]))) return 0;
  Id root = w->memory->root[fusion.result];
  const char *name = w->names[root], *a = write_name(w, operands[0]), *b = write_name(w, operands[1]), *c = write_name(w, out);
  if (has_memory(w, fusion.result)) c = write_name(w, fusion.result);
  else w->names[root] = c; /* it takes the product's memory */
  pd_product with = product;
  with.epilogue = fusion.epilogue;
  uint32_t number = product_number(w, &with);
  write_line(w, "if (products[%u].plan != NULL) {", number);
  write_line(w, "pd_multiply_fused(f, &products[%u], %s, %s, %s, %s, %s);", number, a, b,
             fusion.row == NO_ID ? "NULL" : write_name(w, fusion.row),
             fusion.kept == NO_ID ? "NULL" : arena_printf(w->input->arena, "(void *)%s", write_name(w, fusion.kept)), c);
  if (1 + fusion.done < count) write_fused(w, ops + 1 + fusion.done, count - 1 - fusion.done);
  w->names[root] = name;
  write_line(w, "} else {");
  write_product(w, op);
  write_fused(w, ops + 1, count - 1);
  write_line(w, "}");
  return count;
}

/* ---- a sum over rows beside a product ---- */

static bool is_row_sum(const Graph *graph, const Op *op) {
  if (op->kind != OP_SUM || op->accumulate == NO_ID || op->in_count != 1 || op->real[0] != 1) return false;
  const Value *in = &graph->values.at[op->in[0]], *out = &graph->values.at[op->out[0]];
  for (unsigned i = 0; i < out->rank; i++)
    if (op->label[2][i] != op->label[0][in->rank - out->rank + i]) return false;
  return out->rank > 0 && out->rank < in->rank;
}

static bool accumulates_product_of(const Op *op, Id operand) {
  return op->kind == OP_CONTRACT && op->accumulate != NO_ID && op->in_count == 2 && (op->in[0] == operand || op->in[1] == operand);
}

Id find_product_of_row_sum(const Graph *graph, const IdVec *list, Id sum) {
  const Op *op = &graph->ops.at[sum];
  for (uint32_t i = 0; i < list->count && list->at[i] != sum; i++)
    if (is_row_sum(graph, &graph->ops.at[list->at[i]]) && graph->ops.at[list->at[i]].in[0] == op->in[0]) return NO_ID; /* one is enough */
  for (uint32_t i = 0; i < list->count && is_row_sum(graph, op); i++)
    if (accumulates_product_of(&graph->ops.at[list->at[i]], op->in[0])) return list->at[i];
  return NO_ID;
}

/* The product that makes the sum too, if it is one that can: the sum is over rows of its second operand. */
static bool find_summing_product(const Writer *w, Id op, Id sum, pd_product *product, Id operands[2]) {
  const Op *add = &w->graph->ops.at[sum];
  if (!find_plain_product(w, &w->graph->ops.at[op], product, operands)) return false;
  product->epilogue = PD_EPILOGUE_ROW_SUMS;
  return operands[1] == add->in[0] && !product->tb && product->n == write_elements(w, add->out[0]);
}

bool is_summed_by_product(const Writer *w, const IdVec *list, Id sum) {
  const Id product = find_product_of_row_sum(w->graph, list, sum);
  pd_product found;
  Id operands[2];
  return product != NO_ID && find_summing_product(w, product, sum, &found, operands);
}

bool write_summing_product(Writer *w, const IdVec *list, Id op) {
  Id sum = NO_ID, operands[2];
  pd_product product;
  for (uint32_t i = 0; i < list->count && sum == NO_ID; i++)
    if (accumulates_product_of(&w->graph->ops.at[op], w->graph->ops.at[list->at[i]].in[0]) &&
        find_product_of_row_sum(w->graph, list, list->at[i]) == op)
      sum = list->at[i];
  if (sum == NO_ID || !find_summing_product(w, op, sum, &product, operands)) return false;
  const Op *multiply = &w->graph->ops.at[op], *add = &w->graph->ops.at[sum];
  const uint32_t number = product_number(w, &product);
  write_line(w, "if (products[%u].plan != NULL) {", number);
  write_line(w, "pd_multiply_sum_rows(f, &products[%u], %s, %s, %s, %s);", number, write_name(w, operands[0]), write_name(w, operands[1]),
             write_gradient(w, multiply->accumulate), write_gradient(w, add->accumulate));
  write_line(w, "} else {");
  write_product(w, multiply);
  write_sum(w, add);
  write_line(w, "}");
  return true;
}
