/* Calls of the kernels on images: convolutions, pools and batch normalisation. */
#include <string.h>

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

/* ---- convolutions on CUDA ----
 *
 * A group of images is laid out as columns, which is what makes a convolution a product: with [filters, channels * kh * kw]
 * the filters F, C the columns [channels * kh * kw, width] and Y the places of all images of the group side by side
 * [filters, width],
 *   Y = F C        dC = F^T dY        dF += dY C^T
 * Columns that travel backwards are f32: elements of an image are sums of several. */

#define COLUMN_BYTES (64 << 20) /* most of a group, or one image's: in bf16 half of it, which stays in the cache */

static int64_t pieces(int64_t n, int64_t size) {
  return (n + size - 1) / size;
}

ImageGroup group_images(const Graph *graph, const Config *config, const Op *op) {
  bool input = op->kind == OP_CONV2D_INPUT_GRAD, filter = op->kind == OP_CONV2D_FILTER_GRAD;
  const Value *x = &graph->values.at[input ? op->out[0] : op->in[0]], *y = &graph->values.at[input || filter ? op->in[1] : op->out[0]];
  int64_t n = axis_local(graph, config, x->axes[0]), filters = axis_local(graph, config, y->axes[1]);
  int64_t places = axis_local(graph, config, y->axes[2]) * axis_local(graph, config, y->axes[3]);
  ImageGroup group = {.rows = axis_local(graph, config, x->axes[1]) * op->integer[0] * op->integer[1]};
  int64_t most = COLUMN_BYTES / (4 * group.rows * places);
  if (most < 1) most = 1;
  group.images = pieces(n, pieces(n, most));
  group.width = pieces(group.images * places, 8) * 8;
  group.places_at = pieces(group.rows * group.width * 4, 256) * 256;
  group.bytes = group.places_at + filters * group.width * real_bytes(config);
  return group;
}

/* A loop over the groups of images of a convolution. */
typedef struct Groups {
  ImageGroup group;
  const char *first; /* number of a group's first image */
} Groups;

/* `launch_columns(f->stream, &window, first, images, width, from, to);` or its reverse, launch_columns_sum. */
static void write_columns(Writer *w, const char *name, const char *window, const Groups *groups, const char *from_type, const char *from,
                          const char *to_type, const char *to) {
  Call call = call_begin(w, name);
  call_type(&call, from_type);
  call_type(&call, to_type);
  call_argument(&call, "const pd_image_window *", arena_printf(w->input->arena, "&%s", window));
  call_argument(&call, "int64_t", groups->first);
  call_size(&call, groups->group.images);
  call_size(&call, groups->group.width);
  call_argument(&call, arena_printf(w->input->arena, "const %s *", from_type), from);
  call_argument(&call, arena_printf(w->input->arena, "%s *", to_type), to);
  call_end(&call);
}

/* The places of a convolution as windows of one position. */
static const char *write_places(Writer *w, const Value *y) {
  const char *name = write_fresh(w, "places");
  long long n = (long long)local(w, y->axes[0]), filters = (long long)local(w, y->axes[1]);
  long long h = (long long)local(w, y->axes[2]), width = (long long)local(w, y->axes[3]);
  write_line(w, "const pd_image_window %s = {.n = %lld, .channels = %lld, .h = %lld, .w = %lld, .filters = %lld, .kh = 1, .kw = 1,", name, n, filters,
             h, width, filters);
  write_line(w, "  .stride = 1, .oh = %lld, .ow = %lld};", h, width);
  return name;
}

static void write_convolution(Writer *w, const Op *op, const char *window, Id at_places, const char *to) {
  const Value *y = &w->graph->values.at[at_places];
  Groups groups = {group_images(w->graph, w->config, op), "0"};
  const ImageGroup *group = &groups.group;
  int64_t n = local(w, y->axes[0]), filters = local(w, y->axes[1]);
  int real = real_bytes(w->config), wide = strcmp(write_target_type(w, op), "float") == 0 ? 4 : real;
  const char *a = write_name(w, op->in[0]), *b = write_name(w, op->in[1]), *a_type = write_type(w, op->in[0]), *b_type = write_type(w, op->in[1]);
  const char *places = write_places(w, y), *columns = write_fresh(w, "columns"), *beside = write_fresh(w, "beside");
  const char *column_type = op->kind == OP_CONV2D_INPUT_GRAD ? "float" : "real";
  write_line(w, "%s *%s = f->space; // %lld x %lld", column_type, columns, (long long)group->rows, (long long)group->width);
  write_line(w, "real *%s = (void *)((char *)f->space + %lld); // %lld x %lld", beside, (long long)group->places_at, (long long)filters,
             (long long)group->width);
  if (group->images < n) {
    write_line(w, "for (int64_t i = 0; i < %lld; i += %lld) {", (long long)n, (long long)group->images);
    groups.first = "i";
  }
  if (op->kind == OP_CONV2D) {
    pd_product product = {.m = filters, .n = group->width, .k = group->rows, .batch = 1, .a_bytes = real, .b_bytes = real, .c_bytes = real};
    write_columns(w, "columns", window, &groups, a_type, a, "real", columns);
    write_multiply(w, product, b, columns, beside);
    write_columns(w, "columns_sum", places, &groups, "real", beside, write_type(w, op->out[0]), to);
  } else if (op->kind == OP_CONV2D_INPUT_GRAD) {
    pd_product product = {.ta = true, .m = group->rows, .n = group->width, .k = filters, .batch = 1, .a_bytes = real, .b_bytes = real, .c_bytes = 4};
    write_columns(w, "columns", places, &groups, b_type, b, "real", beside);
    write_multiply(w, product, a, beside, columns);
    write_columns(w, "columns_sum", window, &groups, "float", columns, write_type(w, op->out[0]), to);
  } else {
    pd_product product = {.tb = true, .accumulate = true, .m = filters, .n = group->rows, .k = group->width, .batch = 1,
                          .a_bytes = real, .b_bytes = real, .c_bytes = wide};
    write_columns(w, "columns", window, &groups, a_type, a, "real", columns);
    write_columns(w, "columns", places, &groups, b_type, b, "real", beside);
    write_multiply(w, product, beside, columns, to);
  }
  if (group->images < n) write_line(w, "}");
}

static void write_pool(Writer *w, const Op *op, const char *window) {
  Call call = call_begin(w, op_name(op->kind));
  call_type(&call, write_type(w, op->in[0]));
  call_type(&call, write_type(w, op->kind == OP_MAXPOOL_GRAD ? op->in[1] : op->out[0]));
  call_argument(&call, "const pd_image_window *", arena_printf(w->input->arena, "&%s", window));
  for (unsigned k = 0; k < op->in_count; k++) call_in(&call, op->in[k]);
  call_out(&call, op->out[0]);
  call_end(&call);
}

/* ---- both targets ---- */

void write_image(Writer *w, const Op *op) {
  Id image = op->in[0], places = op->out[0]; /* forward */
  const char *to = op->accumulate != NO_ID ? write_gradient(w, op->accumulate) : write_name(w, op->out[0]);
  if (op->kind == OP_CONV2D_INPUT_GRAD || op->kind == OP_MAXPOOL_GRAD) image = op->out[0], places = op->in[1];
  if (op->kind == OP_CONV2D_FILTER_GRAD) places = op->in[1];
  if (op->kind == OP_AVGPOOL_GRAD) image = op->out[0], places = op->in[0];
  const char *window = write_window(w, op, image, places);
  if (op->kind == OP_CONV2D_FILTER_GRAD && op->accumulate == NO_ID) write_zeros(w, op->out[0]);
  bool pool = op->kind != OP_CONV2D && op->kind != OP_CONV2D_INPUT_GRAD && op->kind != OP_CONV2D_FILTER_GRAD;
  if (pool) write_pool(w, op, window);
  else if (w->cuda) write_convolution(w, op, window, places, to);
  else write_line(w, "K->%s(&%s, %s, %s, %s);", op_name(op->kind), window, write_name(w, op->in[0]), write_name(w, op->in[1]), to);
}

static Call begin_batchnorm(Writer *w, const char *name, const Op *op) {
  const Value *x = &w->graph->values.at[op->in[0]];
  Call call = call_begin(w, name);
  call_type(&call, write_type(w, op->in[0]));
  call_size(&call, local(w, x->axes[0]));
  call_size(&call, local(w, x->axes[1]));
  call_size(&call, axes_local_elements(w->graph, w->config, x->rank - 2u, x->axes + 2));
  call_real(&call, op->real[0]);
  return call;
}

void write_batchnorm(Writer *w, const Op *op) {
  if (op->kind == OP_BATCHNORM_GRAD) {
    Call call = begin_batchnorm(w, "batchnorm_grad", op);
    for (unsigned k = 0; k < 3; k++) call_in(&call, op->in[k]);
    call_out(&call, op->out[0]);
    call_end(&call);
    return;
  }
  for (unsigned k = 0; k < 3; k++) write_name(w, op->in[k]);
  for (unsigned k = 0; k < 3; k++) write_name(w, op->out[k]);
  write_line(w, "if (f->training) {");
  Call measured = begin_batchnorm(w, "batchnorm", op);
  call_in(&measured, op->in[0]);
  for (unsigned k = 0; k < 3; k++) call_out(&measured, op->out[k]);
  call_end(&measured);
  write_line(w, "} else {");
  Call given = begin_batchnorm(w, "batchnorm_given", op);
  call_type(&given, write_type(w, op->in[1]));
  for (unsigned k = 0; k < 3; k++) call_in(&given, op->in[k]);
  call_out(&given, op->out[0]);
  call_end(&given);
  write_line(w, "}");
}
