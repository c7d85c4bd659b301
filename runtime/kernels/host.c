/* The host set: the kernels for a shared-memory machine, by OpenMP threads, vectors and the BLAS.
 *
 * Owns the number of threads of this process's kernels, and one scratch buffer per calling thread that only grows, so
 * that a training step allocates nothing. Every kernel gives the same bits for every number of threads: work is cut by
 * sizes alone, never by the number of threads, each piece is computed by one thread, and partial sums are added in the
 * order of the pieces. That is why products are cut here and the BLAS is only ever called for one thread at a time (its
 * own threads change the bits). Assumes what kernels.h says; the kernels are in host.inc.h, once per real type, and
 * call ref where only sizes beyond the BLAS's integers are concerned.
 */
#include "kernels/direct.h"
#include "kernels/draw.h"
#include "kernels/kernels.h"
#include "kernels/math.h"
#include "kernels/sets.h"

#include <cblas.h>
#include <dnnl.h>
#include <limits.h>
#include <math.h>
#include <omp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PD_GRAIN 32768 /* elements below which starting the threads costs more than it saves */
#define PD_CHUNK 4096  /* elements of one piece of element-wise work that is not a plain loop */
#define PD_PARTS 256   /* pieces of a long sum */
#define PD_LANES 256   /* outputs that a piece of a general contraction computes together */
#define PD_QUERIES 64  /* queries of one head that attention takes together */

static int64_t host_min(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static int64_t host_max(int64_t a, int64_t b) {
  return a > b ? a : b;
}

static int64_t host_pieces(int64_t n, int64_t size) {
  return n / size + (n % size != 0);
}

/* A buffer of the calling thread, aligned to 64; its contents last until the thread asks again. */
static void *host_scratch(size_t bytes) {
  static _Thread_local void *buffer;
  static _Thread_local size_t held;
  if (bytes > held) {
    const size_t page = (size_t)1 << 21, size = (bytes + bytes / 4 + page - 1) / page * page;
    free(buffer);
    held = 0;
    buffer = aligned_alloc(page, size);
    if (buffer == NULL) {
      fprintf(stderr, "pdrt: no memory for %zu bytes of kernel scratch\n", size);
      abort();
    }
    madvise(buffer, size, MADV_HUGEPAGE); /* advice: a kernel without huge pages refuses, which does not matter */
    held = size;
  }
  return buffer;
}

/* The BLAS asks OpenMP how many threads it may use. Inside a parallel region each thread says one for itself; outside,
 * between these two. */
static int host_single(void) {
  const int threads = omp_get_max_threads();
  if (threads > 1) omp_set_num_threads(1);
  return threads;
}

static void host_restore(int threads) {
  if (threads > 1) omp_set_num_threads(threads);
}

/* How a product is cut: `rows` x `cols` pieces, about square, the more the larger the product is (bench/gemm.c). */
typedef struct host_grid {
  int64_t rows, cols;
} host_grid;

static host_grid host_cut(int64_t m, int64_t n, int64_t k) {
  const double work = (double)m * (double)n * (double)k;
  const int64_t pieces = work < 0x1p20 ? 1 : work < 0x1p24 ? 4 : work < 0x1p28 ? 8 : 16;
  host_grid grid = {1, 1};
  while (grid.rows * grid.cols < pieces) {
    const int64_t height = m / grid.rows, width = n / grid.cols;
    if (host_max(height, width) < 64) break;
    if (height > width) {
      grid.rows *= 2;
    } else {
      grid.cols *= 2;
    }
  }
  return grid;
}

/* Start of piece i of `pieces` along an axis of size n: a multiple of 16, as the BLAS's own blocks are. */
static int64_t host_start(int64_t n, int64_t pieces, int64_t i) {
  if (i >= pieces) return n;
  return (n / pieces * i + n % pieces * i / pieces) / 16 * 16;
}

/* A view without axes of size 1, and with axes that are one in every operand joined. Sizes are positive. */
static pd_view host_simplify(const pd_view *view, bool with_b) {
  pd_view v = {0};
  for (int i = 0; i < view->rank; i++) {
    if (view->size[i] == 1) continue;
    v.size[v.rank] = view->size[i], v.out[v.rank] = view->out[i], v.a[v.rank] = view->a[i];
    v.b[v.rank] = with_b ? view->b[i] : 0;
    v.rank++;
  }
  for (int i = 0; i < v.rank; i++) {
    for (int j = 0; j < v.rank; j++) { /* axis i continues axis j: j takes i in, the last axis takes i's place */
      const int64_t s = v.size[j];
      if (i == j || v.out[i] != v.out[j] * s || v.a[i] != v.a[j] * s || v.b[i] != v.b[j] * s) continue;
      v.size[j] = s * v.size[i];
      v.rank--;
      for (int k = i; k < v.rank; k++) {
        v.size[k] = v.size[k + 1], v.out[k] = v.out[k + 1], v.a[k] = v.a[k + 1], v.b[k] = v.b[k + 1];
      }
      i = -1; /* look again from the first */
      break;
    }
  }
  return v;
}

static void host_push(pd_view *to, const pd_view *from, int axis) {
  const int i = to->rank++;
  to->size[i] = from->size[axis], to->out[i] = from->out[axis], to->a[i] = from->a[axis], to->b[i] = from->b[axis];
}

static int64_t host_count(const pd_view *view) {
  int64_t count = 1;
  for (int i = 0; i < view->rank; i++) count *= view->size[i];
  return count;
}

typedef struct host_place {
  int64_t out, a, b;
} host_place;

/* The offsets of position `index` of a view, last axis fastest. */
static host_place host_at(const pd_view *view, int64_t index) {
  host_place place = {0, 0, 0};
  for (int i = view->rank - 1; i >= 0; i--) {
    const int64_t at = view->rank == 1 ? index : index % view->size[i];
    place.out += at * view->out[i], place.a += at * view->a[i], place.b += at * view->b[i];
    index /= view->size[i];
  }
  return place;
}

/* The axis along which a is most nearly contiguous (b, where a stands still), or -1 if there is none. */
static int host_inner(const pd_view *view) {
  int best = -1;
  int64_t least = INT64_MAX;
  for (int i = 0; i < view->rank; i++) {
    const int64_t stride = llabs(view->a[i] != 0 ? view->a[i] : view->b[i]);
    if (stride != 0 && stride < least) best = i, least = stride;
  }
  return best;
}

/* The number of keys that query i of s sees among t. */
static int64_t host_seen(int64_t i, int64_t s, int64_t t, bool causal) {
  return causal ? host_min(t, host_max(0, i + 1 + t - s)) : t;
}

#define PD_BLOCKS 32

/* PD_BLOCKS blocks of the stream (key, hi) from `block` on: pd_philox_block with the lanes inside the rounds, the form
 * that vectorises. */
static void host_blocks(uint64_t key, uint64_t hi, uint64_t block, uint32_t *out) {
  uint32_t c0[PD_BLOCKS], c1[PD_BLOCKS], c2[PD_BLOCKS], c3[PD_BLOCKS], k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
  for (int j = 0; j < PD_BLOCKS; j++) {
    c0[j] = (uint32_t)(block + (uint64_t)j);
    c1[j] = (uint32_t)((block + (uint64_t)j) >> 32);
    c2[j] = (uint32_t)hi;
    c3[j] = (uint32_t)(hi >> 32);
  }
  for (int round = 0; round < 10; round++) {
#pragma omp simd
    for (int j = 0; j < PD_BLOCKS; j++) {
      const uint64_t p0 = (uint64_t)UINT32_C(0xD2511F53) * c0[j], p1 = (uint64_t)UINT32_C(0xCD9E8D57) * c2[j];
      const uint32_t next0 = (uint32_t)(p1 >> 32) ^ c1[j] ^ k0, next2 = (uint32_t)(p0 >> 32) ^ c3[j] ^ k1;
      c0[j] = next0, c1[j] = (uint32_t)p1, c2[j] = next2, c3[j] = (uint32_t)p0;
    }
    k0 += UINT32_C(0x9E3779B9);
    k1 += UINT32_C(0xBB67AE85);
  }
  for (int j = 0; j < PD_BLOCKS; j++) {
    out[4 * j] = c0[j], out[4 * j + 1] = c1[j], out[4 * j + 2] = c2[j], out[4 * j + 3] = c3[j];
  }
}

/* Words first .. first + count - 1 of the stream (key, hi). */
static void host_words(uint64_t key, uint64_t hi, uint64_t first, int64_t count, uint32_t *out) {
  int64_t i = 0;
  while (i < count) {
    const uint64_t word = first + (uint64_t)i;
    if (word % 4 == 0 && count - i >= 4 * PD_BLOCKS) {
      host_blocks(key, hi, word / 4, out + i);
      i += 4 * PD_BLOCKS;
    } else {
      uint32_t w[4];
      pd_philox_block(key, word / 4, hi, w);
      for (uint64_t j = word % 4; j < 4 && i < count; j++) out[i++] = w[j];
    }
  }
}

/* The products of one thread. f32: oneDNN, whose kernels are made for the processor at run time, but for tiny products,
 * where a call of OpenBLAS costs less; that chooses among kernels it was built with, and takes ones several times
 * slower on a processor that it does not know. f64: OpenBLAS, oneDNN has none. */
static void host_blas_f32(bool ta, bool tb, int64_t m, int64_t n, int64_t k, float alpha, const float *a, int64_t lda,
                          const float *b, int64_t ldb, float beta, float *c, int64_t ldc) {
  if ((double)m * (double)n * (double)k <= 4096 && host_max(host_max(lda, ldb), ldc) <= INT_MAX) {
    cblas_sgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, (int)m, (int)n, (int)k,
                alpha, a, (int)lda, b, (int)ldb, beta, c, (int)ldc);
    return;
  }
  if (dnnl_sgemm(ta ? 'T' : 'N', tb ? 'T' : 'N', m, n, k, alpha, a, lda, b, ldb, beta, c, ldc) != dnnl_success) {
    pd_set_ref_f32.gemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  }
}

static void host_blas_f64(bool ta, bool tb, int64_t m, int64_t n, int64_t k, double alpha, const double *a, int64_t lda,
                          const double *b, int64_t ldb, double beta, double *c, int64_t ldc) {
  if (host_max(host_max(lda, ldb), host_max(ldc, host_max(m, host_max(n, k)))) > INT_MAX) {
    pd_set_ref_f64.gemm(ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    return;
  }
  cblas_dgemm(CblasRowMajor, ta ? CblasTrans : CblasNoTrans, tb ? CblasTrans : CblasNoTrans, (int)m, (int)n, (int)k,
              alpha, a, (int)lda, b, (int)ldb, beta, c, (int)ldc);
}

/* A convolution without columns; f64: there is none. */
static bool host_direct_f32(pd_direct_kind kind, const pd_image_window *v, const float *a, const float *b, float *out) {
  return pd_direct_convolution(kind, v, a, b, out, host_scratch);
}

static bool host_direct_f64(pd_direct_kind kind, const pd_image_window *v, const double *a, const double *b,
                            double *out) {
  (void)kind, (void)v, (void)a, (void)b, (void)out;
  return false;
}

#define R float
#define F(name) name##_f32
#define R_MIN 0x1p-126f
#include "kernels/host.inc.h"
#undef R
#undef F
#undef R_MIN

#define R double
#define F(name) name##_f64
#define R_MIN 0x1p-1022
#include "kernels/host.inc.h"

void pd_kernels_threads(int threads) {
  const int count = threads < 1 ? 1 : threads;
  openblas_set_num_threads(count); /* for other users of it in this process; sets OpenMP's number too */
  omp_set_num_threads(count);
}
