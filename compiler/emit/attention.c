/* Attention: by the host's kernels, by the CUDA target's own, or by cuDNN where it can. A program for CUDA has both of
 * the latter unless --attention says otherwise, since only where it runs is it known which cuDNN is there. */
#include <string.h>

#include "emit/writer.h"

/* What cuDNN's engines ask for beside what their sums need: up to 512 bytes seen, of 9.19 on sm_80, 90 and 100. */
#define ENGINE_SPACE ((int64_t)64 << 10)

static pd_attention entry_of(const Graph *graph, const Config *config, const Op *op) {
  const Value *q = &graph->values.at[op->in[0]], *k = &graph->values.at[op->in[1]];
  const bool gradient = op->kind == OP_SDPA_GRAD;
  return (pd_attention){.b = axis_local(graph, config, q->axes[0]), .s = axis_local(graph, config, q->axes[1]),
                        .t = axis_local(graph, config, k->axes[1]), .h = axis_local(graph, config, q->axes[2]),
                        .g = axis_local(graph, config, k->axes[2]), .d = axis_local(graph, config, q->axes[3]),
                        .causal = op->integer[0] != 0, .gradient = gradient, .any_order = gradient && config->attention.any_order};
}

static bool is_attention(const Op *op) {
  return op->kind == OP_SDPA || op->kind == OP_SDPA_GRAD;
}

const char *attention_obstacle(Arena *arena, const Graph *graph, const Config *config, const Op *op) {
  const pd_attention entry = entry_of(graph, config, op);
  const int64_t most = config->attention.heads[entry.gradient];
  if (config->compute != PRECISION_BF16) return "it computes in bf16, and this program does not (precision < compute=bf16; >)";
  if (entry.d % 8) return arena_printf(arena, "heads of %lld elements are not a multiple of 8", (long long)entry.d);
  if (entry.d > most)
    return arena_printf(arena, "heads of %lld elements are longer than the %lld that %s takes on the architectures built for",
                        (long long)entry.d, (long long)most, entry.gradient ? "its gradient" : "it");
  if (entry.s == 1 && entry.t == 1) return "one query and one key";
  return NULL;
}

static bool by_cudnn(Arena *arena, const Graph *graph, const Config *config, const Op *op) {
  const AttentionChoice choice = config->attention.choice;
  if (config->target != TARGET_CUDA || choice == ATTENTION_OWN) return false;
  return (choice == ATTENTION_CUDNN || config->attention.library) && !attention_obstacle(arena, graph, config, op);
}

static int64_t rounded(int64_t n, int64_t step) {
  return (n + step - 1) / step * step;
}

/* What an entry needs in the workspace: attention_cudnn.c keeps a number for every row, and those of query heads where
 * they share keys; engines keep the scores' gradient, of whole tiles, or float sums of dq twice. */
static int64_t space_of(const pd_attention *z) {
  if (!z->gradient) return ENGINE_SPACE;
  const int64_t rows = z->b * z->h * z->s, keys = z->b * z->h * z->t;
  int64_t bytes = ENGINE_SPACE + rounded(rows * 4, 256);
  if (z->h != z->g) bytes += 2 * rounded(keys * z->d * 2, 256);
  return bytes + (z->any_order ? 2 * rounded(rows * z->d * 4, 256) : 2 * z->b * z->h * rounded(z->s, 128) * rounded(z->t, 128));
}

void attention_describe(Arena *arena, const Graph *graph, const Config *config, pd_program *program) {
  program->attention_required = config->attention.choice == ATTENTION_CUDNN;
  for (uint32_t i = 0; i < graph->ops.count; i++) {
    if (!is_attention(&graph->ops.at[i]) || !by_cudnn(arena, graph, config, &graph->ops.at[i])) continue;
    const pd_attention entry = entry_of(graph, config, &graph->ops.at[i]);
    if (space_of(&entry) > program->attention_space) program->attention_space = space_of(&entry);
  }
}

void attention_say(Arena *arena, const Graph *graph, const Config *config, FILE *out) {
  static const char *const directions[] = {"attention", "gradient of attention"};
  bool said[2] = {false, false};
  for (uint32_t i = 0; i < graph->ops.count; i++) {
    const Op *op = &graph->ops.at[i];
    const int gradient = op->kind == OP_SDPA_GRAD;
    if (!is_attention(op) || config->target != TARGET_CUDA || said[gradient]) continue;
    said[gradient] = true;
    const char *why = config->attention.choice == ATTENTION_OWN ? "--attention=own"
                      : !config->attention.library && config->attention.choice == ATTENTION_AUTO
                          ? "this pdc was built where cuDNN was not"
                          : attention_obstacle(arena, graph, config, op);
    if (why) fprintf(out, "%s: by kernels of its own: %s\n", directions[gradient], why);
    else if (config->attention.choice == ATTENTION_CUDNN) fprintf(out, "%s: by cuDNN\n", directions[gradient]);
    else fprintf(out, "%s: by cuDNN where the program finds it, else by kernels of its own\n", directions[gradient]);
  }
}

static void write_kernel(Writer *w, const Op *op, const pd_attention *z) {
  Call call = call_begin(w, op_name(op->kind));
  call_type(&call, write_type(w, op->in[0]));
  call_size(&call, z->b);
  call_size(&call, z->s);
  call_size(&call, z->t);
  call_size(&call, z->h);
  call_size(&call, z->g);
  call_width(&call, z->d);
  call_flag(&call, z->causal);
  for (unsigned i = 0; i < op->in_count; i++) call_in(&call, op->in[i]);
  for (unsigned i = 0; i < op->out_count; i++) call_out(&call, op->out[i]);
  call_end(&call);
}

/* The entry's number in the program's table, where equal ones are one. */
static uint32_t attention_number(Writer *w, const pd_attention *z) {
  for (uint32_t i = 0; i < w->attentions.count; i++) {
    const pd_attention *a = &w->attentions.at[i];
    if (a->b == z->b && a->s == z->s && a->t == z->t && a->h == z->h && a->g == z->g && a->d == z->d && a->causal == z->causal &&
        a->gradient == z->gradient)
      return i;
  }
  vec_push(w->input->arena, &w->attentions, *z);
  return w->attentions.count - 1;
}

void write_attention(Writer *w, const Op *op) {
  Arena *arena = w->input->arena;
  const pd_attention entry = entry_of(w->graph, w->config, op);
  if (!by_cudnn(arena, w->graph, w->config, op)) {
    write_kernel(w, op, &entry);
    return;
  }
  const uint32_t number = attention_number(w, &entry);
  const bool both = w->config->attention.choice == ATTENTION_AUTO;
  Text operands = {.arena = arena};
  for (unsigned i = 0; i < op->in_count; i++) text_printf(&operands, ", %s", write_name(w, op->in[i]));
  for (unsigned i = 0; i < op->out_count; i++) text_printf(&operands, ", %s", write_name(w, op->out[i]));
  if (both) write_line(w, "if (attentions[%u].plan != NULL) {", number);
  write_line(w, "pd_attend%s(f, &attentions[%u]%s);", entry.gradient ? "_grad" : "", number, operands.at);
  if (!both) return;
  write_line(w, "} else {");
  write_kernel(w, op, &entry);
  write_line(w, "}");
}

void write_attentions(Writer *w) {
  if (!w->attentions.count) return;
  write_line(w, "/* attention by cuDNN; the plans are made at the start, and where there is none, kernels do it */");
  write_line(w, "static pd_attention attentions[] = {");
  for (uint32_t i = 0; i < w->attentions.count; i++) {
    const pd_attention *z = &w->attentions.at[i];
    write_line(w, "{.b = %lld, .s = %lld, .t = %lld, .h = %lld, .g = %lld, .d = %lld, .causal = %d, .gradient = %d, .any_order = %d},",
               (long long)z->b, (long long)z->s, (long long)z->t, (long long)z->h, (long long)z->g, (long long)z->d, z->causal,
               z->gradient, z->any_order);
  }
  write_line(w, "};");
  write_blank(w);
}
