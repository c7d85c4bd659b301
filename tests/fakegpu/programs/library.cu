// Device code that the program loads itself (cudaLibraryLoadData): parts that must pass, and parts with one mistake each;
// tests/run/fakegpu_test.py says how each must be found. The code is in the file that IMAGE names: of this very text.
#include "program.h"

enum { N = 64, LARGE = 64 << 10 };
__global__ void fill(float *x, float value) {
  x[threadIdx.x] = value;
}
__global__ void through_shared(float *x) {
  SHARED(float, last);
  if (threadIdx.x == 0) last[LARGE / 4 - 1] = 5;
  __syncthreads();
  x[threadIdx.x] = last[LARGE / 4 - 1];
}
#ifdef PD_FAKE_GPU
FAKE_KERNEL_GLOBAL(fill);
FAKE_KERNEL_GLOBAL(through_shared);
#endif

static std::vector<char> image() {
  std::vector<char> bytes;
  FILE *file = fopen(getenv("IMAGE"), "rb");
  CHECK(file != nullptr);
  for (int c; (c = fgetc(file)) != EOF;) bytes.push_back((char)c);
  fclose(file);
  bytes.push_back(0); // PTX is text
  return bytes;
}
static cudaError_t load_bytes(cudaLibrary_t *library, const void *bytes) {
  return cudaLibraryLoadData(library, bytes, nullptr, nullptr, 0, nullptr, nullptr, 0);
}
static cudaLibrary_t load() {
  cudaLibrary_t library;
  MUST(load_bytes(&library, image().data())); // the bytes may go when the call returns
  return library;
}
static cudaKernel_t kernel_of(cudaLibrary_t library, const char *name) {
  cudaKernel_t kernel;
  MUST(cudaLibraryGetKernel(&kernel, library, name));
  return kernel;
}
static const char *const FILL = "_Z4fillPff", *const SHARED_ONE = "_Z14through_sharedPf";

static cudaError_t launch_fill(cudaKernel_t kernel, cudaStream_t s, float *x, float value) {
  void *arguments[] = {&x, &value};
  return cudaLaunchKernel((const void *)kernel, dim3(1), dim3(N), arguments, 0, s);
}
static void all_are(const buffer<float> &x, float value) {
  for (float got : x.read()) CHECK(got == value);
}

// ---- correct ----

static void launches() {
  stream s;
  buffer<float> x(N);
  cudaLibrary_t library = load(), again = load();
  cudaKernel_t fill_kernel = kernel_of(library, FILL), other = kernel_of(again, FILL);
  CHECK(fill_kernel == kernel_of(library, FILL));
  MUST(launch_fill(fill_kernel, s.at, x.at, 3));
  s.wait();
  all_are(x, 3);
  MUST(cudaLibraryUnload(library)); // the other one stays
  MUST(launch_fill(other, s.at, x.at, 4));
  s.wait();
  all_are(x, 4);
  MUST(cudaLibraryUnload(again));
}
static void captured() {
  stream s;
  buffer<float> x(N);
  cudaLibrary_t library = load();
  cudaKernel_t kernel = kernel_of(library, FILL);
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  MUST(cudaStreamBeginCapture(s.at, cudaStreamCaptureModeThreadLocal));
  MUST(launch_fill(kernel, s.at, x.at, 3));
  MUST(cudaStreamEndCapture(s.at, &graph));
  MUST(cudaGraphInstantiate(&exec, graph, 0));
  MUST(cudaGraphLaunch(exec, s.at));
  s.wait();
  all_are(x, 3);
  MUST(cudaGraphExecDestroy(exec));
  MUST(cudaGraphDestroy(graph));
  MUST(cudaLibraryUnload(library));
}
static void attributes() {
  stream s;
  buffer<float> x(N);
  cudaLibrary_t library = load();
  cudaKernel_t kernel = kernel_of(library, SHARED_ONE);
  void *arguments[] = {&x.at};
  GIVES(cudaLaunchKernel((const void *)kernel, dim3(1), dim3(N), arguments, LARGE, s.at), cudaErrorInvalidValue);
  MUST(cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, LARGE));
  MUST(cudaLaunchKernel((const void *)kernel, dim3(1), dim3(N), arguments, LARGE, s.at));
  s.wait();
  all_are(x, 5);
  MUST(cudaLibraryUnload(library));
}
static void errors() {
  cudaLibrary_t library;
  cudaKernel_t kernel;
  const std::vector<char> bytes = image();
  GIVES(load_bytes(&library, "neither a cubin nor PTX"), cudaErrorInvalidKernelImage);
  GIVES(load_bytes(nullptr, bytes.data()), cudaErrorInvalidValue);
  GIVES(load_bytes(&library, nullptr), cudaErrorInvalidValue);
  library = load();
  GIVES(cudaLibraryGetKernel(&kernel, library, "no_such_kernel"), cudaErrorSymbolNotFound);
  GIVES(cudaLibraryGetKernel(nullptr, library, FILL), cudaErrorInvalidValue);
  MUST(cudaLibraryUnload(library));
}

// ---- one mistake each ----

static void other_device() {
  cudaLibrary_t library;
  GIVES(load_bytes(&library, image().data()), cudaErrorNoKernelImageForDevice);
}
static void load_in_capture() {
  stream s;
  MUST(cudaStreamBeginCapture(s.at, cudaStreamCaptureModeThreadLocal));
  load();
}
static void never_unloaded() {
  load();
}
static void unloaded_twice() {
  cudaLibrary_t library = load();
  MUST(cudaLibraryUnload(library));
  cudaLibraryUnload(library);
}
static void asked_after_unload() {
  cudaLibrary_t library = load();
  MUST(cudaLibraryUnload(library));
  kernel_of(library, FILL);
}
static void launched_after_unload() {
  buffer<float> x(N);
  cudaLibrary_t library = load();
  cudaKernel_t kernel = kernel_of(library, FILL);
  MUST(cudaLibraryUnload(library));
  launch_fill(kernel, nullptr, x.at, 1);
}
static void unloaded_before_it_ran() {
  stream s;
  buffer<float> x(N);
  cudaLibrary_t library = load();
  MUST(launch_fill(kernel_of(library, FILL), s.at, x.at, 1));
  MUST(cudaLibraryUnload(library));
  s.wait();
}
static void garbage_as_kernel() {
  buffer<float> x(N);
  GIVES(launch_fill(reinterpret_cast<cudaKernel_t>(&x), nullptr, x.at, 1), cudaErrorInvalidDeviceFunction);
}

static const part parts[] = {PART(launches), PART(captured), PART(attributes), PART(errors), PART(other_device),
    PART(load_in_capture), PART(never_unloaded), PART(unloaded_twice), PART(asked_after_unload),
    PART(launched_after_unload), PART(unloaded_before_it_ran), PART(garbage_as_kernel)};
int main(int argc, char **argv) {
  return run_part(parts, sizeof parts / sizeof *parts, argc, argv);
}
