/* The emitted source, top to bottom. */
#include "emit/writer.h"

void emit_c(const EmitInput *input, Text *out) {
  bool wide = input->config->compute == PRECISION_F64;
  Writer writer = {.input = input, .graph = input->graph, .config = input->config, .memory = input->memory, .out = out,
                   .real = wide ? "double" : "float", .suffix = wide ? "f64" : "f32"};
  Writer *w = &writer;
  write_line(w, "/* %s, made by %s: pipeline %lld x data %lld x tensor %lld, %lld micro-batches of %lld.", input->graph->model,
             input->program->compiler, (long long)input->config->pp, (long long)input->config->dp, (long long)input->config->tp,
             (long long)input->config->microbatches, (long long)input->config->microbatch);
  write_line(w, " * Every tensor is one micro-batch's part on one rank; shapes stand beside the pointers. */");
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
