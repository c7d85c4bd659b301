/* Executions: what they are given is checked when they are queued, and the operations run one by one, on doubles that
 * are rounded to the type of the tensor that they are written to. */
#include "objects.h"

#include "../fake.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>

namespace fake_cudnn {
namespace {

const char *const call = "cudnnBackendExecute";

/* An execution as its run needs it. They are kept: a captured one runs many times. */
struct execution {
  std::shared_ptr<const engine> by;
  std::vector<void *> at;     /* per tensor; null unless OUTER */
  std::vector<double> number; /* per tensor; of those BY_VALUE */
  void *workspace;
};

typedef std::vector<double> values;

double rounded(double x, cudnnDataType_t type) {
  switch (type) {
  case CUDNN_DATA_BFLOAT16: {
    const float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, 4);
    bits = std::isnan(f) ? 0x7fff0000 : (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000; /* to nearest, ties to even */
    float y;
    memcpy(&y, &bits, 4);
    return y;
  }
  case CUDNN_DATA_FLOAT:
    return (float)x;
  default:
    return x;
  }
}

double load(const void *base, cudnnDataType_t type, int64_t at) {
  switch (type) {
  case CUDNN_DATA_FLOAT:
    return static_cast<const float *>(base)[at];
  case CUDNN_DATA_INT32:
    return static_cast<const int32_t *>(base)[at];
  case CUDNN_DATA_BOOLEAN:
    return static_cast<const char *>(base)[at];
  default: {
    const uint32_t bits = (uint32_t) static_cast<const uint16_t *>(base)[at] << 16;
    float x;
    memcpy(&x, &bits, 4);
    return x;
  }
  }
}

void store(void *base, cudnnDataType_t type, int64_t at, double x) {
  const float f = (float)x;
  uint32_t bits;
  memcpy(&bits, &f, 4);
  if (type == CUDNN_DATA_FLOAT)
    static_cast<float *>(base)[at] = f;
  else
    static_cast<uint16_t *>(base)[at] = (uint16_t)(bits >> 16); /* rounded already */
}

/* the four indices of an element, counted through in their order */
struct index {
  int64_t at[4];
};

template <class F> void each(const tensor &t, F &&visit) {
  int64_t n = 0;
  for (int64_t a = 0; a < t.size[0]; a++)
    for (int64_t b = 0; b < t.size[1]; b++)
      for (int64_t c = 0; c < t.size[2]; c++)
        for (int64_t d = 0; d < t.size[3]; d++) visit(index{{a, b, c, d}}, n++);
}

/* where an element lies: in memory, and among the values of a tensor that may have 1 where `i` counts */
int64_t offset(const tensor &t, const index &i) {
  return i.at[0] * t.stride[0] + i.at[1] * t.stride[1] + i.at[2] * t.stride[2] + i.at[3] * t.stride[3];
}

size_t spread(const tensor &t, const index &i) {
  int64_t n = 0;
  for (int k = 0; k < 4; k++) n = n * t.size[k] + (t.size[k] == 1 ? 0 : i.at[k]);
  return (size_t)n;
}

struct machine {
  const execution &e;
  const graph &g;
  std::vector<values> of; /* per tensor; empty: not there yet */

  const tensor &t(int n) const {
    return g.tensors[(size_t)n];
  }

  const values &read(int n) {
    values &v = of[(size_t)n];
    if (!v.empty()) return v;
    const tensor &x = t(n);
    v.resize((size_t)x.elements(), e.number[(size_t)n]);
    if (x.where == OUTER)
      each(x, [&](const index &i, int64_t k) { v[(size_t)k] = load(e.at[(size_t)n], x.type, offset(x, i)); });
    return v;
  }

  void write(int n, values v) {
    const tensor &x = t(n);
    for (double &y : v) y = rounded(y, x.type);
    if (x.where == OUTER)
      each(x, [&](const index &i, int64_t k) { store(e.at[(size_t)n], x.type, offset(x, i), v[(size_t)k]); });
    of[(size_t)n] = std::move(v);
  }

  void pointwise(const operation &o) {
    const tensor &y = t(o.out);
    values out((size_t)y.elements());
    const values &x = read(o.in[0]);
    const values none, &b = o.in[1] < 0 ? none : read(o.in[1]), &chosen = o.in[2] < 0 ? none : read(o.in[2]);
    each(y, [&](const index &i, int64_t n) {
      const double l = x[spread(t(o.in[0]), i)], r = o.in[1] < 0 ? 0 : b[spread(t(o.in[1]), i)];
      double &z = out[(size_t)n];
      switch (o.letter) {
      case '+':
        z = l + r;
        break;
      case '-':
        z = l - r;
        break;
      case '*':
        z = l * r;
        break;
      case '/':
        z = l / r;
        break;
      case 'e':
        z = std::exp(l);
        break;
      case 'l':
        z = std::log(l);
        break;
      case '=':
        z = l;
        break;
      case 'g':
        z = (double)i.at[o.axis];
        break;
      case '>':
        z = l >= r;
        break;
      case '?':
        z = chosen[spread(t(o.in[2]), i)] != 0 ? l : r;
        break;
      default:
        break;
      }
    });
    if (o.letter == 'e') check_statistics(y, out);
    write(o.out, std::move(out));
  }

  /* Probabilities of a row sum to one, unless the row's statistics are those of other scores. In a forward graph the
   * sum is not taken yet. */
  void check_statistics(const tensor &p, const values &out) {
    if (g.letters.find('l') != std::string::npos) return;
    for (int64_t row = 0; row < p.elements() / p.size[3]; row++) {
      double sum = 0;
      for (int64_t c = 0; c < p.size[3]; c++) sum += out[(size_t)(row * p.size[3] + c)];
      if (std::isfinite(sum) && std::fabs(sum - 1) > 1e-3)
        fake_fault("cudnn-statistics",
                   "the statistics of row %lld are not those of its scores: its probabilities sum to %g",
                   (long long)row, sum);
    }
  }

  /* An engine that adds in any order adds to what is there, and starts somewhere else each time. */
  void matmul(const operation &o) {
    const tensor &x = t(o.in[0]), &y = t(o.in[1]), &z = t(o.out);
    const bool adds = e.by->any_order && &o == &g.operations[g.operations.size() - 2];
    const values &a = read(o.in[0]), &b = read(o.in[1]);
    const int64_t inner = x.size[3], first = adds ? started++ % inner : 0;
    values out((size_t)z.elements());
    each(z, [&](const index &i, int64_t n) {
      index left = i, right = i;
      left.at[1] = i.at[1] * x.size[1] / z.size[1];
      right.at[1] = i.at[1] * y.size[1] / z.size[1];
      double sum = adds ? load(e.at[(size_t)o.out], z.type, offset(z, i)) : 0;
      for (int64_t k = 0; k < inner; k++) {
        left.at[3] = right.at[2] = (first + k) % inner;
        sum = rounded(sum + a[spread(x, left)] * b[spread(y, right)], CUDNN_DATA_FLOAT);
      }
      out[(size_t)n] = sum;
    });
    write(o.out, std::move(out));
  }

  void reduction(const operation &o) {
    const tensor &x = t(o.in[0]), &y = t(o.out);
    const bool most = o.letter == 'm';
    values out((size_t)y.elements(), most ? -std::numeric_limits<double>::infinity() : 0);
    const values &a = read(o.in[0]);
    each(x, [&](const index &i, int64_t n) {
      index to = i;
      for (int k = 0; k < 4; k++) to.at[k] = i.at[k] * y.size[k] / x.size[k];
      double &z = out[spread(y, to)];
      z = most ? (a[(size_t)n] > z || std::isnan(a[(size_t)n]) ? a[(size_t)n] : z) : z + a[(size_t)n];
    });
    write(o.out, std::move(out));
  }

  /* the same places, seen along other strides */
  void reshape(const operation &o) {
    const tensor &x = t(o.in[0]), &y = t(o.out);
    const values &a = read(o.in[0]);
    values place(x.span() / type_bytes(x.type)), out((size_t)y.elements());
    each(x, [&](const index &i, int64_t n) { place[(size_t)offset(x, i)] = a[(size_t)n]; });
    each(y, [&](const index &i, int64_t n) { out[(size_t)n] = place[(size_t)offset(y, i)]; });
    write(o.out, std::move(out));
  }

  void run() {
    if (e.by->workspace) memset(e.workspace, 0xff, (size_t)e.by->workspace); /* whoever shares it meanwhile reads NaN */
    for (const operation &o : g.operations) {
      if (o.letter == 'M')
        matmul(o);
      else if (o.letter == 's' || o.letter == 'm')
        reduction(o);
      else if (o.letter == 'r')
        reshape(o);
      else
        pointwise(o);
    }
  }

  static int64_t started;
};

int64_t machine::started;

fake_state run(void *context) {
  const execution *e;
  memcpy(&e, context, sizeof e);
  machine m = {*e, *e->by->of, std::vector<values>(e->by->of->tensors.size())};
  m.run();
  return FAKE_DONE;
}

/* ---- arguments ---- */

bool aligned(const void *at, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(at) % (uintptr_t)bytes == 0;
}

bool overlap(const fake_range &a, const fake_range &b) {
  const char *x = static_cast<const char *>(a.start), *y = static_cast<const char *>(b.start);
  return x < y + b.bytes && y < x + a.bytes;
}

std::string named(const tensor &t) {
  return "tensor " + std::to_string(t.name);
}

/* Takes the pointers of a variant pack; success, or why not. */
cudnnStatus_t bind(const contents &pack, execution *e) {
  const std::vector<int64_t> names = pack.all<int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const std::vector<void *> pointers = pack.all<void *>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  const graph &g = *e->by->of;
  e->at.assign(g.tensors.size(), nullptr);
  e->number.assign(g.tensors.size(), 0);
  for (size_t i = 0; i < names.size(); i++) {
    size_t n = 0;
    while (n < g.tensors.size() && (g.tensors[n].name != names[i] || g.tensors[n].where == INNER)) n++;
    if (n == g.tensors.size())
      return refuse(call, CUDNN_STATUS_BAD_PARAM, "the plan has no tensor " + std::to_string(names[i]));
    if (e->at[n])
      return refuse(call, CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES, named(g.tensors[n]) + " is given twice");
    if (!pointers[i]) return refuse(call, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, named(g.tensors[n]) + " is NULL");
    e->at[n] = pointers[i];
  }
  for (size_t n = 0; n < g.tensors.size(); n++) {
    const tensor &t = g.tensors[n];
    if (t.where == INNER) continue;
    if (!e->at[n]) return refuse(call, CUDNN_STATUS_BAD_PARAM, named(t) + " is not given");
    if (fake_is_device(e->at[n]) != (t.where == OUTER))
      return refuse(call, CUDNN_STATUS_BAD_PARAM,
                    named(t) + (t.where == OUTER ? " is not in device memory" : " is by value, and not of the host"));
    if (t.where == BY_VALUE) e->number[n] = load(e->at[n], t.type, 0);
    if (t.where == OUTER && !aligned(e->at[n], t.alignment))
      return refuse(call, CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
                    named(t) + " is less aligned than its descriptor says");
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t check_workspace(execution *e) {
  if (!e->by->workspace) return CUDNN_STATUS_SUCCESS;
  if (!e->workspace) return refuse(call, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the workspace is NULL");
  if (!fake_is_device(e->workspace))
    return refuse(call, CUDNN_STATUS_BAD_PARAM, "the workspace is not in device memory");
  if (!aligned(e->workspace, 256))
    return refuse(call, CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, "the workspace is not aligned to 256 bytes");
  return CUDNN_STATUS_SUCCESS;
}

} // namespace

cudnnStatus_t execute(cudnnHandle_t handle, const contents &plan, const contents &pack) {
  static std::vector<std::unique_ptr<execution>> kept;
  static std::mutex lock;
  auto e = std::make_unique<execution>();
  e->by = plan.chosen;
  e->workspace = pack.one<void *>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  if (e->by->arch != handle->arch) return refuse(call, CUDNN_STATUS_BAD_PARAM, "the plan was made for another device");
  cudnnStatus_t status = bind(pack, e.get());
  if (status == CUDNN_STATUS_SUCCESS) status = check_workspace(e.get());
  if (status != CUDNN_STATUS_SUCCESS) return status;
  const graph &g = *e->by->of;
  std::vector<fake_range> ranges;
  if (e->by->workspace) ranges.push_back({e->workspace, (size_t)e->by->workspace, 1});
  for (size_t n = 0; n < g.tensors.size(); n++) {
    const tensor &t = g.tensors[n];
    if (t.where != OUTER) continue;
    const fake_range range = {e->at[n], t.span(), t.made};
    for (const fake_range &other : ranges)
      if ((range.write || other.write) && overlap(range, other))
        return refuse(call, CUDNN_STATUS_BAD_PARAM,
                      named(t) + " overlaps the workspace or another tensor, one of which is written");
    ranges.push_back(range);
  }
  const std::string detail = g.letters + " workspace=" + std::to_string(e->by->workspace);
  const execution *context = e.get();
  const fake_operation operation = {call, detail.c_str(), run, &context, sizeof context, ranges.data(), ranges.size()};
  {
    std::lock_guard<std::mutex> hold(lock);
    kept.push_back(std::move(e));
  }
  return fake_enqueue(handle->stream, &operation) == cudaSuccess ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

} // namespace fake_cudnn
