/* What the test programs of the fake GPU share. They are CUDA programs like any other: on a real GPU they must pass,
 * too. */
#ifndef PROGRAM_H
#define PROGRAM_H

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vector>

#ifdef PD_FAKE_GPU
#define LAUNCH(kernel, grid, block, shared, stream, ...) FAKE_KERNEL(kernel)
#define SHARED(T, name) FAKE_DYNAMIC_SHARED(T, name)
#else
#define LAUNCH(kernel, grid, block, shared, stream, ...) kernel<<<grid, block, shared, stream>>>(__VA_ARGS__)
#define SHARED(T, name)                                                                                                \
  extern __shared__ __align__(16) unsigned char dynamic_shared[];                                                      \
  T *const name = reinterpret_cast<T *>(dynamic_shared)
#endif

/* a CUDA call that must work */
#define MUST(call) must(call, #call, __LINE__)
static inline void must(cudaError_t error, const char *call, int line) {
  if (error == cudaSuccess) return;
  printf("line %d: %s: %s\n", line, call, cudaGetErrorName(error));
  exit(3);
}

/* a CUDA call that must fail in this way */
#define GIVES(call, wanted) gives(call, wanted, #call, __LINE__)
static inline void gives(cudaError_t error, cudaError_t wanted, const char *call, int line) {
  if (error == wanted) return;
  printf("line %d: %s: %s, not %s\n", line, call, cudaGetErrorName(error), cudaGetErrorName(wanted));
  exit(4);
}

/* a condition that must hold */
#define CHECK(condition, ...) check(condition, #condition, __LINE__)
static inline void check(bool holds, const char *condition, int line) {
  if (holds) return;
  printf("line %d: not true: %s\n", line, condition);
  exit(5);
}

/* memory of one kind, freed at the end of its scope */
enum place { DEVICE, PINNED };
template <class T, place where = DEVICE> struct buffer {
  T *at = nullptr;
  size_t count;
  explicit buffer(size_t n) : count(n) {
    MUST(where == DEVICE ? cudaMalloc((void **)&at, n * sizeof(T)) : cudaMallocHost((void **)&at, n * sizeof(T)));
  }
  buffer(const buffer &) = delete;
  ~buffer() {
    MUST(where == DEVICE ? cudaFree(at) : cudaFreeHost(at));
  }
  size_t bytes() const {
    return count * sizeof(T);
  }
  std::vector<T> read() const {
    std::vector<T> host(count);
    MUST(cudaMemcpy(host.data(), at, bytes(), cudaMemcpyDefault));
    return host;
  }
  void write(const std::vector<T> &host) {
    MUST(cudaMemcpy(at, host.data(), bytes(), cudaMemcpyDefault));
  }
};

struct stream {
  cudaStream_t at;
  explicit stream(unsigned flags = cudaStreamNonBlocking) {
    MUST(cudaStreamCreateWithFlags(&at, flags));
  }
  stream(const stream &) = delete;
  ~stream() {
    MUST(cudaStreamDestroy(at));
  }
  void wait() {
    MUST(cudaStreamSynchronize(at));
  }
};

struct event {
  cudaEvent_t at;
  explicit event(unsigned flags = cudaEventDisableTiming) {
    MUST(cudaEventCreateWithFlags(&at, flags));
  }
  event(const event &) = delete;
  ~event() {
    MUST(cudaEventDestroy(at));
  }
  void record(const stream &s) {
    MUST(cudaEventRecord(at, s.at));
  }
  void before(const stream &s) {
    MUST(cudaStreamWaitEvent(s.at, at, 0));
  }
};

/* one part of a program, chosen on the command line by its name */
struct part {
  const char *name;
  void (*run)();
};
static inline int run_part(const part *parts, size_t count, int argc, char **argv) {
  for (size_t i = 0; i < count; i++)
    if (argc > 1 && !strcmp(argv[1], parts[i].name)) {
      parts[i].run();
      printf("ok\n");
      return 0;
    }
  for (size_t i = 0; i < count; i++) printf("%s\n", parts[i].name);
  return argc > 1 ? 2 : 0;
}
#define PART(name)                                                                                                     \
  { #name, name }

#endif
