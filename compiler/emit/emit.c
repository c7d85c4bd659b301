/* The emitted sources, top to bottom. */
#include "emit/writer.h"

static Writer writer_of(const EmitInput *input, Text *out) {
  bool wide = input->config->compute == PRECISION_F64;
  return (Writer){.input = input, .graph = input->graph, .config = input->config, .memory = input->memory, .out = out,
                  .real = wide ? "double" : "float", .suffix = wide ? "f64" : "f32",
                  .cuda = input->config->target == TARGET_CUDA};
}

static void write_opening(Writer *w) {
  const EmitInput *input = w->input;
  const Config *config = input->config;
  if (config->dp_open)
    write_line(w, "/* %s, made by %s: pipeline %lld x data * x tensor %lld, micro-batches of %lld.", input->graph->model,
               input->program->compiler, (long long)config->pp, (long long)config->tp, (long long)config->microbatch);
  else
    write_line(w, "/* %s, made by %s: pipeline %lld x data %lld x tensor %lld, %lld micro-batches of %lld.", input->graph->model,
               input->program->compiler, (long long)config->pp, (long long)config->dp, (long long)config->tp,
               (long long)config->microbatches, (long long)config->microbatch);
  write_line(w, " * Every tensor is one micro-batch's part on one rank; shapes stand beside the pointers. */");
}

void emit_c(const EmitInput *input, Text *out) {
  Writer writer = writer_of(input, out);
  Writer *w = &writer;
  write_opening(w);
  write_line(w, "#include <math.h>");
  write_line(w, "#include <string.h>");
  write_blank(w);
  write_line(w, "#include \"kernels/math.h\"");
  write_line(w, "#include \"program.h\"");
  write_line(w, "#include \"random.h\"");
  write_blank(w);
  write_line(w, "typedef %s real;", writer.real);
  write_line(w, "static const pd_kernels_%s *K; // the kernel set in use", writer.suffix);
  write_blank(w);
  for (uint32_t s = 0; s < input->graph->segments.count; s++) write_functions(w, s);
  write_tables(w);
}

static void write_products(Writer *w) {
  static const char *const epilogues[] = {"", ", .epilogue = PD_EPILOGUE_BIAS", ", .epilogue = PD_EPILOGUE_BIAS_GELU",
                                          ", .epilogue = PD_EPILOGUE_GELU_GRAD", ", .epilogue = PD_EPILOGUE_ROW_SUMS"};
  if (!w->products.count) return;
  write_line(w, "/* matrix products, by cuBLASLt; the plans are made at the start */");
  write_line(w, "static pd_product products[] = {");
  for (uint32_t i = 0; i < w->products.count; i++) {
    const pd_product *p = &w->products.at[i];
    write_line(w, "{.m = %lld, .n = %lld, .k = %lld, .batch = %lld, .ta = %d, .tb = %d, .accumulate = %d, .a_bytes = %d, .b_bytes = %d, .c_bytes = %d%s},",
               (long long)p->m, (long long)p->n, (long long)p->k, (long long)p->batch, p->ta, p->tb, p->accumulate, p->a_bytes,
               p->b_bytes, p->c_bytes, epilogues[p->epilogue]);
  }
  write_line(w, "};");
  write_blank(w);
}

static void write_constants(Writer *w) {
  const pd_program *program = w->input->program;
  if (!program->constant_count) return;
  write_line(w, "static const float constants[] = {");
  for (int i = 0; i < program->constant_count; i++) write_line(w, "%s,", write_number(w, (double)program->constants[i]));
  write_line(w, "};");
  write_blank(w);
}

void emit_cuda(const EmitInput *input, const char *name, Text *c, Text *cu) {
  Arena *arena = input->arena;
  bool narrow = real_bytes(input->config) == 2;
  Text functions = {.arena = arena}, prototypes = {.arena = arena}, kernels = {.arena = arena};
  Writer writer = writer_of(input, &functions);
  Writer *w = &writer;
  w->device = &kernels;
  w->prototypes = &prototypes;
  for (uint32_t s = 0; s < input->graph->segments.count; s++) write_functions(w, s);
  w->out = c;
  write_opening(w);
  write_line(w, "#include \"cuda/launch.h\"");
  write_line(w, "#include \"random.h\"");
  write_blank(w);
  write_line(w, narrow ? "typedef uint16_t real; // bf16" : "typedef float real;");
  write_blank(w);
  write_line(w, "/* kernels, in %s.cu */", name);
  text_put(c, prototypes.at ? prototypes.at : "", prototypes.length);
  write_blank(w);
  write_products(w);
  write_attentions(w);
  write_constants(w);
  text_put(c, functions.at ? functions.at : "", functions.length);
  write_tables(w);
  w->out = cu;
  write_line(w, "/* Kernels of %s, made by %s: specialised to the sizes of one micro-batch's part on one rank. */", input->graph->model,
             input->program->compiler);
  if (narrow) write_line(w, "#define PD_BF16");
  write_line(w, "#include \"pd_device.cuh\"");
  write_line(w, "#include \"pd_math.cuh\"");
  for (uint32_t i = 0; i < w->headers.count; i++) write_line(w, "#include \"pd_%s.cuh\"", w->headers.at[i]);
  write_blank(w);
  write_line(w, narrow ? "typedef __nv_bfloat16 real;" : "typedef float real;");
  write_line(w, "#include \"runtime.cuh\"");
  write_blank(w);
  text_put(cu, kernels.at ? kernels.at : "", kernels.length);
}
