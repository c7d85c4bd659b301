/* What the tests of kernels share: tensors that exist in double (the reference's), in the element type (rounded), and
 * on the device; comparison with a bound that follows from the element type; a checksum over all results, by which runs
 * in different block orders are compared. */
#ifndef PD_KERNEL_CHECK_H
#define PD_KERNEL_CHECK_H

#define PD_BF16
#include "pd_device.cuh"

#include "kernels/kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <vector>

extern const pd_kernels_f64 pd_set_ref_f64; /* the reference, in double */

typedef __nv_bfloat16 bf16;

static inline void must(cudaError_t error, const char *what) {
  if (error == cudaSuccess) return;
  fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
  exit(2);
}

extern "C" inline void pd_launch_failed(cudaError_t error, const char *kernel, const char *file, int line) {
  fprintf(stderr, "%s:%d: launch of %s: %s\n", file, line, kernel, cudaGetErrorString(error));
  exit(2);
}

/* ---- numbers ---- */

static inline double rounded(double x, float) {
  return (double)(float)x;
}
static inline double rounded(double x, bf16) {
  return (double)__bfloat162float(__float2bfloat16_rn((float)x));
}
static inline const char *type_name(float) {
  return "f32";
}
static inline const char *type_name(bf16) {
  return "bf16";
}
/* half a unit in the last place, relative */
static inline double precision(float) {
  return ldexp(1, -24);
}
static inline double precision(bf16) {
  return ldexp(1, -8);
}

/* uniform in (-1, 1), the same in every run */
static inline double draw(uint64_t *state) {
  *state = *state * 6364136223846793005ull + 1442695040888963407ull;
  return (double)(int64_t)(*state >> 11) / (double)(1ll << 52) - 1;
}

/* ---- counting ---- */

typedef struct tally {
  int passed, failed;
  uint64_t checksum, seed;
} tally;

static inline tally *totals() {
  static tally t = {0, 0, 14695981039346656037ull, 1};
  return &t;
}

static inline void checksum(const void *bytes, size_t count) {
  for (size_t i = 0; i < count; i++) {
    totals()->checksum = (totals()->checksum ^ ((const unsigned char *)bytes)[i]) * 1099511628211ull;
  }
}

static inline void count(bool ok, const std::string &what) {
  if (ok)
    totals()->passed++;
  else {
    totals()->failed++;
    printf("FAILED %s\n", what.c_str());
  }
}

/* Words of the command line: `quick` leaves out what differs only in size, `one-type` what differs only in the type of
 * elements. Sanitizers look at `quick one-type`, with twins made with -DPD_QUICK, which have no more. */
static inline bool has_word(int argc, char **argv, const char *word) {
  for (int i = 1; i < argc; i++)
    if (strcmp(argv[i], word) == 0) return true;
  return false;
}

static inline int report() {
  printf("checksum %016llx\n%d passed, %d failed\n", (unsigned long long)totals()->checksum, totals()->passed,
         totals()->failed);
  return totals()->failed != 0;
}

/* ---- tensors ---- */

template <typename T> struct tensor {
  std::vector<double> at; /* what the reference sees */
  T *device;

  explicit tensor(size_t n) : at(n, 0), device(NULL) {
    void *p = NULL;
    must(cudaMalloc(&p, n * sizeof(T) + (n == 0)), "cudaMalloc");
    device = (T *)p;
  }
  tensor(const tensor &) = delete;
  ~tensor() {
    cudaFree(device);
  }
  /* to the device; the reference sees what rounding leaves */
  tensor &push() {
    std::vector<T> raw(at.size());
    for (size_t i = 0; i < at.size(); i++) {
      at[i] = rounded(at[i], T());
      pd_store(&raw[i], (float)at[i]);
    }
    must(cudaMemcpy(device, raw.data(), raw.size() * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
    return *this;
  }
  tensor &random(double scale = 1, double shift = 0) {
    for (size_t i = 0; i < at.size(); i++) at[i] = shift + scale * draw(&totals()->seed);
    return push();
  }
  std::vector<double> pull() const {
    std::vector<T> raw(at.size());
    must(cudaMemcpy(raw.data(), device, raw.size() * sizeof(T), cudaMemcpyDeviceToHost), "cudaMemcpy");
    checksum(raw.data(), raw.size() * sizeof(T));
    std::vector<double> out(at.size());
    for (size_t i = 0; i < out.size(); i++) out[i] = (double)pd_load(&raw[i]);
    return out;
  }
  double *ref() {
    return at.data();
  }
  /* Compares with the reference, already in `at`: each element within a rounding of the type, plus `slack` (what
   * float arithmetic may lose) times the largest element or `magnitude`, that of terms which may cancel. */
  void expect(const std::string &what, double slack, double magnitude = 0) const {
    const std::vector<double> got = pull();
    double largest = magnitude, worst = 0;
    size_t where = 0;
    for (double x : at) {
      if (isfinite(x)) largest = fmax(largest, fabs(x));
    }
    for (size_t i = 0; i < got.size(); i++) {
      if (got[i] == at[i] || (got[i] != got[i] && at[i] != at[i])) continue;
      const double allowed = 1.01 * precision(T()) * fabs(at[i]) + slack * largest + 1e-38;
      const double error = fabs(got[i] - at[i]) / allowed;
      if (!(error <= worst)) worst = error, where = i;
    }
    char text[200];
    snprintf(text, sizeof text, ": element %zu of %zu is %.9g, not %.9g (%.3g times the allowed error)", where,
             got.size(), got.empty() ? 0 : got[where], got.empty() ? 0 : at[where], worst);
    count(worst <= 1, what + " " + type_name(T()) + text);
  }
};

/* integers on the device */
struct integers {
  std::vector<int32_t> at;
  int32_t *device;
  explicit integers(const std::vector<int32_t> &values) : at(values), device(NULL) {
    void *p = NULL;
    must(cudaMalloc(&p, at.size() * sizeof(int32_t) + at.empty()), "cudaMalloc");
    device = (int32_t *)p;
    must(cudaMemcpy(device, at.data(), at.size() * sizeof(int32_t), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  integers(const integers &) = delete;
  ~integers() {
    cudaFree(device);
  }
};

/* one value of any plain type on the device */
template <typename V> struct scalar {
  V *device;
  explicit scalar(const V &value) : device(NULL) {
    void *p = NULL;
    must(cudaMalloc(&p, sizeof(V)), "cudaMalloc");
    device = (V *)p;
    must(cudaMemcpy(device, &value, sizeof(V), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  scalar(const scalar &) = delete;
  ~scalar() {
    cudaFree(device);
  }
  V pull() const {
    V value;
    must(cudaMemcpy(&value, device, sizeof(V), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return value;
  }
};

#endif
