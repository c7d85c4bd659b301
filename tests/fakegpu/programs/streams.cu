// Streams, events, graphs, memory and device queries: correct programs, which must give the same numbers in every order that
// the fake GPU may choose, and calls that CUDA refuses, which must give CUDA's error codes.
#include "program.h"

__global__ void add(float *x, float value, int n) {
  int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) x[i] += value;
}
__global__ void multiply(float *x, const float *y, int n) {
  int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) x[i] *= y[i];
}
__global__ void copy(float *to, const float *from, int n) {
  int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) to[i] = from[i];
}
__global__ void __launch_bounds__(96) bounded(int *out) {
  __shared__ int box[10000];
  SHARED(int, more);
  box[threadIdx.x] = 2;
  more[threadIdx.x] = 3;
  __syncthreads();
  if (threadIdx.x == 0) *out = box[blockDim.x - 1] + more[blockDim.x - 1];
}
__global__ void wide(int *out) {
  SHARED(int, box);
  box[threadIdx.x] = 1;
  __syncthreads();
  if (threadIdx.x == 0) *out = box[blockDim.x - 1];
}

enum { N = 200 };
#define ADD(stream, x, value) LAUNCH(add, 4, 64, 0, stream, x, value, N)
#define MULTIPLY(stream, x, y) LAUNCH(multiply, 4, 64, 0, stream, x, y, N)

static void all_are(const float *x, float value) {
  for (int i = 0; i < N; i++)
    if (x[i] != value) {
      printf("element %d is %g, not %g\n", i, x[i], value);
      exit(5);
    }
}

// Copies in, work and copies out on three streams, over two buffers that are used again and again.
static void double_buffering() {
  const int rounds = 7;
  stream in, work, out;
  buffer<float> d0(N), d1(N);
  buffer<float, PINNED> h0(N), h1(N), r0(N), r1(N);
  event loaded, ready, stored[2];
  float *device[] = {d0.at, d1.at}, *host[] = {h0.at, h1.at}, *result[] = {r0.at, r1.at};
  for (int round = 0; round < rounds + 2; round++) {
    int k = round % 2;
    if (round >= 2) {
      MUST(cudaEventSynchronize(stored[k].at)); // of two rounds ago: its host buffers are free, too
      all_are(result[k], (float)(2 * (round - 2) + 3));
    }
    if (round >= rounds) continue;
    for (int i = 0; i < N; i++) host[k][i] = (float)(2 * round + 1);
    MUST(cudaMemcpyAsync(device[k], host[k], d0.bytes(), cudaMemcpyHostToDevice, in.at));
    loaded.record(in);
    loaded.before(work);
    ADD(work.at, device[k], 2);
    ready.record(work);
    ready.before(out);
    MUST(cudaMemcpyAsync(result[k], device[k], d0.bytes(), cudaMemcpyDeviceToHost, out.at));
    stored[k].record(out);
    // `in` may write device[k] in two rounds only after `out` has read it: the host has waited for stored[k] then
  }
}

// Fork and join by events, captured once and launched many times between other work of the stream.
static void graph() {
  stream first, second, third;
  buffer<float> a(N), b(N), c(N);
  event fork, join2, join3;
  MUST(cudaStreamBeginCapture(first.at, cudaStreamCaptureModeGlobal));
  ADD(first.at, a.at, 1);
  fork.record(first);
  fork.before(second);
  fork.before(third);
  LAUNCH(copy, 4, 64, 0, second.at, b.at, a.at, N);
  MULTIPLY(second.at, b.at, b.at);
  MUST(cudaMemcpyAsync(c.at, a.at, a.bytes(), cudaMemcpyDeviceToDevice, third.at));
  ADD(third.at, c.at, 10);
  join2.record(second);
  join3.record(third);
  join2.before(first);
  join3.before(first);
  MULTIPLY(first.at, c.at, b.at); // (a + 10) a^2
  cudaGraph_t g;
  cudaGraphExec_t x;
  MUST(cudaStreamEndCapture(first.at, &g));
  size_t nodes = 0;
  MUST(cudaGraphGetNodes(g, nullptr, &nodes));
  CHECK(nodes == 6);
  MUST(cudaGraphInstantiate(&x, g, 0));
  MUST(cudaGraphDestroy(g));
  MUST(cudaMemsetAsync(a.at, 0, a.bytes(), first.at)); // recorded work has not run: a is still undefined
  for (int i = 1; i <= 4; i++) MUST(cudaGraphLaunch(x, first.at));
  ADD(first.at, c.at, 0.5f);
  first.wait();
  all_are(a.read().data(), 4);
  all_are(c.read().data(), 14 * 16 + 0.5f);
  MUST(cudaGraphExecDestroy(x));
}

// The legacy stream waits for blocking streams, and they for it; a non-blocking stream takes no part.
static void legacy_stream() {
  stream one(cudaStreamDefault), two(cudaStreamDefault);
  buffer<float> a(N), b(N), c(N);
  MUST(cudaMemset(a.at, 0, a.bytes()));
  for (int i = 0; i < 3; i++) {
    ADD(one.at, a.at, 1);
    LAUNCH(copy, 4, 64, 0, 0, b.at, a.at, N);
    ADD(two.at, b.at, 10);
    LAUNCH(copy, 4, 64, 0, cudaStreamPerThread, c.at, a.at, N); // a blocking stream, too
    MUST(cudaStreamSynchronize(cudaStreamPerThread));
  }
  std::vector<float> host(N);
  MUST(cudaMemcpy(host.data(), b.at, b.bytes(), cudaMemcpyDeviceToHost));
  all_are(host.data(), 13);
  all_are(c.read().data(), 3);
}

// Host memory: staged pageable copies, rectangles, managed and registered memory.
static void copies() {
  stream s;
  buffer<float> a(N), b(N);
  std::vector<float> host(N, 3);
  MUST(cudaMemcpyAsync(a.at, host.data(), a.bytes(), cudaMemcpyHostToDevice, s.at));
  std::fill(host.begin(), host.end(), -1.0f); // pageable memory has been read by now
  MUST(cudaMemcpyAsync(b.at, a.at, a.bytes(), cudaMemcpyDefault, s.at));
  MUST(cudaMemcpyAsync(host.data(), b.at, b.bytes(), cudaMemcpyDeviceToHost, s.at));
  all_are(host.data(), 3); // a copy to pageable memory waits
  s.wait();

  float square[4 * 5], part[2 * 3];
  for (int i = 0; i < 20; i++) square[i] = (float)i;
  MUST(cudaMemcpy2D(a.at, 16, square + 6, 20, 12, 2, cudaMemcpyHostToDevice));
  MUST(cudaMemcpy2D(part, 12, a.at, 16, 12, 2, cudaMemcpyDeviceToHost));
  const float want[] = {6, 7, 8, 11, 12, 13};
  CHECK(!memcmp(part, want, sizeof part));

  MUST(cudaHostRegister(host.data(), N * sizeof(float), cudaHostRegisterDefault));
  MUST(cudaMemcpyAsync(host.data(), b.at, b.bytes(), cudaMemcpyDeviceToHost, s.at));
  s.wait();
  all_are(host.data(), 3);
  MUST(cudaHostUnregister(host.data()));

  float *managed;
  MUST(cudaMallocManaged((void **)&managed, N * sizeof(float), cudaMemAttachGlobal));
  for (int i = 0; i < N; i++) managed[i] = 1;
  ADD(s.at, managed, 4);
  s.wait();
  all_are(managed, 5);
  MUST(cudaFree(managed));
}

// Allocation in stream order.
static void stream_ordered() {
  stream s, t;
  event filled, used;
  float *x, *y;
  MUST(cudaMallocAsync((void **)&x, N * sizeof(float), s.at));
  MUST(cudaMemsetAsync(x, 0, N * sizeof(float), s.at));
  filled.record(s);
  filled.before(t);
  ADD(t.at, x, 2);
  MUST(cudaMallocAsync((void **)&y, N * sizeof(float), t.at));
  LAUNCH(copy, 4, 64, 0, t.at, y, x, N);
  used.record(t);
  used.before(s);
  MUST(cudaFreeAsync(x, s.at));
  std::vector<float> host(N);
  MUST(cudaMemcpyAsync(host.data(), y, N * sizeof(float), cudaMemcpyDeviceToHost, t.at));
  all_are(host.data(), 2);
  MUST(cudaFreeAsync(y, t.at));
  s.wait();
  t.wait();
  cudaMemPool_t pool;
  uint64_t threshold = 1 << 20, got = 0;
  MUST(cudaDeviceGetDefaultMemPool(&pool, 0));
  MUST(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
  MUST(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &got));
  CHECK(got == threshold);
}

// Host functions run in stream order; events tell time; queries end.
static std::vector<int> seen;
static void note(void *number) {
  seen.push_back((int)(intptr_t)number);
}
static void host_functions() {
  stream s, t;
  event begin(cudaEventDefault), end(cudaEventDefault), late;
  begin.record(s);
  MUST(cudaLaunchHostFunc(s.at, note, (void *)1));
  MUST(cudaLaunchHostFunc(s.at, note, (void *)2));
  late.record(s);
  late.before(t);
  MUST(cudaLaunchHostFunc(t.at, note, (void *)3));
  end.record(t);
  while (cudaEventQuery(end.at) == cudaErrorNotReady) {}
  MUST(cudaEventQuery(end.at));
  CHECK(seen == std::vector<int>({1, 2, 3}));
  float milliseconds;
  MUST(cudaEventElapsedTime(&milliseconds, begin.at, end.at));
  CHECK(milliseconds >= 0);
  MUST(cudaLaunchHostFunc(s.at, note, (void *)4));
  while (cudaStreamQuery(s.at) == cudaErrorNotReady) {}
  CHECK(seen.back() == 4);
  MUST(cudaDeviceSynchronize());
  CHECK(cudaGetLastError() == cudaSuccess); // "not ready" is not remembered
  event never;
  MUST(cudaEventQuery(never.at));
  never.before(s);
  GIVES(cudaEventElapsedTime(&milliseconds, begin.at, never.at), cudaErrorInvalidResourceHandle);
  GIVES(cudaEventElapsedTime(&milliseconds, begin.at, late.at), cudaErrorInvalidResourceHandle);
}

// What devices there are.
static void queries() {
  int count, device, value, least, greatest, driver, runtime;
  MUST(cudaGetDeviceCount(&count));
  CHECK(count >= 1);
  MUST(cudaSetDevice(count - 1));
  MUST(cudaGetDevice(&device));
  CHECK(device == count - 1);
  cudaDeviceProp p;
  MUST(cudaGetDeviceProperties(&p, device));
  MUST(cudaDeviceGetAttribute(&value, cudaDevAttrComputeCapabilityMajor, device));
  CHECK(value == p.major && p.warpSize == 32 && p.maxThreadsPerBlock == 1024 && p.multiProcessorCount > 0);
  MUST(cudaDeviceGetAttribute(&value, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  CHECK((size_t)value == p.sharedMemPerBlockOptin && p.sharedMemPerBlockOptin > p.sharedMemPerBlock);
  MUST(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  CHECK(greatest < least);
  cudaStream_t high;
  MUST(cudaStreamCreateWithPriority(&high, cudaStreamNonBlocking, greatest));
  MUST(cudaStreamGetPriority(high, &value));
  CHECK(value == greatest);
  MUST(cudaStreamDestroy(high));
  MUST(cudaDriverGetVersion(&driver));
  MUST(cudaRuntimeGetVersion(&runtime));
  CHECK(driver >= 13000 && runtime == CUDART_VERSION);
  GIVES(cudaSetDevice(count), cudaErrorInvalidDevice);
  CHECK(!strcmp(cudaGetErrorName(cudaErrorInvalidDevice), "cudaErrorInvalidDevice"));
  CHECK(!strcmp(cudaGetErrorString(cudaErrorInvalidDevice), "invalid device ordinal"));
  CHECK(cudaPeekAtLastError() == cudaErrorInvalidDevice && cudaGetLastError() == cudaErrorInvalidDevice);
  CHECK(cudaGetLastError() == cudaSuccess);

  size_t free0, free1, total;
  MUST(cudaMemGetInfo(&free0, &total));
  {
    buffer<char> some(1 << 20);
    MUST(cudaMemGetInfo(&free1, &total));
    CHECK(free0 - free1 >= 1 << 20);
    cudaPointerAttributes a;
    MUST(cudaPointerGetAttributes(&a, some.at + 100));
    CHECK(a.type == cudaMemoryTypeDevice && a.device == device);
    int local;
    MUST(cudaPointerGetAttributes(&a, &local));
    CHECK(a.type == cudaMemoryTypeUnregistered);
  }
  void *all;
  GIVES(cudaMalloc(&all, total + 1), cudaErrorMemoryAllocation);
  CHECK(!all && cudaGetLastError() == cudaErrorMemoryAllocation);
}

// Launches that CUDA refuses.
static void launch_limits() {
  buffer<int> out(1);
  LAUNCH(wide, 1, 1025, 0, 0, out.at);
  GIVES(cudaGetLastError(), cudaErrorInvalidConfiguration);
  LAUNCH(wide, 1, dim3(32, 33), 0, 0, out.at);
  GIVES(cudaGetLastError(), cudaErrorInvalidConfiguration);
  LAUNCH(wide, 1, dim3(1, 1, 65), 0, 0, out.at);
  GIVES(cudaGetLastError(), cudaErrorInvalidConfiguration);
  LAUNCH(wide, 0, 32, 0, 0, out.at);
  GIVES(cudaGetLastError(), cudaErrorInvalidConfiguration);
  LAUNCH(wide, dim3(1, 65536), 32, 0, 0, out.at);
  GIVES(cudaGetLastError(), cudaErrorInvalidConfiguration);
  LAUNCH(wide, 1, 32, 60000, 0, out.at);
  GIVES(cudaGetLastError(), cudaErrorInvalidValue);
  GIVES(cudaFuncSetAttribute((const void *)wide, cudaFuncAttributeMaxDynamicSharedMemorySize, 300000), cudaErrorInvalidValue);
  MUST(cudaFuncSetAttribute((const void *)wide, cudaFuncAttributeMaxDynamicSharedMemorySize, 60000));
  (void)cudaGetLastError();
  LAUNCH(wide, 1, 1024, 60000, 0, out.at);
  GIVES(cudaGetLastError(), cudaSuccess);
  CHECK(out.read()[0] == 1);
  LAUNCH(bounded, 1, 97, 97 * 4, 0, out.at);
  GIVES(cudaGetLastError(), cudaErrorInvalidValue);
  LAUNCH(bounded, 1, 96, 20000, 0, out.at); // with 40000 bytes of static shared memory
  GIVES(cudaGetLastError(), cudaErrorInvalidValue);
  LAUNCH(bounded, 1, 96, 96 * 4, 0, out.at);
  CHECK(out.read()[0] == 5);
  cudaFuncAttributes attributes;
  MUST(cudaFuncGetAttributes(&attributes, (const void *)bounded));
  CHECK(attributes.maxThreadsPerBlock == 96 && attributes.sharedSizeBytes == 40000 && attributes.numRegs > 4);
  int blocks;
  MUST(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, (const void *)wide, 256, 0));
  CHECK(blocks == 8);
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(1), config.blockDim = dim3(64), config.dynamicSmemBytes = 256;
  void *arguments[] = {&out.at};
  MUST(cudaLaunchKernelExC(&config, (const void *)wide, arguments));
  CHECK(out.read()[0] == 1);
}

// Captures that CUDA refuses. Each begins anew: a refusal makes a capture invalid.
struct failing_capture {
  stream a, b;
  stream c{cudaStreamDefault};
  event e, outside;
  buffer<float> x{N};
  cudaGraph_t g = nullptr;
  explicit failing_capture(bool blocking = false) {
    MUST(cudaMemset(x.at, 0, x.bytes()));
    MUST(cudaDeviceSynchronize());
    outside.record(b);
    MUST(cudaStreamBeginCapture(blocking ? c.at : a.at, cudaStreamCaptureModeGlobal));
    ADD(blocking ? c.at : a.at, x.at, 1);
  }
  void ends(cudaError_t error, bool blocking = false) {
    GIVES(cudaStreamEndCapture(blocking ? c.at : a.at, &g), error);
    CHECK(!g);
    (void)cudaGetLastError();
  }
};
static void capture_rules() {
  {
    failing_capture f;
    GIVES(cudaStreamSynchronize(f.a.at), cudaErrorStreamCaptureUnsupported);
    f.ends(cudaErrorStreamCaptureInvalidated);
  }
  {
    failing_capture f;
    GIVES(cudaDeviceSynchronize(), cudaErrorStreamCaptureUnsupported);
    ADD(f.a.at, f.x.at, 1);
    GIVES(cudaGetLastError(), cudaErrorStreamCaptureInvalidated);
    f.ends(cudaErrorStreamCaptureInvalidated);
  }
  {
    failing_capture f;
    void *p;
    GIVES(cudaMalloc(&p, 100), cudaErrorStreamCaptureUnsupported);
    f.ends(cudaErrorStreamCaptureInvalidated);
  }
  {
    failing_capture f;
    GIVES(cudaEventQuery(f.outside.at), cudaErrorStreamCaptureUnsupported);
    f.ends(cudaErrorStreamCaptureInvalidated);
  }
  {
    failing_capture f;
    f.e.record(f.a);
    f.e.before(f.b);
    ADD(f.b.at, f.x.at, 1);
    f.ends(cudaErrorStreamCaptureUnjoined);
    CHECK(f.g == nullptr);
  }
  {
    failing_capture f;
    GIVES(cudaStreamWaitEvent(f.a.at, f.outside.at, 0), cudaErrorStreamCaptureIsolation);
    f.ends(cudaErrorStreamCaptureInvalidated);
  }
  {
    failing_capture f;
    f.e.record(f.a);
    f.e.before(f.b);
    GIVES(cudaStreamEndCapture(f.b.at, &f.g), cudaErrorStreamCaptureUnmatched);
    f.ends(cudaErrorStreamCaptureInvalidated);
  }
  {
    failing_capture f;
    MUST(cudaStreamBeginCapture(f.b.at, cudaStreamCaptureModeGlobal));
    f.e.record(f.b);
    GIVES(cudaStreamWaitEvent(f.a.at, f.e.at, 0), cudaErrorStreamCaptureMerge);
    GIVES(cudaStreamEndCapture(f.b.at, &f.g), cudaErrorStreamCaptureInvalidated);
    f.ends(cudaErrorStreamCaptureInvalidated);
  }
  {
    failing_capture f(true);
    GIVES(cudaMemsetAsync(f.x.at, 0, 4, 0), cudaErrorStreamCaptureImplicit);
    f.ends(cudaErrorStreamCaptureInvalidated, true);
  }
  {
    failing_capture f; // the legacy stream may be used beside a non-blocking stream
    MUST(cudaMemsetAsync(f.x.at, 0, 4, 0));
    MUST(cudaStreamEndCapture(f.a.at, &f.g));
    MUST(cudaGraphDestroy(f.g));
  }
  {
    stream s;
    cudaGraph_t g;
    GIVES(cudaStreamBeginCapture(0, cudaStreamCaptureModeGlobal), cudaErrorStreamCaptureUnsupported);
    GIVES(cudaStreamEndCapture(s.at, &g), cudaErrorIllegalState);
    cudaStreamCaptureStatus status;
    MUST(cudaStreamIsCapturing(s.at, &status));
    CHECK(status == cudaStreamCaptureStatusNone);
  }
}

// Two devices: memory of each, copies between them.
static void two_devices() {
  int can;
  MUST(cudaDeviceCanAccessPeer(&can, 0, 1));
  CHECK(can);
  buffer<float> a(N);
  MUST(cudaMemset(a.at, 0, a.bytes()));
  MUST(cudaDeviceSynchronize());
  MUST(cudaSetDevice(1));
  {
    stream s;
    buffer<float> b(N);
    MUST(cudaMemcpyPeerAsync(b.at, 1, a.at, 0, a.bytes(), s.at));
    ADD(s.at, b.at, 1);
    MUST(cudaDeviceEnablePeerAccess(0, 0));
    GIVES(cudaDeviceEnablePeerAccess(0, 0), cudaErrorPeerAccessAlreadyEnabled);
    (void)cudaGetLastError();
    LAUNCH(copy, 4, 64, 0, s.at, a.at, b.at, N);
    s.wait();
    all_are(a.read().data(), 1);
    MUST(cudaSetDevice(0));
    ADD(s.at, b.at, 1); // a stream of the other device
    GIVES(cudaGetLastError(), cudaErrorInvalidResourceHandle);
    event e;
    GIVES(cudaEventRecord(e.at, s.at), cudaErrorInvalidResourceHandle);
    (void)cudaGetLastError();
  }
}

static const part parts[] = {PART(double_buffering), PART(graph),         PART(legacy_stream), PART(copies),
                             PART(stream_ordered),   PART(host_functions), PART(queries),      PART(launch_limits),
                             PART(capture_rules),    PART(two_devices)};
int main(int argc, char **argv) {
  return run_part(parts, sizeof parts / sizeof *parts, argc, argv);
}
