/* What `cluster < >` should say about this machine when so many ranks run at once: the product rate of a rank while all
 * of them multiply, and the latency and bandwidth of messages between two of them. One line of `key value` pairs for
 * bench/predict.py: flops, latency, bandwidth, and the time of an all-reduce of a megabyte over all ranks. Neighbours
 * on the machine only ever make things slower, so each figure is the best of many; where there are more ranks than
 * cores, a rank gets its share of the best rate.
 *
 * usage: mpirun -n RANKS machine ROWS COLUMNS INNER      the shape of the products
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "kernels/kernels.h"

enum { SECONDS = 1, SHORT = 8, LONG = 1 << 20, ROUNDS = 200 };

static double least(double a, double b) {
  return a < b ? a : b;
}

static double product_rate(int64_t m, int64_t n, int64_t k) {
  const pd_kernels_f32 *kernels = pd_kernels_select_f32("host");
  float *a = calloc((size_t)(m * k), sizeof *a), *b = calloc((size_t)(k * n), sizeof *b),
        *c = calloc((size_t)(m * n), sizeof *c);
  if (a == NULL || b == NULL || c == NULL) abort();
  for (int64_t i = 0; i < m * k; i++) a[i] = (float)(i % 7);
  for (int64_t i = 0; i < k * n; i++) b[i] = (float)(i % 5);
  kernels->gemm(false, false, m, n, k, 1, a, k, b, n, 0, c, n); /* the first call prepares */
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  double best = 1e9;
  while (MPI_Wtime() - begin < SECONDS) {
    const double start = MPI_Wtime();
    kernels->gemm(false, false, m, n, k, 1, a, k, b, n, 0, c, n);
    best = least(best, MPI_Wtime() - start);
  }
  free(a);
  free(b);
  free(c);
  return 2.0 * (double)(m * n * k) / best;
}

/* One way, between ranks 0 and 1. */
static double message_time(int rank, int bytes, char *buffer) {
  double best = 1e9;
  for (int i = 0; i < ROUNDS && rank < 2; i++) {
    const double begin = MPI_Wtime();
    if (rank == 0) {
      MPI_Send(buffer, bytes, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
      MPI_Recv(buffer, bytes, MPI_CHAR, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
      MPI_Recv(buffer, bytes, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      MPI_Send(buffer, bytes, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
    }
    best = least(best, (MPI_Wtime() - begin) / 2);
  }
  return best;
}

static double reduction_time(float *buffer, int64_t count) {
  double best = 1e9;
  for (int i = 0; i < ROUNDS; i++) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    MPI_Allreduce(MPI_IN_PLACE, buffer, (int)count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    best = least(best, MPI_Wtime() - begin);
  }
  return best;
}

int main(int argc, char **argv) {
  int rank, size;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc != 4) MPI_Abort(MPI_COMM_WORLD, 2);
  pd_kernels_threads(1);
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  double rate = product_rate(atol(argv[1]), atol(argv[2]), atol(argv[3])), sum;
  if (size > cores) rate *= (double)cores / size;
  MPI_Allreduce(&rate, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  char *buffer = calloc(LONG, 1);
  if (buffer == NULL) abort();
  if (rank == 0) printf("flops %.4g", sum / size);
  if (size > 1) {
    const double latency = message_time(rank, SHORT, buffer), whole = message_time(rank, LONG, buffer),
                 reduction = reduction_time((float *)(void *)buffer, LONG / 4);
    if (rank == 0) printf(" latency %.4g bandwidth %.4g reduction %.4g", latency, LONG / (whole - latency), reduction);
  }
  if (rank == 0) printf("\n");
  free(buffer);
  MPI_Finalize();
  return 0;
}
