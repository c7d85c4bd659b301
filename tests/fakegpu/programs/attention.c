/* Attention by cuDNN, forward and backward, by the functions that compiled programs call, against the same in double.
 * With the name of a mistake as its argument it makes that mistake. On a real GPU with a real cuDNN it must pass, too.
 */
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda/attention_cudnn.h"
#include "cuda/attention_graph.h" /* names of tensors */
#include "cuda/cudnn_library.h"

#define CHECK(call) check((int)(call), #call, __LINE__)
static void check(int status, const char *call, int line) {
  if (status == 0) return;
  printf("line %d: %s: status %d\n", line, call, status);
  exit(1);
}

static const char *mistake = "";
static int is(const char *name) {
  return strcmp(mistake, name) == 0;
}

/* ---- mistakes in what cuDNN is told: its functions with something else between ---- */

static pd_cudnn_library real;
static void *const nothing = NULL;

static cudnnStatus_t set_wrongly(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                 cudnnBackendAttributeType_t type, int64_t count, const void *value) {
  int64_t numbers[32];
  const size_t bytes = type == CUDNN_TYPE_INT64 && count <= 32 ? (size_t)count * sizeof *numbers : 0;
  memcpy(numbers, value, bytes);
  if (name == CUDNN_ATTR_TENSOR_STRIDES && is("stride") && numbers[3] == 1 && numbers[2] > 8)
    numbers[2] += 1, value = numbers;
  if (name == CUDNN_ATTR_TENSOR_STRIDES && is("overlapping rows") && numbers[3] == 1) numbers[2] = 1, value = numbers;
  if (name == CUDNN_ATTR_TENSOR_DIMENSIONS && is("shape") && numbers[2] > numbers[3] && numbers[3] > 1)
    numbers[2] /= 2, value = numbers;
  if (name == CUDNN_ATTR_TENSOR_UNIQUE_ID && is("one name for two tensors") && numbers[0] == K)
    numbers[0] = Q, value = numbers;
  if (name == CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS && is("unknown name")) numbers[0] = 77, value = numbers;
  if (name == CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS && is("name twice")) numbers[0] = numbers[1], value = numbers;
  if ((name == CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS || name == CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS) &&
      is("tensor left out"))
    count--;
  if (name == CUDNN_ATTR_VARIANT_PACK_WORKSPACE && is("no workspace")) value = &nothing;
  if (name == CUDNN_ATTR_OPERATIONGRAPH_OPS && (is("order of operations") || is("read before it is made"))) {
    cudnnBackendDescriptor_t all[MAX_OPERATIONS];
    memcpy(all, value, (size_t)count * sizeof *all);
    const int first =
        is("order of operations") ? 11 : 6; /* statistics and quotient; the maximum and what subtracts it */
    const cudnnBackendDescriptor_t one = all[first];
    all[first] = all[first + 1], all[first + 1] = one;
    return real.cudnnBackendSetAttribute(d, name, type, count, all);
  }
  return real.cudnnBackendSetAttribute(d, name, type, count, value);
}

static cudnnStatus_t finish_not(cudnnBackendDescriptor_t d) {
  static int count;
  if (is("not finalized") && ++count == 4) return CUDNN_STATUS_SUCCESS;
  return real.cudnnBackendFinalize(d);
}

/* ---- tensors ---- */

static float drawn(void) {
  static unsigned long long state = 1;
  state = state * 6364136223846793005ull + 1442695040888963407ull;
  const float f = (float)((double)(state >> 40) / (1 << 24) * 2 - 1);
  unsigned bits;
  memcpy(&bits, &f, 4);
  bits &= 0xffff0000u;
  float y;
  memcpy(&y, &bits, 4);
  return y;
}

typedef struct tensor {
  int64_t count;
  double *values;
  char *device;
  int bytes;
} tensor;

static tensor make(int64_t count, int bytes, int filled) {
  tensor t = {count, calloc((size_t)count, sizeof(double)), NULL, bytes};
  char *host = malloc((size_t)(count * bytes));
  CHECK(cudaMalloc((void **)&t.device, (size_t)(count * bytes)));
  for (int64_t i = 0; i < count; i++) {
    const float f = drawn();
    unsigned bits;
    memcpy(&bits, &f, 4);
    const unsigned short half = (unsigned short)(bits >> 16);
    t.values[i] = f;
    memcpy(host + i * bytes, bytes == 4 ? (const void *)&f : (const void *)&half, (size_t)bytes);
  }
  if (filled) CHECK(cudaMemcpy(t.device, host, (size_t)(count * bytes), cudaMemcpyHostToDevice));
  free(host);
  return t;
}

static void drop(tensor *t) {
  CHECK(cudaFree(t->device));
  free(t->values);
}

static int wrong;
/* per tensor: the norm of the difference, of that of what it should be */
static void compare(const char *what, const tensor *t, const double *should, double tolerance) {
  char *host = malloc((size_t)(t->count * t->bytes));
  CHECK(cudaMemcpy(host, t->device, (size_t)(t->count * t->bytes), cudaMemcpyDeviceToHost));
  double off = 0, size = 0;
  for (int64_t i = 0; i < t->count; i++) {
    float f;
    unsigned short half;
    if (t->bytes == 4) {
      memcpy(&f, host + i * 4, 4);
    } else {
      memcpy(&half, host + i * 2, 2);
      const unsigned bits = (unsigned)half << 16;
      memcpy(&f, &bits, 4);
    }
    off += (f - should[i]) * (f - should[i]);
    size += should[i] * should[i];
  }
  free(host);
  if (sqrt(off) <= tolerance * sqrt(size)) return;
  printf("  %s is off by %g of its norm\n", what, sqrt(off / size));
  wrong = 1;
}

/* ---- the same in double ---- */

typedef struct reference {
  double *o, *lse, *dq, *dk, *dv;
} reference;

static double *zeros(int64_t n) {
  return calloc((size_t)n, sizeof(double));
}

static reference compute(const pd_attention *z, const double *q, const double *k, const double *v, const double *d_o) {
  reference r = {zeros(z->b * z->s * z->h * z->d), zeros(z->b * z->h * z->s), zeros(z->b * z->s * z->h * z->d),
                 zeros(z->b * z->t * z->g * z->d), zeros(z->b * z->t * z->g * z->d)};
  double *p = zeros(z->t);
  const double scale = 1 / sqrt((double)z->d);
  for (int64_t b = 0; b < z->b; b++)
    for (int64_t h = 0; h < z->h; h++)
      for (int64_t i = 0; i < z->s; i++) {
        const int64_t row = ((b * z->s + i) * z->h + h) * z->d, g = h / (z->h / z->g);
        const int64_t seen = z->causal ? i + 1 + z->t - z->s : z->t;
        double most = -INFINITY, sum = 0, delta = 0;
        for (int64_t j = 0; j < seen; j++) {
          const double *key = k + ((b * z->t + j) * z->g + g) * z->d;
          p[j] = 0;
          for (int64_t e = 0; e < z->d; e++) p[j] += scale * q[row + e] * key[e];
          most = fmax(most, p[j]);
        }
        for (int64_t j = 0; j < seen; j++) sum += exp(p[j] - most);
        r.lse[(b * z->h + h) * z->s + i] = most + log(sum);
        for (int64_t j = 0; j < seen; j++) {
          p[j] = exp(p[j] - most) / sum;
          for (int64_t e = 0; e < z->d; e++) r.o[row + e] += p[j] * v[((b * z->t + j) * z->g + g) * z->d + e];
        }
        for (int64_t e = 0; e < z->d; e++) delta += r.o[row + e] * d_o[row + e];
        for (int64_t j = 0; j < seen; j++) {
          const int64_t at = ((b * z->t + j) * z->g + g) * z->d;
          double dp = 0;
          for (int64_t e = 0; e < z->d; e++) dp += d_o[row + e] * v[at + e], r.dv[at + e] += p[j] * d_o[row + e];
          const double ds = scale * p[j] * (dp - delta);
          for (int64_t e = 0; e < z->d; e++) r.dq[row + e] += ds * k[at + e], r.dk[at + e] += ds * q[row + e];
        }
      }
  free(p);
  return r;
}

/* ---- one attention ---- */

static pd_attention_plan *plan_of(cudnnBackendDescriptor_t device, pd_attention z, int gradient) {
  char why[1024] = "";
  z.gradient = gradient;
  z.any_order = z.any_order && gradient;
  pd_attention_plan *plan = pd_attention_plan_make(device, &z, why, sizeof why);
  if (plan != NULL) return plan;
  printf("no plan: %s\n", why);
  exit(1);
}

static void *workspace_of(const pd_attention_plan *plan) {
  void *space = NULL;
  const int64_t bytes = pd_attention_workspace(plan);
  CHECK(cudaMalloc(&space, (size_t)(is("small workspace") && bytes > 256 ? bytes - 256 : bytes > 0 ? bytes : 1)));
  return space;
}

static void test(pd_attention z) {
  char why[1024] = "";
  cudnnHandle_t handle;
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(pd_cudnn.cudnnCreate(&handle));
  CHECK(pd_cudnn.cudnnSetStream(handle, stream));
  cudnnBackendDescriptor_t device = pd_attention_device(handle, why, sizeof why);
  CHECK(device == NULL);
  pd_attention_plan *forward = plan_of(device, z, 0), *backward = plan_of(device, z, 1);
  const int64_t queries = z.b * z.s * z.h * z.d, keys = z.b * z.t * z.g * z.d;
  tensor q = make(queries, 2, 1), k = make(keys, 2, 1), v = make(keys, 2, 1), d_o = make(queries, 2, 1);
  tensor o = make(queries, 2, 0), lse = make(z.b * z.h * z.s, 4, 0), other = make(z.b * z.h * z.s, 4, 1);
  tensor dq = make(queries, 2, 0), dk = make(keys, 2, 0), dv = make(keys, 2, 0);
  void *space[2] = {workspace_of(forward), workspace_of(backward)};
  char *at = q.device;
  if (is("alignment")) at += 2;
  if (is("outside")) at += 32;
  if (is("host memory")) at = malloc((size_t)queries * 2);
  if (is("overlap")) at = o.device;
  if (is("destroyed handle")) CHECK(pd_cudnn.cudnnDestroy(handle));
  if (is("other direction")) {
    printf("status %s\n", pd_cudnn.cudnnGetErrorString(pd_attention_forward(backward, handle, at, k.device, v.device,
                                                                            o.device, (float *)lse.device, space[0])));
    exit(1);
  }
  CHECK(pd_attention_forward(forward, handle, at, k.device, v.device, o.device, (float *)lse.device, space[0]));
  CHECK(pd_attention_backward(backward, handle, q.device, k.device, v.device, o.device,
                              (float *)(is("other statistics") ? other.device : lse.device), d_o.device, dq.device,
                              dk.device, dv.device, space[1]));
  pd_attention_plan_free(forward);
  pd_attention_plan_free(backward);
  CHECK(cudaStreamSynchronize(stream));
  const reference r = compute(&z, q.values, k.values, v.values, d_o.values);
  compare("o", &o, r.o, 1e-2);
  compare("lse", &lse, r.lse, 1e-5);
  compare("dq", &dq, r.dq, 1e-2);
  compare("dk", &dk, r.dk, 1e-2);
  compare("dv", &dv, r.dv, 1e-2);
  printf("%lld x %lld queries, %lld keys, %lld heads of %lld on %lld%s%s\n", (long long)z.b, (long long)z.s,
         (long long)z.t, (long long)z.h, (long long)z.d, (long long)z.g, z.causal ? ", causal" : "",
         z.any_order ? ", in any order" : "");
  free(r.o), free(r.lse), free(r.dq), free(r.dk), free(r.dv);
  CHECK(cudaFree(space[0]));
  CHECK(cudaFree(space[1]));
  drop(&q), drop(&k), drop(&v), drop(&d_o), drop(&o), drop(&lse), drop(&other), drop(&dq), drop(&dk), drop(&dv);
  pd_cudnn.cudnnBackendDestroyDescriptor(device);
  CHECK(pd_cudnn.cudnnDestroy(handle));
  CHECK(cudaStreamDestroy(stream));
}

int main(int argc, char **argv) {
  char why[1024];
  if (!pd_cudnn_open(why, sizeof why)) {
    printf("%s\n", why);
    return 1;
  }
  if (argc > 1) {
    mistake = argv[1];
    real = pd_cudnn;
    pd_cudnn.cudnnBackendSetAttribute = set_wrongly;
    pd_cudnn.cudnnBackendFinalize = finish_not;
    const pd_attention z = {.b = is("stride") ? 1 : 2,
                            .s = is("single query") ? 1 : 8,
                            .t = is("single query") ? 1 : 8,
                            .h = 2,
                            .g = 2,
                            .d = is("head size")    ? 12
                                 : is("long heads") ? 264
                                                    : 16,
                            .causal = !is("single query")};
    test(z);
    return 0;
  }
  for (int any_order = 0; any_order < 2; any_order++)
    for (int causal = 0; causal < 2; causal++)
      for (int64_t g = 1; g <= 4; g *= 2) {
        test((pd_attention){.b = 2, .s = 8, .t = 8, .h = 4, .g = g, .d = 8, .causal = causal, .any_order = any_order});
        test((pd_attention){.b = 1, .s = 5, .t = 9, .h = 4, .g = g, .d = 16, .causal = causal, .any_order = any_order});
      }
  return wrong;
}
