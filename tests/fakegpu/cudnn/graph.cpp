/* What a finished graph means, what it may not be, and the engine that would take it.
 *
 * cuDNN's attention engines recognise a graph by its operations and their order. Here every operation is a letter, and
 * a graph that has an engine is one whose letters match a pattern. */
#include "objects.h"

#include <cstdlib>
#include <cstring>
#include <regex>

namespace fake_cudnn {
namespace {

const char *const call = "cudnnBackendFinalize";

struct mode {
  cudnnPointwiseMode_t is;
  char letter;
  int operands; /* tensors read */
};
const mode modes[] = {{CUDNN_POINTWISE_ADD, '+', 2},      {CUDNN_POINTWISE_SUB, '-', 2},
                      {CUDNN_POINTWISE_MUL, '*', 2},      {CUDNN_POINTWISE_DIV, '/', 2},
                      {CUDNN_POINTWISE_EXP, 'e', 1},      {CUDNN_POINTWISE_LOG, 'l', 1},
                      {CUDNN_POINTWISE_IDENTITY, '=', 1}, {CUDNN_POINTWISE_GEN_INDEX, 'g', 1},
                      {CUDNN_POINTWISE_CMP_GE, '>', 2},   {CUDNN_POINTWISE_BINARY_SELECT, '?', 3}};

const mode *find_mode(cudnnPointwiseMode_t wanted) {
  for (const mode &m : modes)
    if (m.is == wanted) return &m;
  return nullptr;
}

bool truth(const contents &c, int name) {
  return c.has(name) && c.one<char>(name) != 0;
}

cudnnStatus_t bad(const std::string &why) {
  return refuse(call, CUDNN_STATUS_BAD_PARAM, why);
}

cudnnStatus_t check_tensor(const contents &c) {
  const std::vector<int64_t> size = c.all<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS),
                             stride = c.all<int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  const size_t bytes = type_bytes(c.one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE));
  const int64_t alignment = c.one<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
  if (!bytes) return bad("tensors are float, bf16, int32 or boolean");
  if (size.size() != 4 || stride.size() != 4) return bad("a tensor has 4 dimensions and 4 strides");
  for (int i = 0; i < 4; i++)
    if (size[i] < 1 || stride[i] < 1) return bad("dimensions and strides are at least 1");
  if (alignment < (int64_t)bytes || (alignment & (alignment - 1)))
    return bad("an alignment is a power of two, and not below an element");
  if (truth(c, CUDNN_ATTR_TENSOR_IS_VIRTUAL) && truth(c, CUDNN_ATTR_TENSOR_IS_BY_VALUE))
    return bad("a tensor is virtual or by value");
  /* no two elements in one place: from the smallest step on, each is beyond the axes before it */
  for (int i = 0; i < 4; i++) {
    int64_t before = 1;
    for (int k = 0; k < 4; k++)
      if (k != i && size[k] > 1 && stride[k] < stride[i]) before += (size[k] - 1) * stride[k];
    for (int k = 0; k < i; k++)
      if (size[k] > 1 && size[i] > 1 && stride[k] == stride[i]) return bad("two elements of a tensor are in one place");
    if (size[i] > 1 && stride[i] < before) return bad("two elements of a tensor are in one place");
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t check_pointwise(const contents &c) {
  const mode *m = find_mode(c.one<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE));
  if (!m) return refuse(call, CUDNN_STATUS_NOT_SUPPORTED, "the fake does not know this element-wise operation");
  if (c.one<cudnnDataType_t>(CUDNN_ATTR_POINTWISE_MATH_PREC) != CUDNN_DATA_FLOAT)
    return bad("element-wise operations compute in float");
  if (c.has(CUDNN_ATTR_POINTWISE_AXIS) != (m->letter == 'g'))
    return bad("an axis belongs to an index generator, and to nothing else");
  if (m->letter == 'g' && (uint64_t)c.one<int64_t>(CUDNN_ATTR_POINTWISE_AXIS) > 3) return bad("there is no such axis");
  return CUDNN_STATUS_SUCCESS;
}

/* ---- operations ---- */

struct reader {
  graph *g;
  std::string why;

  int fail(const std::string &text) {
    if (why.empty()) why = text;
    return -1;
  }

  /* the tensor's number in the graph; one name means one tensor */
  int number(const contents &c) {
    tensor t = {};
    t.name = c.one<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
    memcpy(t.size, c.all<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS).data(), sizeof t.size);
    memcpy(t.stride, c.all<int64_t>(CUDNN_ATTR_TENSOR_STRIDES).data(), sizeof t.stride);
    t.alignment = c.one<int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
    t.type = c.one<cudnnDataType_t>(CUDNN_ATTR_TENSOR_DATA_TYPE);
    t.where = truth(c, CUDNN_ATTR_TENSOR_IS_VIRTUAL)    ? INNER
              : truth(c, CUDNN_ATTR_TENSOR_IS_BY_VALUE) ? BY_VALUE
                                                        : OUTER;
    for (size_t i = 0; i < g->tensors.size(); i++) {
      const tensor &u = g->tensors[i];
      if (u.name != t.name) continue;
      if (memcmp(u.size, t.size, sizeof t.size) || memcmp(u.stride, t.stride, sizeof t.stride) || u.type != t.type ||
          u.where != t.where)
        return fail("two tensors have the name " + std::to_string(t.name));
      return (int)i;
    }
    g->tensors.push_back(t);
    return (int)g->tensors.size() - 1;
  }

  int input(const contents *c) {
    const int n = c ? number(*c) : fail("an operation lacks an operand");
    if (n >= 0 && g->tensors[n].where == INNER && !g->tensors[n].made)
      return fail("virtual tensor " + std::to_string(g->tensors[n].name) + " is read before an operation makes it");
    return n;
  }

  int output(const contents *c) {
    const int n = number(*c);
    if (n < 0) return n;
    if (g->tensors[n].where == BY_VALUE) return fail("an operation writes a tensor by value");
    if (g->tensors[n].made) return fail("two operations make tensor " + std::to_string(g->tensors[n].name));
    for (const operation &o : g->operations)
      for (int k : o.in)
        if (k == n) return fail("tensor " + std::to_string(g->tensors[n].name) + " is read before it is made");
    g->tensors[n].made = true;
    return n;
  }

  /* every axis of an operand is that of the result, or 1 */
  bool spreads(int from, int to) {
    for (int i = 0; i < 4; i++)
      if (g->tensors[from].size[i] != g->tensors[to].size[i] && g->tensors[from].size[i] != 1) return false;
    return true;
  }

  void pointwise(const contents &c, operation *o) {
    const contents *how = c.part(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const mode *m = find_mode(how->one<cudnnPointwiseMode_t>(CUDNN_ATTR_POINTWISE_MODE));
    const int names[] = {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                         CUDNN_ATTR_OPERATION_POINTWISE_TDESC};
    o->letter = m->letter;
    if (m->letter == 'g') o->axis = (int)how->one<int64_t>(CUDNN_ATTR_POINTWISE_AXIS);
    for (int k = 0; k < 3; k++) {
      if (c.has(names[k]) != (k < m->operands)) fail("an element-wise operation has too few operands, or too many");
      if (k < m->operands) o->in[k] = input(c.part(names[k]));
    }
    o->out = output(c.part(CUDNN_ATTR_OPERATION_POINTWISE_YDESC));
    if (!why.empty()) return;
    for (int k = 0; k < m->operands; k++)
      if (!spreads(o->in[k], o->out))
        fail("an operand of an element-wise operation does not have the shape of its result");
    const cudnnDataType_t made = g->tensors[o->out].type;
    if ((made == CUDNN_DATA_BOOLEAN) != (m->letter == '>')) fail("comparisons, and they alone, make booleans");
    if (m->letter == '?' && g->tensors[o->in[2]].type != CUDNN_DATA_BOOLEAN) fail("a selection is by booleans");
    if (m->letter == 'g' && made != CUDNN_DATA_INT32) fail("indices are int32");
  }

  void matmul(const contents &c, operation *o) {
    o->letter = 'M';
    if (c.part(CUDNN_ATTR_OPERATION_MATMUL_DESC)->one<cudnnDataType_t>(CUDNN_ATTR_MATMUL_COMP_TYPE) != CUDNN_DATA_FLOAT)
      fail("products are computed in float");
    o->in[0] = input(c.part(CUDNN_ATTR_OPERATION_MATMUL_ADESC));
    o->in[1] = input(c.part(CUDNN_ATTR_OPERATION_MATMUL_BDESC));
    o->out = output(c.part(CUDNN_ATTR_OPERATION_MATMUL_CDESC));
    if (!why.empty()) return;
    const tensor &x = g->tensors[o->in[0]], &y = g->tensors[o->in[1]], &z = g->tensors[o->out];
    if (x.size[0] != z.size[0] || y.size[0] != z.size[0] || z.size[1] % x.size[1] || z.size[1] % y.size[1] ||
        x.size[2] != z.size[2] || x.size[3] != y.size[2] || y.size[3] != z.size[3])
      fail("the shapes of a product do not fit");
    if (x.type != CUDNN_DATA_BFLOAT16 || y.type != CUDNN_DATA_BFLOAT16) fail("products are of bf16");
    if (z.type != CUDNN_DATA_BFLOAT16 && z.type != CUDNN_DATA_FLOAT) fail("a product is bf16 or float");
  }

  void reduction(const contents &c, operation *o) {
    const contents *how = c.part(CUDNN_ATTR_OPERATION_REDUCTION_DESC);
    const auto kind = how->one<cudnnReduceTensorOp_t>(CUDNN_ATTR_REDUCTION_OPERATOR);
    o->letter = kind == CUDNN_REDUCE_TENSOR_MAX ? 'm' : 's';
    if (kind != CUDNN_REDUCE_TENSOR_MAX && kind != CUDNN_REDUCE_TENSOR_ADD) fail("the fake reduces by sum or maximum");
    if (how->one<cudnnDataType_t>(CUDNN_ATTR_REDUCTION_COMP_TYPE) != CUDNN_DATA_FLOAT)
      fail("reductions compute in float");
    o->in[0] = input(c.part(CUDNN_ATTR_OPERATION_REDUCTION_XDESC));
    o->out = output(c.part(CUDNN_ATTR_OPERATION_REDUCTION_YDESC));
    if (!why.empty()) return;
    for (int i = 0; i < 4; i++)
      if (g->tensors[o->in[0]].size[i] % g->tensors[o->out].size[i])
        fail("a reduction's axis is no multiple of its result's");
  }

  void reshape(const contents &c, operation *o) {
    o->letter = 'r';
    o->in[0] = input(c.part(CUDNN_ATTR_OPERATION_RESHAPE_XDESC));
    o->out = output(c.part(CUDNN_ATTR_OPERATION_RESHAPE_YDESC));
    if (!why.empty()) return;
    const tensor &x = g->tensors[o->in[0]], &y = g->tensors[o->out];
    if (x.elements() != y.elements() || x.span() != y.span() || x.type != y.type)
      fail("a reshape changes the number, the places or the type of elements");
  }
};

/* ---- engines ---- */

/* the masked scores: product, scale, and with a mask two index generators (one moved by a number), comparison,
 * selection */
const char *const scores = "M\\*(g\\+?g>\\?)?";

bool matches(const std::string &letters, const std::string &pattern) {
  return std::regex_match(letters, std::regex(pattern));
}

int64_t up(int64_t n, int64_t step) {
  return (n + step - 1) / step * step;
}

} // namespace

size_t type_bytes(cudnnDataType_t type) {
  switch (type) {
  case CUDNN_DATA_FLOAT:
  case CUDNN_DATA_INT32:
    return 4;
  case CUDNN_DATA_BFLOAT16:
    return 2;
  case CUDNN_DATA_BOOLEAN:
    return 1;
  default:
    return 0;
  }
}

size_t tensor::span() const {
  int64_t last = 0;
  for (int i = 0; i < 4; i++) last += (size[i] - 1) * stride[i];
  return (size_t)(last + 1) * type_bytes(type);
}

cudnnStatus_t check_description(const contents &c) {
  if (c.type == CUDNN_BACKEND_TENSOR_DESCRIPTOR) return check_tensor(c);
  if (c.type == CUDNN_BACKEND_POINTWISE_DESCRIPTOR) return check_pointwise(c);
  return CUDNN_STATUS_SUCCESS; /* operations: when they are part of a graph */
}

cudnnStatus_t read_graph(const contents &c, std::shared_ptr<const graph> *out) {
  auto g = std::make_shared<graph>();
  reader r = {g.get(), ""};
  for (const finished &part : c.said.at(CUDNN_ATTR_OPERATIONGRAPH_OPS).descriptors) {
    operation o = {0, {-1, -1, -1}, -1, 0};
    switch (part->type) {
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
      r.pointwise(*part, &o);
      break;
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
      r.matmul(*part, &o);
      break;
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
      r.reduction(*part, &o);
      break;
    default:
      r.reshape(*part, &o);
      break;
    }
    if (!r.why.empty()) return bad("operation " + std::to_string(g->operations.size()) + ": " + r.why);
    g->operations.push_back(o);
    g->letters += o.letter;
  }
  for (size_t n = 0; n < g->tensors.size(); n++) {
    bool read = g->tensors[n].where != INNER;
    for (const operation &o : g->operations)
      for (int k : o.in) read |= k == (int)n;
    if (!read) return bad("nothing reads virtual tensor " + std::to_string(g->tensors[n].name));
  }
  *out = g;
  return CUDNN_STATUS_SUCCESS;
}

std::shared_ptr<const engine> find_engine(const std::shared_ptr<const graph> &g, int arch, std::string *why) {
  const std::string s = scores;
  const bool forward = matches(g->letters, s + "m-esl\\+/M");
  const bool backward = matches(g->letters, "\\*s\\*" + s + "-erMs?M-\\*\\*rMs?rM=?");
  if (!forward && !backward) {
    *why = "no engine knows a graph of the operations " + g->letters;
    return nullptr;
  }
  size_t first = 0;
  while (g->operations[first].letter != 'M') first++;
  const tensor &q = g->tensors[g->operations[first].in[0]], &k = g->tensors[g->operations[first].in[1]];
  const int64_t b = q.size[0], h = q.size[1], rows = q.size[2], cols = k.size[3], d = q.size[3];
  const bool any_order = backward && g->letters.back() == '=';
  const int64_t most = forward || arch / 10 == 9 ? 256 : 128;
  const auto unless = [&](bool holds, const std::string &otherwise) {
    if (!holds && why->empty()) *why = otherwise;
  };
  unless(arch >= 80, "attention needs an architecture of 8.0 or later");
  unless(d % 8 == 0, "the head size is not a multiple of 8");
  unless(d <= most, "the head size is not less than equal to " + std::to_string(most));
  unless(rows > 1 || cols > 1, "there are one query and one key");
  for (const tensor &t : g->tensors) {
    if (t.where != OUTER || t.type != CUDNN_DATA_BFLOAT16) continue;
    const std::string name = "tensor " + std::to_string(t.name);
    unless((t.size[2] == d && t.stride[2] == 1) || (t.size[3] == d && t.stride[3] == 1),
           "the elements of a head of " + name + " do not lie one after the other");
    for (int i = 0; i < 4; i++)
      unless(t.size[i] == 1 || t.stride[i] == 1 || t.stride[i] % 8 == 0,
             "a stride of " + name + " is not a multiple of 8");
    unless(t.alignment >= 16, name + " is not aligned to 16 bytes");
  }
  if (!why->empty()) return nullptr;
  /* as cuDNN 9.19 asks for a described A100, H200 and B200 */
  int64_t workspace = arch / 10 == 9 ? 256 : 0;
  if (any_order && arch / 10 != 9) workspace = b * h * rows * d * 4 + 256;
  if (backward && !any_order) workspace = 256 + 2 * b * h * up(rows, arch / 10 == 9 ? 128 : 64) * up(cols, 64);
  const char *more = getenv("PD_FAKE_CUDNN_WORKSPACE");
  return std::make_shared<engine>(engine{g, arch, workspace + (more ? atol(more) : 0), any_order});
}

} // namespace fake_cudnn
