/* The description of the program as C initialisers. */
#include <string.h>

#include "emit/writer.h"

static const char *quoted(Writer *w, const char *text) {
  Text out = {.arena = w->input->arena};
  text_put(&out, "\"", 1);
  for (const char *s = text ? text : ""; *s; s++) {
    if (*s == '"' || *s == '\\') text_printf(&out, "\\%c", *s);
    else if ((unsigned char)*s < 32 || (unsigned char)*s > 126) text_printf(&out, "\\%03o", (unsigned char)*s);
    else text_put(&out, s, 1);
  }
  text_put(&out, "\"", 1);
  return out.at;
}

/* `{1, 2, 3}`; `{0}` for none, since C has no empty initialiser. */
static const char *longs(Writer *w, const int64_t *at, int count) {
  Text out = {.arena = w->input->arena};
  text_put(&out, "{", 1);
  for (int i = 0; i < count; i++) text_printf(&out, "%s%lld", i ? ", " : "", (long long)at[i]);
  if (!count) text_put(&out, "0", 1);
  text_put(&out, "}", 1);
  return out.at;
}

static const char *ints(Writer *w, const int *at, int count) {
  int64_t *wide = ARENA_ARRAY(w->input->arena, int64_t, count + 1);
  for (int i = 0; i < count; i++) wide[i] = at[i];
  return longs(w, wide, count);
}

static const char *flags(Writer *w, const bool *at, int count) {
  int64_t *wide = ARENA_ARRAY(w->input->arena, int64_t, count + 1);
  for (int i = 0; i < count; i++) wide[i] = at[i];
  return longs(w, wide, count);
}

static void write_segments(Writer *w, const pd_program *p) {
  write_line(w, "static const pd_segment_info segments[] = {");
  for (int s = 0; s < p->segment_count; s++) {
    const pd_segment_info *i = &p->segments[s];
    write_line(w, "{.name = \"%s\", .trips = %lld, .in_count = %d, .out_count = %d, .shared_count = %d,", i->name, (long long)i->trips,
               i->in_count, i->out_count, i->shared_count);
    write_line(w, " .in_wire = %s, .in_carried = %s, .out_wire = %s,", ints(w, i->in_wire, i->in_count), ints(w, i->in_carried, i->in_count),
               ints(w, i->out_wire, i->out_count));
    write_line(w, " .needs_d_out = %s, .gives_d_in = %s, .shared = %s, .uses_data = %s,", flags(w, i->needs_d_out, i->out_count),
               flags(w, i->gives_d_in, i->in_count), ints(w, i->shared, i->shared_count), flags(w, i->uses_data, p->data_count));
    write_line(w, " .act_bytes = %lld, .stash_bytes = %lld, .scratch_bytes = %lld, .tp_elements = %lld,", (long long)i->act_bytes,
               (long long)i->stash_bytes, (long long)i->scratch_bytes, (long long)i->tp_elements);
    write_line(w, " .weight_elements = %lld, .trained_elements = %lld, .has_weight_grad = %d,", (long long)i->weight_elements,
               (long long)i->trained_elements, i->has_weight_grad);
    write_line(w, " .forward = %s_forward, .input_grad = %s_input_grad, .weight_grad = %s_weight_grad},", i->name, i->name, i->name);
    w->indent = 1;
  }
  write_line(w, "};");
  write_blank(w);
}

static void write_parameters(Writer *w, const pd_program *p) {
  static const char *const inits[] = {"PD_INIT_NUMBER", "PD_INIT_NORMAL", "PD_INIT_UNIFORM"};
  write_line(w, "static const pd_param_info params[] = {");
  for (int k = 0; k < p->param_count; k++) {
    const pd_param_info *i = &p->params[k];
    write_line(w, "{.name = %s, .rank = %d, .shape = %s, .split_axis = %d, .segment = %d, .per_trip = %d, .frozen = %d, .decay = %d,",
               quoted(w, i->name), i->rank, longs(w, i->shape, i->rank), i->split_axis, i->segment, i->per_trip, i->frozen, i->decay);
    if (i->statistic) write_line(w, " .statistic = true, .momentum = %.17g,", i->momentum);
    write_line(w, " .elements = %lld, .offset = %lld, .init = %s, .a = %.17g, .b = %.17g},", (long long)i->elements, (long long)i->offset,
               inits[i->init], i->a, i->b);
  }
  if (!p->param_count) write_line(w, "{.name = 0},");
  write_line(w, "};");
  write_blank(w);
}

static void write_rest(Writer *w, const pd_program *p) {
  write_line(w, "static const pd_wire_info wires[] = {");
  for (int k = 0; k < p->wire_count; k++)
    write_line(w, "{.name = %s, .elements = %lld, .needs_grad = %d, .wide = %d},", quoted(w, p->wires[k].name), (long long)p->wires[k].elements, p->wires[k].needs_grad,
               p->wires[k].wide);
  if (!p->wire_count) write_line(w, "{.name = 0},");
  write_line(w, "};");
  write_line(w, "static const pd_data_info data[] = {");
  for (int k = 0; k < p->data_count; k++) {
    const pd_data_info *i = &p->data[k];
    write_line(w, "{.name = %s, .is_integer = %d, .rank = %d, .shape = %s, .elements = %lld, .split_axis = %d, .limit = %lld, .is_target = %d, .ignored = %lld},",
               quoted(w, i->name), i->is_integer, i->rank, longs(w, i->shape, i->rank), (long long)i->elements, i->split_axis,
               (long long)i->limit, i->is_target, (long long)i->ignored);
  }
  write_line(w, "};");
  write_line(w, "static const char *const metrics[] = {");
  for (int k = 0; k < p->metric_count; k++) write_line(w, "%s,", quoted(w, p->metrics[k]));
  write_line(w, "0};");
  w->indent--;
  write_line(w, "static const int normalisers[] = %s;", ints(w, p->normalisers, p->normaliser_count));
  write_line(w, "static const pd_text_pair section_data[] = {");
  for (int k = 0; k < p->section_data_count; k++)
    write_line(w, "{%s, %s},", quoted(w, p->section_data[k].key), quoted(w, p->section_data[k].value));
  write_line(w, "{0, 0}};");
  w->indent--;
  write_blank(w);
}

static void write_cuda_members(Writer *w, const pd_program *p) {
  write_line(w, ".target = PD_TARGET_CUDA, .product_space = %lld, .product_row = %lld,", (long long)p->product_space,
             (long long)p->product_row);
  if (p->kernel_space) write_line(w, ".kernel_space = %lld,", (long long)p->kernel_space);
  if (p->constant_count) write_line(w, ".constants = constants, .constant_count = %d,", p->constant_count);
  if (w->products.count) write_line(w, ".products = products, .product_count = %u,", w->products.count);
  if (!w->attentions.count) return;
  write_line(w, ".attentions = attentions, .attention_count = %u, .attention_space = %lld, .attention_required = %d,", w->attentions.count,
             (long long)p->attention_space, p->attention_required);
  write_line(w, ".open_attentions = pd_cuda_open_attentions, .close_attentions = pd_cuda_close_attentions,");
}

/* The plan as a file that the assembler includes. */
static void write_plan(Writer *w, const char *symbol) {
  write_line(w, "__asm__(\".section .rodata\\n.global %s\\n%s:\\n.incbin %s\\n.byte 0\\n.previous\");", symbol, symbol,
             arena_printf(w->input->arena, "\\\"%s\\\"", w->input->plan_file));
}

/* With dp=* the plan of every degree, and what else depends on it. */
static void write_degrees(Writer *w) {
  write_plan(w, "pd_packed_plans");
  write_line(w, "extern const unsigned char pd_packed_plans[];");
  write_line(w, "static const pd_degree degrees[] = {");
  for (uint32_t k = 0; k < w->input->plan_count; k++) {
    const EmitPlan *plan = &w->input->plans[k];
    const pd_degree *d = &plan->degree;
    write_line(w, "/* sha256 %s */", plan->sha256);
    write_line(w, "{.dp = %d, .chunks = %d, .microbatches = %lld, .plan_bytes = %lld, .packed_at = %lld, .packed_bytes = %lld},", d->dp,
               d->chunks, (long long)d->microbatches, (long long)d->plan_bytes, (long long)d->packed_at, (long long)d->packed_bytes);
  }
  write_line(w, "};");
}

void write_tables(Writer *w) {
  const pd_program *p = w->input->program;
  static const char *const optimizers[] = {"PD_SGD", "PD_ADAM", "PD_ADAMW", "PD_LAMB"};
  static const char *const rates[] = {"PD_RATE_CONSTANT", "PD_RATE_COSINE", "PD_RATE_LINEAR", "PD_RATE_WSD"};
  write_segments(w, p);
  write_parameters(w, p);
  write_rest(w, p);
  bool open = w->config->dp_open;
  if (open) {
    write_degrees(w);
  } else {
    write_line(w, "/* the plan, sha256 %s */", w->input->plans[0].sha256);
    write_plan(w, "pd_plan_text");
    write_line(w, "extern const char pd_plan_text[];");
  }
  write_blank(w);
  if (!w->cuda) {
    write_line(w, "static void use_kernels(const char *set) {");
    write_line(w, "K = pd_kernels_select_%s(set);", w->suffix);
    write_line(w, "}");
    write_blank(w);
  }
  write_line(w, "static const pd_program program = {");
  write_line(w, ".model = %s, .compiler = %s, .real_bytes = sizeof(real),", quoted(w, p->model), quoted(w, p->compiler));
  write_line(w, ".pp = %d, .tp = %d, .batch = %lld, .microbatch = %lld,", p->pp, p->tp, (long long)p->batch, (long long)p->microbatch);
  if (open) write_line(w, ".degree_count = %u, .degrees = degrees, .packed_plans = pd_packed_plans,", w->input->plan_count);
  else write_line(w, ".dp = %d, .chunks = %d, .microbatches = %lld, .plan = pd_plan_text,", p->dp, p->chunks, (long long)p->microbatches);
  write_line(w, ".tokens_per_sample = %lld, .tokens_are_samples = %d, .recompute = %d,", (long long)p->tokens_per_sample, p->tokens_are_samples, p->recompute);
  write_line(w, ".segment_count = %d, .wire_count = %d, .param_count = %d, .data_count = %d, .metric_count = %d, .normaliser_count = %d,",
             p->segment_count, p->wire_count, p->param_count, p->data_count, p->metric_count, p->normaliser_count);
  write_line(w, ".segments = segments, .wires = wires, .params = params, .data = data, .metrics = metrics, .normalisers = normalisers,");
  write_line(w, ".loss_segment = %d, .logits_segment = %d, .logits_offset = %lld,", p->loss_segment, p->logits_segment, (long long)p->logits_offset);
  write_line(w, ".logits_rows_per_sample = %lld, .logits_classes = %lld, .logits_split = %d,", (long long)p->logits_rows_per_sample,
             (long long)p->logits_classes, p->logits_split);
  write_line(w, ".optimizer = %s, .beta1 = %.17g, .beta2 = %.17g, .eps = %.17g,", optimizers[p->optimizer], p->beta1, p->beta2, p->eps);
  write_line(w, ".decay = %.17g, .momentum = %.17g, .clip = %.17g,", p->decay, p->momentum, p->clip);
  write_line(w, ".rate = %s, .peak = %.17g, .floor = %.17g, .warmup = %.17g, .end = %.17g, .decay_from = %.17g,", rates[p->rate], p->peak, p->floor, p->warmup, p->end, p->decay_from);
  write_line(w, ".steps = %lld, .eval_every = %lld, .save_every = %lld, .log_every = %lld, .seed = %lld,", (long long)p->steps,
             (long long)p->eval_every, (long long)p->save_every, (long long)p->log_every, (long long)p->seed);
  write_line(w, ".checkpoint_dir = %s, .checkpoint_load = %s, .checkpoint_keep = %lld, .checkpoint_resume = %d,",
             p->checkpoint_dir ? quoted(w, p->checkpoint_dir) : "NULL", p->checkpoint_load ? quoted(w, p->checkpoint_load) : "NULL",
             (long long)p->checkpoint_keep, p->checkpoint_resume);
  write_line(w, ".section_data_count = %d, .section_data = section_data,", p->section_data_count);
  write_line(w, ".forward_flops = %.17g, .step_flops = %.17g, .peak_flops = %.17g,", p->forward_flops, p->step_flops, p->peak_flops);
  if (w->cuda) write_cuda_members(w, p);
  else write_line(w, ".use_kernels = use_kernels,");
  write_line(w, "};");
  write_blank(w);
  write_line(w, "int main(int argc, char **argv) {");
  write_line(w, "return pd_main(&program, argc, argv);");
  write_line(w, "}");
}
