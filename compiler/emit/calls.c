/* Calls of kernels. A host program calls through the table of its kernel set: `K->softmax(64, 128, x, y);`. A CUDA
 * program calls a launcher, `launch_softmax_128(f->stream, 64, x, y);`, that its .cu file defines once by instantiating
 * the template of that name: sizes inside a row are template arguments there, as are the types of elements. */
#include <string.h>

#include "emit/writer.h"

static const struct {
  const char *name, *header;
} families[] = {{"copy", "move"}, {"fill", "move"}, {"add", "move"}, {"scale", "move"}, {"contract", "contract"},
                {"sum_rows", "sum"}, {"sum_cols", "sum"}, {"layernorm", "norm"}, {"layernorm_grad", "norm"},
                {"rmsnorm", "norm"}, {"rmsnorm_grad", "norm"}, {"softmax", "softmax"}, {"softmax_grad", "softmax"},
                {"gather", "gather"}, {"gather_grad", "gather"}, {"sdpa", "attention"}, {"sdpa_grad", "attention"},
                {"rope", "attention"}, {"xent", "xent"}, {"xent_max", "xent"}, {"xent_sums", "xent"}, {"xent_loss", "xent"},
                {"xent_grad", "xent"}, {"accuracy", "xent"}, {"mse", "xent"}, {"mse_grad", "xent"},
                {"dropout", "dropout"}, {"add_result", "optimizer"}, {"max", "max"}, {"max_grad", "max"},
                {"maxpool", "pool"}, {"maxpool_grad", "pool"}, {"avgpool", "pool"}, {"avgpool_grad", "pool"},
                {"columns", "conv"}, {"columns_sum", "conv"}, {"batchnorm", "batchnorm"},
                {"batchnorm_given", "batchnorm"}, {"batchnorm_grad", "batchnorm"}};

Call call_begin(Writer *w, const char *name) {
  Call call = {.w = w, .name = name};
  Text *texts[] = {&call.arguments, &call.parameters, &call.inner, &call.types, &call.suffix};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) texts[i]->arena = w->input->arena;
  return call;
}

void call_type(Call *call, const char *type) {
  if (!call->w->cuda) return;
  text_printf(&call->types, "%s%s", call->types.length ? ", " : "", type);
  text_printf(&call->suffix, "%s%c", call->type_count++ ? "" : "_", type[0]);
}

void call_argument(Call *call, const char *type, const char *text) {
  text_printf(&call->arguments, "%s%s", call->arguments.length ? ", " : "", text);
  const char *space = type[strlen(type) - 1] == '*' ? "" : " ";
  text_printf(&call->parameters, ", %s%sa%u", type, space, call->count);
  text_printf(&call->inner, ", a%u", call->count++);
}

void call_size(Call *call, int64_t size) {
  call_argument(call, "int64_t", arena_printf(call->w->input->arena, "%lld", (long long)size));
}

void call_width(Call *call, int64_t size) {
  if (!call->w->cuda) {
    call_size(call, size);
    return;
  }
  text_printf(&call->types, "%s%lld", call->types.length ? ", " : "", (long long)size);
  text_printf(&call->suffix, "_%lld", (long long)size);
}

void call_real(Call *call, double number) {
  call_argument(call, "float", write_number(call->w, number));
}

void call_flag(Call *call, bool flag) {
  call_argument(call, "bool", flag ? "true" : "false");
}

void call_in(Call *call, Id value) {
  const char *type = arena_printf(call->w->input->arena, "const %s *", write_type(call->w, value));
  call_argument(call, type, write_name(call->w, value));
}

void call_out(Call *call, Id value) {
  call_argument(call, arena_printf(call->w->input->arena, "%s *", write_type(call->w, value)), write_name(call->w, value));
}

/* Defines the launcher, unless an equal one is there already. */
static void define_launcher(Call *call, const char *symbol) {
  Writer *w = call->w;
  for (uint32_t i = 0; i < w->launchers.count; i++)
    if (strcmp(w->launchers.at[i], symbol) == 0) return;
  vec_push(w->input->arena, &w->launchers, symbol);
  const char *header = "";
  for (size_t i = 0; i < sizeof families / sizeof *families; i++)
    if (strcmp(families[i].name, call->name) == 0) header = families[i].header;
  bool included = false;
  for (uint32_t i = 0; i < w->headers.count; i++) included |= strcmp(w->headers.at[i], header) == 0;
  if (!included) vec_push(w->input->arena, &w->headers, header);
  const char *declaration = arena_printf(w->input->arena, "void %s(cudaStream_t stream%s)", symbol,
                                         call->parameters.at ? call->parameters.at : "");
  text_printf(w->prototypes, "%s;\n", declaration);
  text_printf(w->device, "extern \"C\" %s {\n  pd_%s", declaration, call->name);
  if (call->types.length) text_printf(w->device, "<%s>", call->types.at);
  text_printf(w->device, "(stream%s);\n}\n", call->inner.at ? call->inner.at : "");
}

void call_end(Call *call) {
  Writer *w = call->w;
  const char *arguments = call->arguments.at ? call->arguments.at : "";
  if (!w->cuda) {
    write_line(w, "K->%s(%s);", call->name, arguments);
    return;
  }
  /* one type is the program's own, and goes without saying */
  const char *suffix = call->suffix.at ? call->suffix.at : "";
  if (strncmp(suffix, "_r", 2) == 0 && call->type_count == 1) suffix += 2;
  const char *symbol = arena_printf(w->input->arena, "launch_%s%s", call->name, suffix);
  define_launcher(call, symbol);
  write_line(w, "%s(f->stream, %s);", symbol, arguments);
}
