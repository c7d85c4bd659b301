/* Products through cublasLt against a plain triple loop in double: transposes, leading dimensions, batches, types and
 * every epilogue. Prints one line a case; exit status 1 if one is wrong. With an argument it makes one mistake instead
 * and prints what cublasLtMatmul says of it. */
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(call)                                                                                                    \
  do {                                                                                                                 \
    int status_ = (int)(call);                                                                                         \
    if (status_ != 0) {                                                                                                \
      printf("%s: status %d\n", #call, status_);                                                                       \
      exit(2);                                                                                                         \
    }                                                                                                                  \
  } while (0)

typedef struct matrix {
  int type;
  int rows, cols, ld;
  size_t elements; /* with what lies between batches */
  char *device;
  double *values; /* as stored */
} matrix;

static size_t size_of(int type) {
  return type == CUDA_R_32F ? 4 : 2;
}
static double rounded(int type, double x) {
  float f = (float)x;
  unsigned bits;
  if (type == CUDA_R_32F) return f;
  memcpy(&bits, &f, 4);
  bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
  memcpy(&f, &bits, 4);
  return f;
}
static double draw(void) {
  static unsigned long long state = 1;
  state = state * 6364136223846793005ull + 1442695040888963407ull;
  return (double)(state >> 40) / (1 << 24) * 2 - 1;
}
static void upload(matrix *m) {
  char *host = malloc(m->elements * size_of(m->type));
  for (size_t i = 0; i < m->elements; i++) {
    float f = (float)m->values[i];
    unsigned bits;
    memcpy(&bits, &f, 4);
    unsigned short half = (unsigned short)(bits >> 16);
    if (m->type == CUDA_R_32F)
      memcpy(host + i * 4, &f, 4);
    else
      memcpy(host + i * 2, &half, 2);
  }
  CHECK(cudaMemcpy(m->device, host, m->elements * size_of(m->type), cudaMemcpyHostToDevice));
  free(host);
}
static void download(const matrix *m, double *out) {
  char *host = malloc(m->elements * size_of(m->type));
  CHECK(cudaMemcpy(host, m->device, m->elements * size_of(m->type), cudaMemcpyDeviceToHost));
  for (size_t i = 0; i < m->elements; i++) {
    float f;
    unsigned short half;
    if (m->type == CUDA_R_32F) {
      memcpy(&f, host + i * 4, 4);
    } else {
      memcpy(&half, host + i * 2, 2);
      unsigned bits = (unsigned)half << 16;
      memcpy(&f, &bits, 4);
    }
    out[i] = f;
  }
  free(host);
}
static matrix make(int type, int rows, int cols, int ld, int batch) {
  matrix m = {type, rows, cols, ld, (size_t)ld * (size_t)cols * (size_t)batch, NULL, NULL};
  m.values = malloc(m.elements * sizeof(double));
  for (size_t i = 0; i < m.elements; i++) m.values[i] = rounded(type, draw());
  CHECK(cudaMalloc((void **)&m.device, m.elements * size_of(type)));
  upload(&m);
  return m;
}
static void drop(matrix *m) {
  CHECK(cudaFree(m->device));
  free(m->values);
}
static cublasLtMatrixLayout_t layout_of(const matrix *m, int batch) {
  cublasLtMatrixLayout_t l;
  long long stride = (long long)m->ld * m->cols;
  CHECK(cublasLtMatrixLayoutCreate(&l, (cudaDataType_t)m->type, (uint64_t)m->rows, (uint64_t)m->cols, m->ld));
  CHECK(cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch, sizeof batch));
  CHECK(cublasLtMatrixLayoutSetAttribute(l, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride));
  return l;
}
static double gelu(double x) {
  return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
static double gelu_slope(double x) {
  return (gelu(x + 1e-5) - gelu(x - 1e-5)) / 2e-5;
}
static int wrong;
static void compare(const char *what, const matrix *m, size_t at, double got, double want) {
  double tolerance = m->type == CUDA_R_32F ? 2e-5 : 1.0 / 128;
  if (fabs(got - want) <= tolerance * fmax(1, fabs(want))) return;
  printf("  %s[%zu] is %.9g, should be %.9g\n", what, at, got, want);
  wrong = 1;
}

static void test(int in_type, int out_type, int ta, int tb, int m, int n, int k, int pad, int batch, float beta,
                 unsigned epilogue, const char *mistake) {
  const float alpha = 0.5f;
  const int bgradb = epilogue == CUBLASLT_EPILOGUE_BGRADB;
  matrix a = make(in_type, ta ? k : m, ta ? m : k, (ta ? k : m) + pad, batch);
  matrix b = make(in_type, tb ? n : k, tb ? k : n, (tb ? n : k) + pad, batch);
  matrix d = make(out_type, m, n, m + pad, batch), bias = make(out_type, bgradb ? n : m, 1, bgradb ? n : m, batch);
  matrix aux = make(out_type, m, n, (m + 7) / 8 * 8, batch);
  if (mistake && strcmp(mistake, "leading dimension") == 0) a.ld = a.rows - 1;
  cublasLtHandle_t lt;
  cublasLtMatmulDesc_t desc;
  cublasLtMatmulPreference_t wish;
  cublasLtMatmulHeuristicResult_t found;
  int count = 0, op_a = ta ? CUBLAS_OP_T : CUBLAS_OP_N, op_b = tb ? CUBLAS_OP_T : CUBLAS_OP_N;
  CHECK(cublasLtCreate(&lt));
  CHECK(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  CHECK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &op_a, sizeof op_a));
  CHECK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSB, &op_b, sizeof op_b));
  CHECK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
  CHECK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias.device, sizeof bias.device));
  CHECK(
      cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &aux.device, sizeof aux.device));
  long long aux_ld = aux.ld, bias_stride = bias.rows, aux_stride = (long long)aux.ld * n;
  if (mistake && strcmp(mistake, "auxiliary dimension") == 0) aux_ld = m | 1;
  CHECK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &aux_ld, sizeof aux_ld));
  CHECK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, &bias_stride, sizeof bias_stride));
  CHECK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, &aux_stride,
                                       sizeof aux_stride));
  cublasLtMatrixLayout_t la = layout_of(&a, batch), lb = layout_of(&b, batch), ld = layout_of(&d, batch);
  CHECK(cublasLtMatmulPreferenceCreate(&wish));
  size_t most = 1 << 20;
  unsigned align = mistake && strcmp(mistake, "alignment") == 0 ? 256 : 4;
  CHECK(cublasLtMatmulPreferenceSetAttribute(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most));
  for (int i = 0; i < 4; i++)
    CHECK(cublasLtMatmulPreferenceSetAttribute(
        wish, (cublasLtMatmulPreferenceAttributes_t)(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES + i), &align,
        sizeof align));
  int status = (int)cublasLtMatmulAlgoGetHeuristic(lt, desc, la, lb, ld, ld, wish, 1, &found, &count);
  if (mistake && status) {
    printf("%s: heuristic says %s\n", mistake, cublasLtGetStatusName((cublasStatus_t)status));
    exit(0);
  }
  CHECK(status);
  void *space;
  size_t given = found.workspaceSize;
  CHECK(cudaMalloc(&space, given));
  if (mistake && strcmp(mistake, "workspace") == 0) given--;
  char *at_a = a.device;
  if (mistake && strcmp(mistake, "alignment") == 0) at_a += 4;
  if (mistake && strcmp(mistake, "outside") == 0) at_a += 64;
  if (mistake && strcmp(mistake, "overlap") == 0) at_a = d.device;
  if (mistake && strcmp(mistake, "host memory") == 0) at_a = malloc(1 << 20);
  if (mistake && strcmp(mistake, "other product") == 0) {
    op_b = CUBLAS_OP_T;
    matrix t = make(in_type, n, k, n, batch);
    lb = layout_of(&t, batch);
    CHECK(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSB, &op_b, sizeof op_b));
  }
  cudaStream_t stream;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  status = (int)cublasLtMatmul(lt, desc, &alpha, at_a, la, b.device, lb, &beta, beta != 0 ? d.device : NULL, ld,
                               d.device, ld, &found.algo, space, given, stream);
  if (mistake) {
    printf("%s: %s\n", mistake, cublasLtGetStatusName((cublasStatus_t)status));
    exit(0);
  }
  CHECK(status);
  CHECK(cudaStreamSynchronize(stream));
  double *got = malloc(d.elements * sizeof *got), *got_bias = malloc(bias.elements * sizeof *got),
         *got_aux = malloc(aux.elements * sizeof *got);
  download(&d, got);
  download(&bias, got_bias);
  download(&aux, got_aux);
  for (int q = 0; q < batch; q++) {
    const double *va = a.values + (size_t)q * (size_t)a.ld * (size_t)a.cols;
    const double *vb = b.values + (size_t)q * (size_t)b.ld * (size_t)b.cols;
    size_t first = (size_t)q * (size_t)d.ld * (size_t)n, first_aux = (size_t)q * (size_t)aux.ld * (size_t)n;
    const double *vbias = bias.values + (size_t)q * (size_t)bias.rows;
    double *sums = calloc((size_t)(m + n), sizeof *sums);
    for (int i = 0; i < m; i++)
      for (int j = 0; j < n; j++) {
        double x = 0;
        for (int p = 0; p < k; p++) {
          double left = va[ta ? (size_t)i * (size_t)a.ld + (size_t)p : (size_t)p * (size_t)a.ld + (size_t)i];
          double right = vb[tb ? (size_t)p * (size_t)b.ld + (size_t)j : (size_t)j * (size_t)b.ld + (size_t)p];
          x += left * right;
          if (j == 0 && epilogue == CUBLASLT_EPILOGUE_BGRADA) sums[i] += left;
          if (i == 0 && bgradb) sums[j] += right;
        }
        size_t at = first + (size_t)j * (size_t)d.ld + (size_t)i,
               at_aux = first_aux + (size_t)j * (size_t)aux.ld + (size_t)i;
        x = (double)alpha * x + (double)beta * d.values[at];
        if (epilogue & CUBLASLT_EPILOGUE_BIAS) x += vbias[i];
        if (epilogue == CUBLASLT_EPILOGUE_GELU_AUX || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS)
          compare("aux", &aux, at_aux, got_aux[at_aux], x);
        if (epilogue & CUBLASLT_EPILOGUE_GELU) x = gelu(x);
        if (epilogue & CUBLASLT_EPILOGUE_RELU) x = fmax(x, 0);
        if (epilogue == CUBLASLT_EPILOGUE_DGELU || epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD)
          x *= gelu_slope(aux.values[at_aux]);
        if (epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD) sums[i] += x;
        compare("d", &d, at, got[at], x);
      }
    if (epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD || epilogue == CUBLASLT_EPILOGUE_BGRADA || bgradb)
      for (int i = 0; i < bias.rows; i++)
        compare("bias gradient", &bias, (size_t)(q * bias.rows + i), got_bias[q * bias.rows + i], sums[i]);
    free(sums);
  }
  printf("%s%s %d x %d x %d pad %d batch %d %s->%s beta %g epilogue %u\n", ta ? "T" : "N", tb ? "T" : "N", m, n, k, pad,
         batch, in_type == CUDA_R_32F ? "f32" : "bf16", out_type == CUDA_R_32F ? "f32" : "bf16", (double)beta,
         epilogue);
  free(got), free(got_bias), free(got_aux);
  drop(&a), drop(&b), drop(&d), drop(&bias), drop(&aux);
  CHECK(cudaFree(space));
  CHECK(cudaStreamDestroy(stream));
  CHECK(cublasLtMatrixLayoutDestroy(la) || cublasLtMatrixLayoutDestroy(lb) || cublasLtMatrixLayoutDestroy(ld));
  CHECK(cublasLtMatmulPreferenceDestroy(wish) || cublasLtMatmulDescDestroy(desc) || cublasLtDestroy(lt));
}

int main(int argc, char **argv) {
  const unsigned epilogues[] = {
      CUBLASLT_EPILOGUE_DEFAULT,     CUBLASLT_EPILOGUE_RELU,          CUBLASLT_EPILOGUE_BIAS,
      CUBLASLT_EPILOGUE_RELU_BIAS,   CUBLASLT_EPILOGUE_GELU,          CUBLASLT_EPILOGUE_GELU_BIAS,
      CUBLASLT_EPILOGUE_GELU_AUX,    CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_DGELU,
      CUBLASLT_EPILOGUE_DGELU_BGRAD, CUBLASLT_EPILOGUE_BGRADA,        CUBLASLT_EPILOGUE_BGRADB};
  if (argc > 1) {
    test(CUDA_R_32F, CUDA_R_32F, 0, 0, 8, 8, 8, 0, 1, 0,
         strcmp(argv[1], "auxiliary dimension") == 0 ? CUBLASLT_EPILOGUE_GELU_AUX : CUBLASLT_EPILOGUE_DEFAULT, argv[1]);
    return 1;
  }
  for (int types = 0; types < 3; types++)
    for (int t = 0; t < 4; t++) {
      int in = types ? CUDA_R_16BF : CUDA_R_32F, out = types == 2 ? CUDA_R_16BF : CUDA_R_32F;
      test(in, out, t & 1, t >> 1, 17, 9, 33, 0, 1, 0, CUBLASLT_EPILOGUE_DEFAULT, NULL);
      test(in, out, t & 1, t >> 1, 16, 40, 8, 3, 3, 1, CUBLASLT_EPILOGUE_DEFAULT, NULL);
      for (size_t e = 0; e < sizeof epilogues / sizeof *epilogues; e++)
        test(in, out, t & 1, t >> 1, 12, 7, 5, (int)e % 2, 1 + (int)e % 2, e % 3 ? 0 : 1, epilogues[e], NULL);
    }
  return wrong;
}
