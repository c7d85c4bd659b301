/* NCCL's operations over MPI ranks, each against the values they must give; with an argument, one mistake. Every rank
 * prints what is wrong; rank 0 the number of checks. */
#include <cuda_runtime_api.h>
#include <mpi.h>
#include <nccl.h>
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

enum { COUNT = 1000 };
static int rank, size, wrong, checks;
static const char *mistake = "";
static int makes(const char *name, int who) {
  return strcmp(mistake, name) == 0 && rank == who;
}

static ncclComm_t start(MPI_Comm over) {
  ncclUniqueId id;
  ncclComm_t comm;
  int r, n;
  MPI_Comm_rank(over, &r);
  MPI_Comm_size(over, &n);
  if (r == 0) CHECK(ncclGetUniqueId(&id));
  MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, over);
  CHECK(ncclCommInitRank(&comm, n, id, r));
  return comm;
}

static float *put(const float *values, size_t n) {
  float *device;
  CHECK(cudaMalloc((void **)&device, n * sizeof *values));
  CHECK(cudaMemcpy(device, values, n * sizeof *values, cudaMemcpyHostToDevice));
  return device;
}
static void expect(const char *what, const float *device, size_t n, float (*value)(size_t)) {
  float *got = malloc(n * sizeof *got);
  CHECK(cudaMemcpy(got, device, n * sizeof *got, cudaMemcpyDeviceToHost));
  for (size_t i = 0; i < n; i++) {
    checks++;
    if (got[i] == value(i)) continue;
    printf("rank %d: %s[%zu] is %g, should be %g\n", rank, what, i, (double)got[i], (double)value(i));
    wrong = 1;
    break;
  }
  free(got);
}
static float mine(size_t i) {
  return (float)(rank + 1) * 100 + (float)(i % 7);
}
static float sum_value(size_t i) {
  return (float)(size * (size + 1) / 2) * 100 + (float)size * (float)(i % 7);
}
static float max_value(size_t i) {
  return (float)size * 100 + (float)(i % 7);
}
static float gathered_value(size_t i) {
  return (float)(i / COUNT + 1) * 100 + (float)(i % COUNT % 7);
}
static float scattered_value(size_t i) {
  size_t part = (size_t)(COUNT / size);
  return sum_value((size_t)rank * part + i);
}
static float previous_value(size_t i) {
  return (float)((rank + size - 1) % size + 1) * 100 + (float)(i % 7);
}
static float first_value(size_t i) {
  return 100 + (float)(i % 7);
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (argc > 1) mistake = argv[1];
  float values[COUNT];
  for (size_t i = 0; i < COUNT; i++) values[i] = mine(i);
  MPI_Comm half;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  ncclComm_t all = start(MPI_COMM_WORLD), pair = start(half);
  cudaStream_t stream, other;
  cudaEvent_t event;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  CHECK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
  CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  float *a = put(values, COUNT), *b = put(values, COUNT), *c = put(values, COUNT), *d = put(values, COUNT), *wide;
  CHECK(cudaMalloc((void **)&wide, (size_t)size * COUNT * sizeof *wide));

  /* one after another on a stream; the second in place */
  size_t count = makes("count", 1) ? COUNT - 1 : COUNT;
  if (makes("order", 1)) CHECK(ncclAllGather(a, wide, COUNT, ncclFloat32, all, stream));
  CHECK(ncclAllReduce(a, b, count, ncclFloat32, makes("reduction", 1) ? ncclMax : ncclSum,
                      makes("communicator", 1) ? pair : all, stream));
  CHECK(ncclAllReduce(c, c, COUNT, ncclFloat32, ncclMax, all, stream));
  if (!makes("order", 1)) CHECK(ncclAllGather(a, wide, COUNT, ncclFloat32, all, stream));
  CHECK(ncclBroadcast(a, d, COUNT, ncclFloat32, 0, all, stream));
  CHECK(cudaStreamSynchronize(stream));
  expect("sum", b, COUNT, sum_value);
  expect("maximum", c, COUNT, max_value);
  expect("gathered", wide, (size_t)size * COUNT, gathered_value);
  expect("broadcast", d, COUNT, first_value);
  CHECK(ncclReduceScatter(a, b, (size_t)(COUNT / size), ncclFloat32, ncclSum, all, stream));
  CHECK(ncclReduce(a, c, COUNT, ncclFloat32, ncclSum, size - 1, all, stream));
  CHECK(cudaStreamSynchronize(stream));
  expect("scattered", b, (size_t)(COUNT / size), scattered_value);
  if (rank == size - 1) expect("reduced", c, COUNT, sum_value);

  /* a ring: all send and receive at once, which only a group allows */
  if (size > 1) {
    if (!makes("no group", rank)) CHECK(ncclGroupStart());
    CHECK(ncclSend(a, COUNT, ncclFloat32, makes("peer", 0) ? size : (rank + 1) % size, all, stream));
    CHECK(ncclRecv(b, makes("size", 1) ? COUNT / 2 : COUNT, ncclFloat32, (rank + size - 1) % size, all, stream));
    if (!makes("no group", rank)) CHECK(ncclGroupEnd());
    CHECK(cudaStreamSynchronize(stream));
    expect("ring", b, COUNT, previous_value);
  }

  /* captured and replayed: 2^3 times the sum over the pair's members */
  cudaGraph_t graph;
  cudaGraphExec_t replay;
  CHECK(cudaMemcpy(d, values, sizeof values, cudaMemcpyHostToDevice));
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  CHECK(cudaEventRecord(event, stream));
  CHECK(cudaStreamWaitEvent(other, event, 0));
  CHECK(ncclAllReduce(d, d, COUNT, ncclFloat32, ncclSum, pair, other));
  CHECK(cudaEventRecord(event, other));
  CHECK(cudaStreamWaitEvent(stream, event, 0));
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&replay, graph, 0));
  int members = (size + 1 - rank % 2) / 2;
  for (int i = 0; i < 3; i++) CHECK(cudaGraphLaunch(replay, stream));
  CHECK(cudaStreamSynchronize(stream));
  float once[COUNT], got[COUNT];
  for (size_t i = 0; i < COUNT; i++) {
    float sum = 0;
    for (int r = rank % 2; r < size; r += 2) sum += (float)(r + 1) * 100 + (float)(i % 7);
    once[i] = sum * (float)(members * members);
  }
  CHECK(cudaMemcpy(got, d, sizeof got, cudaMemcpyDeviceToHost));
  checks++;
  if (memcmp(got, once, sizeof got) != 0) printf("rank %d: replayed sums are wrong\n", rank), wrong = 1;

  CHECK(cudaGraphExecDestroy(replay));
  CHECK(cudaGraphDestroy(graph));
  if (makes("early destroy", 0)) CHECK(ncclAllReduce(a, a, COUNT, ncclFloat32, ncclSum, pair, stream));
  CHECK(ncclCommDestroy(pair));
  CHECK(ncclCommDestroy(all));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaFree(a) || cudaFree(b) || cudaFree(c) || cudaFree(d) || cudaFree(wide));
  CHECK(cudaEventDestroy(event));
  CHECK(cudaStreamDestroy(stream));
  CHECK(cudaStreamDestroy(other));
  if (rank == 0) printf("%d checks\n", checks);
  MPI_Comm_free(&half);
  MPI_Finalize();
  return wrong;
}
