/* Reductions in rank order: element i is ((x0 + x1) + x2) + …, so the bits depend neither on how a buffer is cut nor
 * on when messages arrive. Every rank gets its piece from all others, sums it, and sends the sum to all others; two
 * ranks exchange everything at once, which is as many bytes and one message fewer. */
#include "host/reduce.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 1024     /* elements summed at a time: all sources of a block stay in the first-level cache */
#define THREADED 65536 /* elements from which threads pay */

/* x[i] = reduction over all sources in rank order, of which number `rank` is x itself and the others lie in `parts`,
 * one after another, n elements each. */
#define COMBINE(R, name)                                                                                               \
  static void name(R *x, const R *parts, int64_t n, int rank, int size, bool maximum) {                                \
    int64_t blocks = (n + BLOCK - 1) / BLOCK;                                                                          \
    _Pragma("omp parallel for schedule(static) if (n >= THREADED)") for (int64_t block = 0; block < blocks; block++) { \
      int64_t first = block * BLOCK, count = n - first < BLOCK ? n - first : BLOCK;                                    \
      R sum[BLOCK];                                                                                                    \
      for (int q = 0; q < size; q++) {                                                                                 \
        const R *from = q == rank ? x + first : parts + (q < rank ? q : q - 1) * n + first;                            \
        if (q == 0) {                                                                                                  \
          memcpy(sum, from, (size_t)count * sizeof(R));                                                                \
        } else if (maximum) { /* a value that is not a number stays */                                                 \
          for (int64_t i = 0; i < count; i++) sum[i] = sum[i] >= from[i] || sum[i] != sum[i] ? sum[i] : from[i];       \
        } else {                                                                                                       \
          for (int64_t i = 0; i < count; i++) sum[i] += from[i];                                                       \
        }                                                                                                              \
      }                                                                                                                \
      memcpy(x + first, sum, (size_t)count * sizeof(R));                                                               \
    }                                                                                                                  \
  }
COMBINE(float, combine_f32)
COMBINE(double, combine_f64)

/* First element of rank r's piece. */
static int64_t piece_start(const pd_reduction *r, int rank) {
  return r->n / r->size * rank + (rank < r->n % r->size ? rank : r->n % r->size);
}

static int64_t piece_length(const pd_reduction *r, int rank) {
  return piece_start(r, rank + 1) - piece_start(r, rank);
}

static char *element(const pd_reduction *r, int64_t i) {
  return r->x + i * r->real_bytes;
}

static void start_pieces(pd_reduction *r) {
  bool whole = r->size == 2;
  int64_t mine = whole ? r->n : piece_length(r, r->rank);
  char *into = r->scratch;
  for (int q = 0; q < r->size; q++) {
    if (q == r->rank) continue;
    pd_receive_start(r->comm, into, mine * r->real_bytes, q, r->tag, &r->requests[r->request_count++]);
    into += mine * r->real_bytes;
  }
  for (int d = 1; d < r->size; d++) {
    int q = (r->rank + d) % r->size;
    const char *from = whole ? r->x : element(r, piece_start(r, q));
    int64_t length = whole ? r->n : piece_length(r, q);
    pd_send_start(r->comm, from, length * r->real_bytes, q, r->tag, &r->requests[r->request_count++]);
  }
}

static void start_sums(pd_reduction *r) {
  const char *mine = element(r, piece_start(r, r->rank));
  for (int d = 1; d < r->size; d++) {
    int q = (r->rank + r->size - d) % r->size;
    pd_receive_start(r->comm, element(r, piece_start(r, q)), piece_length(r, q) * r->real_bytes, q, r->tag + 1,
                     &r->requests[r->request_count++]);
  }
  for (int d = 1; d < r->size; d++) {
    pd_send_start(r->comm, mine, piece_length(r, r->rank) * r->real_bytes, (r->rank + d) % r->size, r->tag + 1,
                  &r->requests[r->request_count++]);
  }
}

/* The requests of a stage are complete: on to the next. */
static void advance(pd_reduction *r) {
  r->request_count = 0;
  if (r->stage == 1) {
    bool whole = r->size == 2;
    int64_t first = whole ? 0 : piece_start(r, r->rank), count = whole ? r->n : piece_length(r, r->rank);
    if (r->real_bytes == 4) {
      combine_f32((float *)(void *)element(r, first), (const float *)(void *)r->scratch, count, r->rank, r->size,
                  r->maximum);
    } else {
      combine_f64((double *)(void *)element(r, first), (const double *)(void *)r->scratch, count, r->rank, r->size,
                  r->maximum);
    }
    if (!whole) start_sums(r);
    r->stage = whole ? 0 : 2;
  } else {
    r->stage = 0;
  }
}

void pd_reduction_start(pd_reduction *r) {
  MPI_Comm_rank(r->comm, &r->rank);
  MPI_Comm_size(r->comm, &r->size);
  r->request_count = 0;
  r->stage = 0;
  if (r->size == 1 || r->n == 0) return;
  r->stage = 1;
  start_pieces(r);
}

bool pd_reduction_test(pd_reduction *r) {
  while (r->stage != 0) {
    int complete;
    MPI_Testall(r->request_count, r->requests, &complete, MPI_STATUSES_IGNORE);
    if (!complete) return false;
    advance(r);
  }
  return true;
}

void pd_reduction_finish(pd_reduction *r) {
  while (r->stage != 0) {
    MPI_Waitall(r->request_count, r->requests, MPI_STATUSES_IGNORE);
    advance(r);
  }
}

static void reduce_now(MPI_Comm comm, void *x, int64_t n, int real_bytes, bool maximum, void *scratch) {
  int size;
  MPI_Comm_size(comm, &size);
  if (size == 1 || n == 0) return;
  MPI_Request few[64];
  MPI_Request *requests = 2 * (size - 1) <= 64 ? few : malloc(2 * (size_t)(size - 1) * sizeof *requests);
  if (requests == NULL) pd_fail(PD_EXIT_MEMORY, "out of memory");
  pd_reduction r = {.comm = comm,
                    .x = x,
                    .n = n,
                    .real_bytes = real_bytes,
                    .maximum = maximum,
                    .scratch = scratch,
                    .requests = requests};
  pd_reduction_start(&r);
  pd_reduction_finish(&r);
  if (requests != few) free(requests);
}

/* ---- for segment functions: over the tensor-parallel ranks ---- */

static struct {
  MPI_Comm comm;
  int size; /* 0: no world yet, a program of one rank */
  void *scratch;
  int64_t elements;
} tensor;

void pd_reduce_over_tensor(MPI_Comm comm, int size, void *scratch, int64_t elements) {
  tensor.comm = comm;
  tensor.size = size;
  tensor.scratch = scratch;
  tensor.elements = elements;
}

static void over_tensor(void *x, int64_t n, int real_bytes, bool maximum) {
  if (tensor.size <= 1) return;
  if (pd_sum_scratch(n, tensor.size) > tensor.elements) {
    pd_fail(PD_EXIT_PLAN, "a reduction of %lld elements over tensor-parallel ranks was not planned", (long long)n);
  }
  reduce_now(tensor.comm, x, n, real_bytes, maximum, tensor.scratch);
}

void pd_tp_sum_f32(float *x, int64_t n) {
  over_tensor(x, n, 4, false);
}

void pd_tp_sum_f64(double *x, int64_t n) {
  over_tensor(x, n, 8, false);
}

void pd_tp_max_f32(float *x, int64_t n) {
  over_tensor(x, n, 4, true);
}

void pd_tp_max_f64(double *x, int64_t n) {
  over_tensor(x, n, 8, true);
}

/* Each rank's part goes to its place in every one of the `outer` rows. */
static void gather_over_tensor(int64_t outer, int64_t n, size_t real_bytes, const void *x, void *y) {
  const size_t bytes = (size_t)n * real_bytes;
  if (tensor.size <= 1) {
    memcpy(y, x, (size_t)outer * bytes);
    return;
  }
  if (outer > INT_MAX || n > INT_MAX / (int64_t)real_bytes) {
    pd_fail(PD_EXIT_PLAN, "a part of %lld x %lld elements is more than a gather over tensor-parallel ranks can move",
            (long long)outer, (long long)n);
  }
  MPI_Datatype part, column, placed;
  MPI_Type_contiguous((int)bytes, MPI_BYTE, &part);
  MPI_Type_create_hvector((int)outer, 1, (MPI_Aint)bytes * tensor.size, part, &column);
  MPI_Type_create_resized(column, 0, (MPI_Aint)bytes, &placed);
  MPI_Type_commit(&part);
  MPI_Type_commit(&placed);
  MPI_Allgather(x, (int)outer, part, y, 1, placed, tensor.comm);
  MPI_Type_free(&placed);
  MPI_Type_free(&column);
  MPI_Type_free(&part);
}

void pd_tp_gather_f32(int64_t outer, int64_t n, const float *x, float *y) {
  gather_over_tensor(outer, n, sizeof *x, x, y);
}

void pd_tp_gather_f64(int64_t outer, int64_t n, const double *x, double *y) {
  gather_over_tensor(outer, n, sizeof *x, x, y);
}
