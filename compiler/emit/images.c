/* Calls of the kernels on images: convolutions, pools and batch normalisation. */
#include "emit/writer.h"

static int64_t local(const Writer *w, Id axis) {
  return axis_local(w->graph, w->config, axis);
}

/* `const pd_image_window v = {…};` of an operation on images: `image` is the larger one, `places` the one of the window's places. */
static const char *write_window(Writer *w, const Op *op, Id image, Id places) {
  const Value *x = &w->graph->values.at[image], *y = &w->graph->values.at[places];
  const char *name = write_fresh(w, "window");
  write_line(w, "const pd_image_window %s = {.n = %lld, .channels = %lld, .h = %lld, .w = %lld, .filters = %lld, .kh = %lld, .kw = %lld,", name,
             (long long)local(w, x->axes[0]), (long long)local(w, x->axes[1]), (long long)local(w, x->axes[2]),
             (long long)local(w, x->axes[3]), (long long)local(w, y->axes[1]), (long long)op->integer[0], (long long)op->integer[1]);
  write_line(w, "  .stride = %lld, .pad = %lld, .oh = %lld, .ow = %lld};", (long long)op->integer[2], (long long)op->integer[3],
             (long long)local(w, y->axes[2]), (long long)local(w, y->axes[3]));
  return name;
}

void write_image(Writer *w, const Op *op) {
  Id image = op->in[0], places = op->out[0]; /* forward */
  const char *to = op->accumulate != NO_ID ? write_gradient(w, op->accumulate) : write_name(w, op->out[0]);
  if (op->kind == OP_CONV2D_INPUT_GRAD || op->kind == OP_MAXPOOL_GRAD) image = op->out[0], places = op->in[1];
  if (op->kind == OP_CONV2D_FILTER_GRAD) places = op->in[1];
  if (op->kind == OP_AVGPOOL_GRAD) image = op->out[0], places = op->in[0];
  const char *window = write_window(w, op, image, places);
  if (op->kind == OP_CONV2D_FILTER_GRAD && op->accumulate == NO_ID)
    write_line(w, "K->fill(%lld, 0, %s);", (long long)write_elements(w, op->out[0]), to);
  if (op->in_count == 2)
    write_line(w, "K->%s(&%s, %s, %s, %s);", op_name(op->kind), window, write_name(w, op->in[0]), write_name(w, op->in[1]), to);
  else write_line(w, "K->%s(&%s, %s, %s);", op_name(op->kind), window, write_name(w, op->in[0]), to);
}

void write_batchnorm(Writer *w, const Op *op) {
  const Value *x = &w->graph->values.at[op->in[0]];
  const char *sizes = arena_printf(w->input->arena, "%lld, %lld, %lld, %s", (long long)local(w, x->axes[0]), (long long)local(w, x->axes[1]),
                                   (long long)axes_local_elements(w->graph, w->config, x->rank - 2u, x->axes + 2), write_number(w, op->real[0]));
  const char *in[3];
  for (unsigned k = 0; k < 3; k++) in[k] = write_name(w, op->in[k]);
  if (op->kind == OP_BATCHNORM_GRAD) {
    write_line(w, "K->batchnorm_grad(%s, %s, %s, %s, %s);", sizes, in[0], in[1], in[2], write_name(w, op->out[0]));
    return;
  }
  const char *y = write_name(w, op->out[0]);
  write_line(w, "if (f->training) K->batchnorm(%s, %s, %s, %s, %s);", sizes, in[0], y, write_name(w, op->out[1]), write_name(w, op->out[2]));
  write_line(w, "else K->batchnorm_given(%s, %s, %s, %s, %s);", sizes, in[0], in[1], in[2], y);
}
