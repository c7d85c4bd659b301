/* What the text of a kernel sees when g++ compiles it for the fake GPU: the CUDA language of a .cu file as C++.
 *
 *   g++ -x c++ -std=c++17 -O2 -DPD_FAKE_GPU -include tests/fakegpu/device.h -I/usr/local/cuda/include -fPIC -shared \
 *       -Wl,-Bsymbolic kernels.cu -o kernels-twin.so
 *
 * NVIDIA's own headers supply types, vector types and bf16/fp16 arithmetic; this file supplies what only nvcc knows.
 * Threads are fibers (block.cpp); every function that may switch to another thread takes the place it is called from,
 * for reports.
 *
 * A .cu file needs three forms that plain C++ lacks, each a macro of its own under PD_FAKE_GPU:
 * - a launch `kernel<<<…>>>(…)` cannot be parsed: FAKE_KERNEL(kernel<float, 4>) in its place makes the kernel
 *   known (the launch itself comes from the program that nvcc built, through libcudart, which finds kernels by name);
 * - `extern __shared__ T name[]` becomes FAKE_DYNAMIC_SHARED(T, name);
 * - `__constant__` and `__device__` variables are ordinary globals, found by name; they must not be static. */
#ifndef PD_FAKE_DEVICE_H
#define PD_FAKE_DEVICE_H

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <utility>

/* the built-in variables are declared below, per thread */
#define threadIdx fake_unused_threadIdx
#define blockIdx fake_unused_blockIdx
#define blockDim fake_unused_blockDim
#define gridDim fake_unused_gridDim
#include <device_launch_parameters.h>
#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim
#include <cuda_runtime.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#undef __shared__
#define __shared__ static thread_local
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __managed__
#define __managed__ PD_FAKE_GPU_has_no_managed_variables

/* ---- the engine's side (block.cpp) ---- */

typedef struct fake_parameter {
  size_t bytes;
  bool pointer;
} fake_parameter;

/* one kernel: made by fake_registered, linked into a list when the twin is loaded */
typedef struct fake_kernel {
  const void *function;
  void (*run)(void *const *arguments);
  const fake_parameter *parameters;
  int count;
  struct fake_kernel *next;
} fake_kernel;

/* what else a device thread sees of itself */
typedef struct fake_thread {
  unsigned lane, warp;
  void *dynamic_shared;
  size_t dynamic_bytes;
} fake_thread;

/* the place of a call in the kernel's text */
typedef struct fake_place {
  const char *file;
  int line;
} fake_place;

extern "C" {
extern __thread fake_thread *fake_here __attribute__((tls_model("initial-exec")));
void fake_kernel_register(fake_kernel *kernel);
/* waits for all threads of the block; returns the number of threads whose predicate is not 0 */
int fake_block_barrier(int predicate, const char *name, fake_place place);
/* gives a value to the other lanes of the mask, waits for theirs, returns 32 slots by lane; `orders` 1: a memory
 * barrier too */
const uint64_t *fake_warp_exchange(unsigned mask, uint64_t value, int orders, const char *name, fake_place place);
void fake_device_fault(const char *name, const char *what, fake_place place) __attribute__((noreturn));
void fake_fence(void);
long long fake_clock(void);
}

#define FAKE_PLACE_PARAMETERS const char *file = __builtin_FILE(), int line = __builtin_LINE()

/* ---- registration ---- */

/* arguments are the fake's memory, not the program's */
#define FAKE_UNSEEN __attribute__((no_sanitize("thread")))

template <class T> constexpr fake_parameter fake_describe() {
  return {sizeof(T), std::is_pointer_v<T>};
}

template <class F> struct fake_signature;
template <class... A> struct fake_signature<void (*)(A...)> {
  static constexpr int count = sizeof...(A);
  /* one more than needed: an array may not be empty */
  static constexpr fake_parameter parameters[count + 1] = {fake_describe<std::remove_cv_t<A>>()..., {0, false}};
  template <size_t... I>
  FAKE_UNSEEN static void call(void (*kernel)(A...), void *const *arguments, std::index_sequence<I...>) {
    (void)arguments;
    kernel(*static_cast<std::remove_cv_t<A> *>(arguments[I])...);
  }
};

template <auto Kernel> struct fake_registered {
  using signature = fake_signature<std::decay_t<decltype(Kernel)>>;
  FAKE_UNSEEN static void invoke(void *const *arguments) {
    signature::call(Kernel, arguments, std::make_index_sequence<signature::count>());
  }
  struct node : fake_kernel {
    node()
        : fake_kernel{reinterpret_cast<const void *>(Kernel), invoke, signature::parameters, signature::count,
                      nullptr} {
      fake_kernel_register(this);
    }
  };
  static inline node entry;
};

/* Makes a kernel known to the fake GPU; a statement of a function (which need not run), or FAKE_KERNEL_GLOBAL outside
 * one. */
#define FAKE_KERNEL(...)                                                                                               \
  ((void)(&__VA_ARGS__), /* or gcc 12 may not instantiate a kernel that is named as a template argument only */        \
   (void)&fake_registered<&__VA_ARGS__>::entry)
#define FAKE_JOIN_(a, b) a##b
#define FAKE_JOIN(a, b) FAKE_JOIN_(a, b)
#define FAKE_KERNEL_GLOBAL(...)                                                                                        \
  [[maybe_unused]] static fake_kernel *const FAKE_JOIN(fake_kernel_, __COUNTER__) =                                    \
      &fake_registered<&__VA_ARGS__>::entry

/* Host code in the same text must compile, too; it never runs. cuda_runtime.h has these forms for nvcc only. */
template <class T>
inline cudaError_t cudaMemcpyToSymbol(const T &symbol, const void *from, size_t bytes, size_t offset = 0,
                                      cudaMemcpyKind kind = cudaMemcpyHostToDevice) {
  return cudaMemcpyToSymbol(static_cast<const void *>(&symbol), from, bytes, offset, kind);
}
template <class T>
inline cudaError_t cudaMemcpyFromSymbol(void *to, const T &symbol, size_t bytes, size_t offset = 0,
                                        cudaMemcpyKind kind = cudaMemcpyDeviceToHost) {
  return cudaMemcpyFromSymbol(to, static_cast<const void *>(&symbol), bytes, offset, kind);
}
template <class T> inline cudaError_t cudaGetSymbolAddress(void **address, const T &symbol) {
  return cudaGetSymbolAddress(address, static_cast<const void *>(&symbol));
}

/* ---- built-in variables and memory ---- */

#define FAKE_VARIABLE(type, name)                                                                                      \
  extern __thread const type name __asm__("fake_" #name) __attribute__((tls_model("initial-exec")))
FAKE_VARIABLE(uint3, threadIdx);
FAKE_VARIABLE(uint3, blockIdx);
FAKE_VARIABLE(dim3, blockDim);
FAKE_VARIABLE(dim3, gridDim);
#define FAKE_DYNAMIC_SHARED(T, name) T *const name = static_cast<T *>(fake_here->dynamic_shared)

/* ---- barriers ---- */

inline void __syncthreads(FAKE_PLACE_PARAMETERS) {
  fake_block_barrier(0, "__syncthreads", {file, line});
}
inline int __syncthreads_count(int predicate, FAKE_PLACE_PARAMETERS) {
  return fake_block_barrier(predicate, "__syncthreads_count", {file, line});
}
inline int __syncthreads_or(int predicate, FAKE_PLACE_PARAMETERS) {
  return fake_block_barrier(predicate, "__syncthreads_or", {file, line}) != 0;
}
inline int __syncthreads_and(int predicate, FAKE_PLACE_PARAMETERS) {
  return fake_block_barrier(!predicate, "__syncthreads_and", {file, line}) == 0;
}
inline void __syncwarp(unsigned mask = 0xffffffffu, FAKE_PLACE_PARAMETERS) {
  fake_warp_exchange(mask, 0, 1, "__syncwarp", {file, line});
}
inline void __threadfence() {
  fake_fence();
}
inline void __threadfence_block() {
  fake_fence();
}
inline void __threadfence_system() {
  fake_fence();
}

/* ---- warp collectives ---- */

template <class T> inline uint64_t fake_bits(T value) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>, "a shuffle moves up to eight bytes");
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof value);
  return bits;
}
template <class T> inline T fake_value(uint64_t bits) {
  T value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* the value of lane `source`; the lane must have taken part */
template <class T>
inline T fake_shuffle(unsigned mask, T value, int source, const char *name, const char *file, int line) {
  const uint64_t *slots = fake_warp_exchange(mask, fake_bits(value), 0, name, {file, line});
  if (!(mask >> (source & 31) & 1)) fake_device_fault("shuffle", "reads a lane that is not in its mask", {file, line});
  return fake_value<T>(slots[source & 31]);
}
inline int fake_segment(int width) {
  return static_cast<int>(fake_here->lane) & ~(width - 1);
}

template <class T> inline T __shfl_sync(unsigned mask, T value, int source, int width = 32, FAKE_PLACE_PARAMETERS) {
  return fake_shuffle(mask, value, fake_segment(width) + (source & (width - 1)), "__shfl_sync", file, line);
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, FAKE_PLACE_PARAMETERS) {
  int lane = static_cast<int>(fake_here->lane), source = lane - static_cast<int>(delta);
  return fake_shuffle(mask, value, source < fake_segment(width) ? lane : source, "__shfl_up_sync", file, line);
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, FAKE_PLACE_PARAMETERS) {
  int lane = static_cast<int>(fake_here->lane), source = lane + static_cast<int>(delta);
  return fake_shuffle(mask, value, source >= fake_segment(width) + width ? lane : source, "__shfl_down_sync", file,
                      line);
}
template <class T> inline T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, FAKE_PLACE_PARAMETERS) {
  int lane = static_cast<int>(fake_here->lane), source = lane ^ lanes;
  return fake_shuffle(mask, value, source >= fake_segment(width) + width ? lane : source, "__shfl_xor_sync", file,
                      line);
}

template <class F> inline void fake_each_lane(unsigned mask, F &&body) {
  for (int lane = 0; lane < 32; lane++)
    if (mask >> lane & 1) body(lane);
}
inline unsigned fake_votes(unsigned mask, int predicate, const char *name, const char *file, int line) {
  const uint64_t *slots = fake_warp_exchange(mask, predicate != 0, 0, name, {file, line});
  unsigned votes = 0;
  fake_each_lane(mask, [&](int lane) { votes |= static_cast<unsigned>(slots[lane]) << lane; });
  return votes;
}
inline unsigned __ballot_sync(unsigned mask, int predicate, FAKE_PLACE_PARAMETERS) {
  return fake_votes(mask, predicate, "__ballot_sync", file, line);
}
inline int __any_sync(unsigned mask, int predicate, FAKE_PLACE_PARAMETERS) {
  return fake_votes(mask, predicate, "__any_sync", file, line) != 0;
}
inline int __all_sync(unsigned mask, int predicate, FAKE_PLACE_PARAMETERS) {
  return fake_votes(mask, predicate, "__all_sync", file, line) == mask;
}
template <class T> inline unsigned __match_any_sync(unsigned mask, T value, FAKE_PLACE_PARAMETERS) {
  const uint64_t *slots = fake_warp_exchange(mask, fake_bits(value), 0, "__match_any_sync", {file, line});
  unsigned same = 0;
  fake_each_lane(mask, [&](int lane) { same |= static_cast<unsigned>(slots[lane] == fake_bits(value)) << lane; });
  return same;
}
template <class T, class F>
inline T fake_warp_reduce(unsigned mask, T value, F &&combine, const char *name, const char *file, int line) {
  const uint64_t *slots = fake_warp_exchange(mask, fake_bits(value), 0, name, {file, line});
  int first = __builtin_ctz(mask);
  T sum = fake_value<T>(slots[first]);
  fake_each_lane(mask & (mask - 1), [&](int lane) { sum = combine(sum, fake_value<T>(slots[lane])); });
  return sum;
}
#define FAKE_WARP_REDUCE(name, type, expression)                                                                       \
  inline type name(unsigned mask, type value, FAKE_PLACE_PARAMETERS) {                                                 \
    return fake_warp_reduce(                                                                                           \
        mask, value, [](type a, type b) -> type { return expression; }, #name, file, line);                            \
  }
FAKE_WARP_REDUCE(__reduce_add_sync, unsigned, a + b)
FAKE_WARP_REDUCE(__reduce_min_sync, unsigned, a < b ? a : b)
FAKE_WARP_REDUCE(__reduce_max_sync, unsigned, a > b ? a : b)
FAKE_WARP_REDUCE(__reduce_and_sync, unsigned, a &b)
FAKE_WARP_REDUCE(__reduce_or_sync, unsigned, a | b)
FAKE_WARP_REDUCE(__reduce_xor_sync, unsigned, a ^ b)
FAKE_WARP_REDUCE(__reduce_add_sync, int, static_cast<int>(static_cast<unsigned>(a) + static_cast<unsigned>(b)))
FAKE_WARP_REDUCE(__reduce_min_sync, int, a < b ? a : b)
FAKE_WARP_REDUCE(__reduce_max_sync, int, a > b ? a : b)
#undef FAKE_WARP_REDUCE

#include "device_math.h"

#endif
