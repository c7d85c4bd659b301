// Programs with one mistake each, by name; tests/run/fakegpu_test.py says how each must be found.
#include "program.h"

enum { N = 64 };
__global__ void fill(float *x, float value) {
  x[threadIdx.x] = value;
}
__global__ void add_to(float *to, const float *from) {
  to[threadIdx.x] += from[threadIdx.x];
}
static void all_are(const float *x, float value) {
  for (int i = 0; i < N; i++)
    if (!(x[i] == value)) {
      printf("wrong: element %d is %g, not %g\n", i, x[i], value);
      exit(5);
    }
}
#define FILL(stream, x, value) LAUNCH(fill, 1, N, 0, stream, x, value)
#define ADD_TO(stream, to, from) LAUNCH(add_to, 1, N, 0, stream, to, from)

// ---- order of streams ----

static void missing_wait() {
  stream one, two;
  buffer<float> x(N), y(N);
  FILL(one.at, x.at, 1.0f);
  FILL(two.at, y.at, 2.0f); // an event from `one` to `two` is missing
  ADD_TO(two.at, y.at, x.at);
  one.wait();
  two.wait();
  all_are(y.read().data(), 3);
}
static void wait_before_record() {
  stream one, two;
  event filled;
  buffer<float> x(N), y(N);
  filled.before(two); // waits for nothing
  FILL(one.at, x.at, 1.0f);
  filled.record(one);
  FILL(two.at, y.at, 2.0f);
  ADD_TO(two.at, y.at, x.at);
  one.wait();
  two.wait();
  all_are(y.read().data(), 3);
}
static void reused_too_early() {
  stream s;
  buffer<float> x(N), y(N);
  buffer<float, PINNED> host(N);
  for (int i = 0; i < N; i++) host.at[i] = 1;
  MUST(cudaMemcpyAsync(x.at, host.at, x.bytes(), cudaMemcpyHostToDevice, s.at));
  for (int i = 0; i < N; i++) host.at[i] = 2; // the copy may not have read it
  MUST(cudaMemcpyAsync(y.at, host.at, x.bytes(), cudaMemcpyHostToDevice, s.at));
  s.wait();
  all_are(x.read().data(), 1);
  all_are(y.read().data(), 2);
}
static void read_too_early() {
  stream s;
  buffer<float> x(N);
  buffer<float, PINNED> host(N);
  FILL(s.at, x.at, 1.0f);
  MUST(cudaMemcpyAsync(host.at, x.at, x.bytes(), cudaMemcpyDeviceToHost, s.at));
  std::vector<float> got(host.at, host.at + N); // before s.wait()
  s.wait();
  all_are(got.data(), 1);
}
static void overwritten_too_early() {
  stream one, two;
  event filled;
  buffer<float> x(N), y(N);
  FILL(one.at, x.at, 1.0f);
  FILL(one.at, y.at, 2.0f);
  filled.record(one);
  filled.before(two);
  ADD_TO(two.at, y.at, x.at);
  FILL(one.at, x.at, 5.0f); // `two` may still read x
  one.wait();
  two.wait();
  all_are(y.read().data(), 3);
}
static void graph_without_dependency() {
  stream one, two;
  event fork, join;
  buffer<float> x(N), y(N);
  FILL(one.at, y.at, 2.0f);
  MUST(cudaStreamBeginCapture(one.at, cudaStreamCaptureModeGlobal));
  fork.record(one);
  fork.before(two);
  FILL(two.at, x.at, 1.0f);
  ADD_TO(one.at, y.at, x.at); // before the join
  join.record(two);
  join.before(one);
  cudaGraph_t g;
  cudaGraphExec_t exec;
  MUST(cudaStreamEndCapture(one.at, &g));
  MUST(cudaGraphInstantiate(&exec, g, 0));
  MUST(cudaGraphLaunch(exec, one.at));
  one.wait();
  all_are(y.read().data(), 3);
  MUST(cudaGraphExecDestroy(exec));
  MUST(cudaGraphDestroy(g));
}
static void nonblocking_without_order() {
  stream s; // does not wait for the legacy stream
  buffer<float> x(N);
  MUST(cudaMemset(x.at, 0, x.bytes()));
  FILL(s.at, x.at, 1.0f);
  s.wait();
  MUST(cudaStreamSynchronize(0));
  all_are(x.read().data(), 1);
}
static void freed_in_another_stream() {
  stream one, two;
  event made;
  float *x;
  buffer<float> y(N);
  FILL(two.at, y.at, 2.0f);
  MUST(cudaMallocAsync((void **)&x, N * sizeof(float), one.at));
  FILL(one.at, x, 1.0f);
  made.record(one);
  made.before(two);
  ADD_TO(two.at, y.at, x);
  MUST(cudaFreeAsync(x, one.at)); // `two` may still read it
  MUST(cudaDeviceSynchronize());
}
static void used_before_malloc() {
  stream one, two;
  float *x;
  MUST(cudaMallocAsync((void **)&x, N * sizeof(float), one.at));
  FILL(two.at, x, 1.0f);
  two.wait();
  MUST(cudaFreeAsync(x, one.at));
  one.wait();
}
static void never_waited_for() {
  stream s;
  static float *x;
  MUST(cudaMalloc((void **)&x, 256));
  FILL(s.at, x, 1.0f);
}

// ---- memory ----

static void leak() {
  void *x;
  MUST(cudaMalloc(&x, 1000));
}
static void leaked_event() {
  cudaEvent_t e;
  MUST(cudaEventCreate(&e));
}
static void double_free() {
  void *x;
  MUST(cudaMalloc(&x, 1000));
  MUST(cudaFree(x));
  MUST(cudaFree(x));
}
static void freed_inside() {
  char *x;
  MUST(cudaMalloc((void **)&x, 1000));
  MUST(cudaFree(x + 256));
}
static void wrong_free() {
  void *x;
  MUST(cudaMalloc(&x, 1000));
  MUST(cudaFreeHost(x));
}
static void used_after_free() {
  float *x;
  MUST(cudaMalloc((void **)&x, N * sizeof(float)));
  MUST(cudaFree(x));
  FILL(0, x, 1.0f);
  MUST(cudaDeviceSynchronize());
}
static void copy_out_of_range() {
  buffer<float> x(N), y(N + 1);
  MUST(cudaMemcpy(x.at, y.at, y.bytes(), cudaMemcpyDeviceToDevice));
}
static void fill_out_of_range() {
  buffer<float> x(N);
  MUST(cudaMemsetAsync(x.at + 1, 0, x.bytes(), 0));
}
static void kernel_out_of_bounds() {
  buffer<float> x(N);
  FILL(0, x.at + 1, 1.0f); // 256 bytes end at a page that nobody may touch
  MUST(cudaDeviceSynchronize());
}
static void kernel_in_the_slack() {
  buffer<float> x(N - 1); // the last thread writes one element past the end, still in the same 256 bytes
  FILL(0, x.at, 1.0f);
  MUST(cudaDeviceSynchronize());
}
static void host_touches_device() {
  buffer<float> x(N);
  x.at[0] = 1;
}
static void host_pointer_to_kernel() {
  float x[N];
  FILL(0, x, 1.0f);
  MUST(cudaDeviceSynchronize());
}
static void pointers_swapped() {
  buffer<float> x(N);
  float host[N] = {0};
  MUST(cudaMemcpy(host, x.at, x.bytes(), cudaMemcpyHostToDevice));
}
static void never_written() {
  buffer<float> x(N), y(N);
  FILL(0, y.at, 2.0f);
  ADD_TO(0, y.at, x.at);
  all_are(y.read().data(), 2);
}

// ---- handles, devices, launches, captures ----

static void destroyed_stream() {
  cudaStream_t s;
  MUST(cudaStreamCreate(&s));
  MUST(cudaStreamDestroy(s));
  MUST(cudaStreamSynchronize(s));
}
static void event_destroyed_twice() {
  cudaEvent_t e;
  MUST(cudaEventCreate(&e));
  MUST(cudaEventDestroy(e));
  MUST(cudaEventDestroy(e));
}
static void memory_of_another_device() {
  buffer<float> x(N);
  MUST(cudaSetDevice(1));
  FILL(0, x.at, 1.0f);
  MUST(cudaDeviceSynchronize());
}
static void stream_of_another_device() {
  stream s;
  MUST(cudaSetDevice(1));
  buffer<float> x(N);
  FILL(s.at, x.at, 1.0f);
  MUST(cudaGetLastError());
}
static void too_many_threads() {
  buffer<float> x(2000);
  LAUNCH(fill, 1, 2000, 0, 0, x.at, 1.0f);
  MUST(cudaGetLastError());
}
static void too_much_shared_memory() {
  buffer<float> x(N);
  LAUNCH(fill, 1, N, 100000, 0, x.at, 1.0f);
  MUST(cudaGetLastError());
}
static void synchronize_in_capture() {
  stream s;
  buffer<float> x(N);
  MUST(cudaStreamBeginCapture(s.at, cudaStreamCaptureModeGlobal));
  FILL(s.at, x.at, 1.0f);
  MUST(cudaStreamSynchronize(s.at));
}
static void capture_not_joined() {
  stream one, two;
  event fork;
  buffer<float> x(N);
  cudaGraph_t g;
  MUST(cudaStreamBeginCapture(one.at, cudaStreamCaptureModeGlobal));
  fork.record(one);
  fork.before(two);
  FILL(two.at, x.at, 1.0f);
  MUST(cudaStreamEndCapture(one.at, &g));
}
static void call_in_host_function() {
  stream s;
  MUST(cudaLaunchHostFunc(s.at, [](void *) { MUST(cudaDeviceSynchronize()); }, nullptr));
  s.wait();
}

// ---- barriers and warps ----

__global__ void exits_before_barrier(float *x) {
  if (threadIdx.x == 5) return;
  __syncthreads();
  x[threadIdx.x] = 1;
}
__global__ void two_barriers(float *x) {
  if (threadIdx.x < 32) {
    __syncthreads();
    x[threadIdx.x] = 1;
  } else {
    __syncthreads();
  }
}
__global__ void part_of_a_warp(float *x) {
  if (threadIdx.x % 2) x[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1.0f, 2);
}
__global__ void wrong_mask(float *x) {
  if (threadIdx.x % 2) x[threadIdx.x] = __shfl_xor_sync(0x55555555u, 1.0f, 2);
}
__global__ void two_operations(float *x) {
  if (threadIdx.x % 2) x[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1.0f, 2);
  else x[threadIdx.x] = (float)__ballot_sync(0xffffffffu, 1);
}
__global__ void shared_race(float *x) {
  __shared__ float box[N];
  box[threadIdx.x] = (float)threadIdx.x;
  x[threadIdx.x] = box[N - 1 - threadIdx.x]; // a barrier is missing
}
__global__ void shared_never_written(float *x) {
  __shared__ float box[N];
  if (threadIdx.x > 0) box[threadIdx.x] = 1;
  __syncthreads();
  x[threadIdx.x] = box[threadIdx.x];
}
__global__ void beyond_static(float *x) {
  __shared__ float box[N], next[N];
  next[threadIdx.x] = 1;
  __syncthreads();
  box[threadIdx.x + 1] = 1; // the last thread writes into what comes behind
  __syncthreads();
  x[threadIdx.x] = next[threadIdx.x] * box[1];
}
__global__ void beyond_dynamic(float *x) {
  SHARED(float, box);
  box[threadIdx.x] = 1;
  __syncthreads();
  x[threadIdx.x] = box[0];
}
__global__ void deep_stack(float *x) {
  volatile float many[8200]; // of local memory, a little more than a thread of the fake GPU has
  for (int i = 0; i < 8200; i++) many[i] = 1;
  x[threadIdx.x] = many[8199];
}
#define KERNEL(kernel, bytes, ...)                                                                                     \
  static void kernel##_() {                                                                                            \
    buffer<float> x(N);                                                                                                \
    LAUNCH(kernel, 1, N, bytes, 0, x.at);                                                                              \
    MUST(cudaGetLastError());                                                                                          \
    std::vector<float> got = x.read();                                                                                 \
    for (int i = 0; i < N; i++)                                                                                        \
      if (!(got[i] == __VA_ARGS__)) {                                                                                  \
        printf("wrong: element %d is %g\n", i, got[i]);                                                                \
        exit(5);                                                                                                       \
      }                                                                                                                \
  }
KERNEL(exits_before_barrier, 0, 1)
KERNEL(two_barriers, 0, 1)
KERNEL(part_of_a_warp, 0, 1)
KERNEL(wrong_mask, 0, 1)
KERNEL(two_operations, 0, 1)
KERNEL(shared_race, 0, N - 1 - i)
KERNEL(shared_never_written, 0, 1)
KERNEL(beyond_static, 0, 1)
KERNEL(beyond_dynamic, N * 4 - 4, 1)
KERNEL(deep_stack, 0, 1)

__global__ void two_blocks_write(float *x) {
  x[(threadIdx.x + blockIdx.x) % N] = (float)blockIdx.x; // which block is last is not defined
}
static void block_race() {
  buffer<float> x(N);
  LAUNCH(two_blocks_write, 2, N, 0, 0, x.at);
  all_are(x.read().data(), 1);
}

static const part parts[] = {PART(block_race),
    PART(missing_wait), PART(wait_before_record), PART(reused_too_early), PART(read_too_early), PART(overwritten_too_early),
    PART(graph_without_dependency), PART(nonblocking_without_order), PART(freed_in_another_stream), PART(used_before_malloc),
    PART(never_waited_for), PART(leak), PART(leaked_event), PART(double_free), PART(freed_inside), PART(wrong_free),
    PART(used_after_free), PART(copy_out_of_range), PART(fill_out_of_range), PART(kernel_out_of_bounds),
    PART(kernel_in_the_slack), PART(host_touches_device), PART(host_pointer_to_kernel), PART(pointers_swapped),
    PART(never_written), PART(destroyed_stream), PART(event_destroyed_twice), PART(memory_of_another_device),
    PART(stream_of_another_device), PART(too_many_threads), PART(too_much_shared_memory), PART(synchronize_in_capture),
    PART(capture_not_joined), PART(call_in_host_function), {"exits_before_barrier", exits_before_barrier_},
    {"two_barriers", two_barriers_}, {"part_of_a_warp", part_of_a_warp_}, {"wrong_mask", wrong_mask_},
    {"two_operations", two_operations_}, {"shared_race", shared_race_}, {"shared_never_written", shared_never_written_},
    {"beyond_static", beyond_static_}, {"beyond_dynamic", beyond_dynamic_}, {"deep_stack", deep_stack_}};
int main(int argc, char **argv) {
  return run_part(parts, sizeof parts / sizeof *parts, argc, argv);
}
