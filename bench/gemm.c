/* How fast are products, and do their bits depend on the number of threads? For the shapes of a GPT-2 step and some
 * squares: each library by itself on 1 and on all threads, and the host kernel, which cuts a product by its shape and
 * gives every piece to one thread. The kernel's choices (host_cut and host_blas_* in runtime/kernels/host.c) come from
 * this table; bench/README.md tells how to run it. Figures are the best of several runs, in GFLOP/s; a '*' marks one
 * whose result had other bits than on 1 thread.
 */
#include "kernels/kernels.h"

#include <cblas.h>
#include <dnnl.h>
#include <malloc.h>
#include <omp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct shape {
  bool ta, tb;
  int m, n, k;
} shape;

static const shape shapes[] = {
    {false, false, 16, 16, 16},      {false, false, 64, 64, 64},       {false, false, 256, 256, 256},
    {false, false, 512, 512, 512},   {false, false, 1024, 1024, 1024}, {false, true, 1, 768, 768},
    {false, true, 256, 768, 768},    {false, true, 256, 3072, 768},    {false, true, 256, 768, 3072},
    {false, true, 256, 50257, 768},  {false, true, 1024, 3072, 768},   {false, false, 1024, 768, 3072},
    {false, false, 256, 768, 50257}, {true, false, 3072, 768, 256},    {true, false, 50257, 768, 256},
};

typedef void (*product)(const shape *s, const void *a, const void *b, void *c);

static void openblas_f32(const shape *s, const void *a, const void *b, void *c) {
  cblas_sgemm(CblasRowMajor, s->ta ? CblasTrans : CblasNoTrans, s->tb ? CblasTrans : CblasNoTrans, s->m, s->n, s->k, 1,
              a, s->ta ? s->m : s->k, b, s->tb ? s->k : s->n, 0, c, s->n);
}

static void onednn_f32(const shape *s, const void *a, const void *b, void *c) {
  dnnl_sgemm(s->ta ? 'T' : 'N', s->tb ? 'T' : 'N', s->m, s->n, s->k, 1, a, s->ta ? s->m : s->k, b, s->tb ? s->k : s->n,
             0, c, s->n);
}

static void host_f32(const shape *s, const void *a, const void *b, void *c) {
  pd_kernels_select_f32("host")->gemm(s->ta, s->tb, s->m, s->n, s->k, 1, a, s->ta ? s->m : s->k, b, s->tb ? s->k : s->n,
                                      0, c, s->n);
}

static void openblas_f64(const shape *s, const void *a, const void *b, void *c) {
  cblas_dgemm(CblasRowMajor, s->ta ? CblasTrans : CblasNoTrans, s->tb ? CblasTrans : CblasNoTrans, s->m, s->n, s->k, 1,
              a, s->ta ? s->m : s->k, b, s->tb ? s->k : s->n, 0, c, s->n);
}

static void host_f64(const shape *s, const void *a, const void *b, void *c) {
  pd_kernels_select_f64("host")->gemm(s->ta, s->tb, s->m, s->n, s->k, 1, a, s->ta ? s->m : s->k, b, s->tb ? s->k : s->n,
                                      0, c, s->n);
}

static const struct {
  const char *name;
  product run;
  size_t bytes; /* of an element */
} columns[] = {{"OpenBLAS", openblas_f32, 4},
               {"oneDNN", onednn_f32, 4},
               {"host", host_f32, 4},
               {"f64 OpenBLAS", openblas_f64, 8},
               {"f64 host", host_f64, 8}};

static double measure(product run, const shape *s, const void *a, const void *b, void *c, int threads) {
  pd_kernels_threads(threads);
  const double begin = omp_get_wtime();
  double best = 1e9;
  for (int i = 0; i < 1000 && (i < 3 || omp_get_wtime() - begin < 0.2); i++) {
    const double start = omp_get_wtime();
    run(s, a, b, c);
    const double took = omp_get_wtime() - start;
    if (took < best) best = took;
  }
  return 2.0 * s->m * s->n * s->k / best * 1e-9;
}

static void *numbers(size_t count) { /* for both types: small doubles whose halves are also sane floats */
  float *x = malloc(count * sizeof(double));
  if (x == NULL) {
    fprintf(stderr, "gemm: no memory\n");
    exit(1);
  }
  uint32_t state = 1;
  for (size_t i = 0; i < 2 * count; i++) {
    state = state * 1664525u + 1013904223u;
    x[i] = (float)(state >> 8) * 0x1p-24f + 1;
  }
  return x;
}

int main(int argc, char **argv) {
  mallopt(M_MMAP_THRESHOLD, 1 << 30); /* as the runtime does: the libraries' buffers are kept */
  mallopt(M_TRIM_THRESHOLD, INT32_MAX);
  const int threads = argc > 1 ? atoi(argv[1]) : omp_get_num_procs();
  const size_t largest = (size_t)50257 * 768;
  void *a = numbers(largest), *b = numbers(largest), *one = numbers(largest), *all = numbers(largest);
  printf("OpenBLAS kernels: %s; %d threads\n%-22s", openblas_get_corename(), threads, "transposed, m, n, k");
  for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) printf(" %16s", columns[i].name);
  printf("\n");
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    const shape *s = &shapes[i];
    printf("%c%c %5d %6d %6d", s->ta ? 'T' : 'N', s->tb ? 'T' : 'N', s->m, s->n, s->k);
    for (size_t j = 0; j < sizeof columns / sizeof *columns; j++) {
      const double alone = measure(columns[j].run, s, a, b, one, 1);
      const double together = measure(columns[j].run, s, a, b, all, threads);
      const bool same = memcmp(one, all, (size_t)s->m * (size_t)s->n * columns[j].bytes) == 0;
      printf("  %6.1f / %6.1f%c", alone, together, same ? ' ' : '*');
      fflush(stdout);
    }
    printf("\n");
  }
  free(a), free(b), free(one), free(all);
  return 0;
}
