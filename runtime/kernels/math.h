/* Scalar functions for element-wise loops, of the kernels and of emitted programs.
 *
 * The _f32 ones have no branch and call nothing, so that a loop over them vectorises; the _f64 ones are libm at full
 * accuracy. A name ending in _grad takes (x, dy) and returns dy times the derivative at x. NaN goes through all of
 * them. They assume round-to-nearest and no -ffast-math (the rounding and splitting of constants would be optimised
 * away); -fno-math-errno and -fno-trapping-math are welcome. f32 error, tested: exp, log, tanh and sigmoid below
 * 3e-7 relative; exp gives 0 below FLT_MIN rather than a subnormal number, which costs a hundred times more.
 */
#ifndef PD_MATH_H
#define PD_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* how these functions are declared: CUDA programs use the same ones on both sides */
#ifdef __CUDACC__
#define PD_FN static __host__ __device__ inline
#else
#define PD_FN static inline
#endif

/* a * b + c: fused where the target has it (-std=c11 forbids the compiler to fuse by itself), else two roundings */
#if defined(__CUDA_ARCH__)
#define PD_FMA_F32(a, b, c) __fmaf_rn(a, b, c)
#define PD_FMA_F64(a, b, c) __fma_rn(a, b, c)
#elif defined(__FMA__) || defined(__FP_FAST_FMAF) || defined(__ARM_FEATURE_FMA)
#define PD_FMA_F32(a, b, c) __builtin_fmaf(a, b, c)
#define PD_FMA_F64(a, b, c) __builtin_fma(a, b, c)
#else
#define PD_FMA_F32(a, b, c) ((a) * (b) + (c))
#define PD_FMA_F64(a, b, c) ((a) * (b) + (c))
#endif

PD_FN uint32_t pd_bits_f32(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

PD_FN float pd_from_bits_f32(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* comparisons this way round keep a NaN */
PD_FN float pd_clamp_f32(float x, float low, float high) {
  const float y = x < low ? low : x;
  return y > high ? high : y;
}

/* exp(x) = 2^n * exp(r), |r| <= ln(2)/2; n by adding 1.5 * 2^23, ln(2) in two parts, the polynomial of Cephes */
PD_FN float pd_exp_f32(float x) {
#ifdef __CUDA_ARCH__
  return expf(x); /* an instruction and its scaling: a quarter of the polynomial */
#else
  const float least = -87.33654f, shift = 12582912.0f;
  const float clamped = pd_clamp_f32(x, least, 89.0f);
  const float shifted = PD_FMA_F32(clamped, 1.44269504f, shift), n = shifted - shift;
  float r = PD_FMA_F32(n, -0.693359375f, clamped);
  r = PD_FMA_F32(n, 2.12194440e-4f, r);
  float p = 1.9875691500e-4f;
  p = PD_FMA_F32(p, r, 1.3981999507e-3f);
  p = PD_FMA_F32(p, r, 8.3334519073e-3f);
  p = PD_FMA_F32(p, r, 4.1665795894e-2f);
  p = PD_FMA_F32(p, r, 1.6666665459e-1f);
  p = PD_FMA_F32(p, r, 5.0000001201e-1f);
  p = PD_FMA_F32(p, r * r, r) + 1.0f;
  /* 2^n in two factors: n reaches 128, which alone has no float */
  const int32_t exponent = (int32_t)(pd_bits_f32(shifted) - pd_bits_f32(shift)), half = exponent >> 1;
  const float low = pd_from_bits_f32((uint32_t)(half + 127) << 23);
  const float high = pd_from_bits_f32((uint32_t)(exponent - half + 127) << 23);
  const float value = p * low * high;
  return x < least ? 0.0f : value;
#endif
}

/* log(x) = e * ln(2) + log(m), m in [sqrt(1/2), sqrt(2)); the polynomial of Cephes */
PD_FN float pd_log_f32(float x) {
#ifdef __CUDA_ARCH__
  return logf(x);
#else
  const int tiny = x < 0x1p-126f;
  const uint32_t bits = pd_bits_f32(tiny ? x * 0x1p23f : x) + (0x3f800000u - 0x3f3504f3u);
  const float e = (float)((int32_t)(bits >> 23) - (tiny ? 127 + 23 : 127));
  const float f = pd_from_bits_f32((bits & 0x007fffffu) + 0x3f3504f3u) - 1.0f, z = f * f;
  float p = 7.0376836292e-2f;
  p = PD_FMA_F32(p, f, -1.1514610310e-1f);
  p = PD_FMA_F32(p, f, 1.1676998740e-1f);
  p = PD_FMA_F32(p, f, -1.2420140846e-1f);
  p = PD_FMA_F32(p, f, 1.4249322787e-1f);
  p = PD_FMA_F32(p, f, -1.6668057665e-1f);
  p = PD_FMA_F32(p, f, 2.0000714765e-1f);
  p = PD_FMA_F32(p, f, -2.4999993993e-1f);
  p = PD_FMA_F32(p, f, 3.3333331174e-1f);
  p = p * f * z;
  p = PD_FMA_F32(e, -2.12194440e-4f, p);
  p = PD_FMA_F32(z, -0.5f, p);
  const float value = PD_FMA_F32(e, 0.693359375f, f + p);
  const float infinite = x > 0 ? x : -INFINITY;                  /* log(inf) and log(0) */
  const float special = x < 0 || x != x ? (float)NAN : infinite; /* log(-1) and log(NaN) */
  return x > 0 && x <= 3.40282347e+38f ? value : special;
#endif
}

PD_FN float pd_sqrt_f32(float x) {
  return sqrtf(x);
}

PD_FN float pd_tanh_f32(float x) {
  const float size = x < 0 ? -x : x, z = x * x;
  float p = -5.70498872745e-3f; /* near 0, where the other form would cancel; Cephes */
  p = PD_FMA_F32(p, z, 2.06390887954e-2f);
  p = PD_FMA_F32(p, z, -5.37397155531e-2f);
  p = PD_FMA_F32(p, z, 1.33314422036e-1f);
  p = PD_FMA_F32(p, z, -3.33332819422e-1f);
  const float near = PD_FMA_F32(p * z, x, x);
  const float far = 1.0f - 2.0f / (pd_exp_f32(size + size) + 1.0f), signed_far = x < 0 ? -far : far;
  return size < 0.625f ? near : signed_far;
}

PD_FN float pd_sigmoid_f32(float x) {
  return 1.0f / (1.0f + pd_exp_f32(-x));
}

PD_FN float pd_silu_f32(float x) {
  return x / (1.0f + pd_exp_f32(-x));
}

PD_FN float pd_silu_grad_f32(float x, float dy) {
  const float c = pd_clamp_f32(x, -87.0f, 87.0f); /* further out the derivative is 0 or 1 */
  const float e = pd_exp_f32(-c), s = 1.0f / (1.0f + e);
  return dy * PD_FMA_F32(c * s, e * s, s); /* e * s is 1 - s without cancelling */
}

PD_FN float pd_relu_f32(float x) {
  return x < 0 ? 0.0f : x;
}

PD_FN float pd_relu_grad_f32(float x, float dy) {
  return x > 0 ? dy : x != x ? x : 0.0f;
}

/* x (1 + tanh(u)) / 2 with u = sqrt(2/pi) (x + 0.044715 x^3), as x / (1 + exp(-2u)): nothing cancels for x < 0 */
PD_FN float pd_gelu_tanh_f32(float x) {
  const float u2 = x * PD_FMA_F32(x * x, 0.0713548163f, 1.59576912f);
  return x / (1.0f + pd_exp_f32(-u2));
}

PD_FN float pd_gelu_tanh_grad_f32(float x, float dy) {
  const float c = pd_clamp_f32(x, -9.9f, 9.9f); /* further out the derivative is 0 or 1 */
  const float square = c * c, u2 = c * PD_FMA_F32(square, 0.0713548163f, 1.59576912f);
  const float e = pd_exp_f32(-u2), s = 1.0f / (1.0f + e), du2 = PD_FMA_F32(square, 0.214064449f, 1.59576912f);
  return dy * PD_FMA_F32(c * s * du2, e * s, s);
}

/* The normal distribution function and density at x. With z = |x|/sqrt(2): (1 + 2z) exp(z^2) erfc(z) lies between 1
 * and 1.28 and is a polynomial in (z - 2) / (z + 2), fitted at Chebyshev nodes for z < 9.5, relative error 1.3e-8. */
PD_FN float pd_normal_cdf_f32(float x, float *density) {
  const float c = pd_clamp_f32(x, -13.4f, 13.4f), z = (c < 0 ? -c : c) * 0.707106781f;
  const float square = c * c, rest = PD_FMA_F32(c, c, -square); /* what rounding the square lost */
  const float gauss = pd_exp_f32(-0.5f * square), exact = PD_FMA_F32(gauss, -0.5f * rest, gauss);
  const float q = (z - 2.0f) / (z + 2.0f);
  float p = -4.143926338e-4f;
  p = PD_FMA_F32(p, q, -1.250882941e-3f);
  p = PD_FMA_F32(p, q, 1.319598010e-3f);
  p = PD_FMA_F32(p, q, 8.649690480e-3f);
  p = PD_FMA_F32(p, q, -8.059266783e-3f);
  p = PD_FMA_F32(p, q, -5.420927492e-2f);
  p = PD_FMA_F32(p, q, 1.640549676e-1f);
  p = PD_FMA_F32(p, q, -1.660309711e-1f);
  p = PD_FMA_F32(p, q, -9.276396141e-2f);
  p = PD_FMA_F32(p, q, 1.276978387e+0f);
  const float tail = 0.5f * exact * p / PD_FMA_F32(2.0f, z, 1.0f);
  *density = 0.398942280f * exact;
  return c < 0 ? tail : 1.0f - tail;
}

PD_FN float pd_gelu_erf_f32(float x) {
  float density;
  return x * pd_normal_cdf_f32(x, &density);
}

PD_FN float pd_gelu_erf_grad_f32(float x, float dy) {
  float density;
  const float cdf = pd_normal_cdf_f32(x, &density);
  return dy * PD_FMA_F32(pd_clamp_f32(x, -13.4f, 13.4f), density, cdf);
}

PD_FN double pd_exp_f64(double x) {
  return exp(x);
}

PD_FN double pd_log_f64(double x) {
  return log(x);
}

PD_FN double pd_sqrt_f64(double x) {
  return sqrt(x);
}

/* cos and sin of u turns, 0 <= u < 1, exact to about 1e-15, without branches */
PD_FN void pd_turn_f64(double u, double *cosine, double *sine) {
  /* the nearest quarter, and t within an eighth of it in radians */
  const double shift = 6755399441055744.0, shifted = 4 * u + shift;
  uint64_t quarter;
  memcpy(&quarter, &shifted, sizeof quarter);
  const double t = (u - 0.25 * (shifted - shift)) * 6.28318530717958647692, t2 = t * t;
  double s = 1.0 / 355687428096000;
  s = PD_FMA_F64(s, t2, -1.0 / 1307674368000);
  s = PD_FMA_F64(s, t2, 1.0 / 6227020800);
  s = PD_FMA_F64(s, t2, -1.0 / 39916800);
  s = PD_FMA_F64(s, t2, 1.0 / 362880);
  s = PD_FMA_F64(s, t2, -1.0 / 5040);
  s = PD_FMA_F64(s, t2, 1.0 / 120);
  s = PD_FMA_F64(s, t2, -1.0 / 6);
  s = PD_FMA_F64(s * t2, t, t);
  double c = 1.0 / 20922789888000;
  c = PD_FMA_F64(c, t2, -1.0 / 87178291200);
  c = PD_FMA_F64(c, t2, 1.0 / 479001600);
  c = PD_FMA_F64(c, t2, -1.0 / 3628800);
  c = PD_FMA_F64(c, t2, 1.0 / 40320);
  c = PD_FMA_F64(c, t2, -1.0 / 720);
  c = PD_FMA_F64(c, t2, 1.0 / 24);
  c = PD_FMA_F64(c, t2, -0.5);
  c = PD_FMA_F64(c, t2, 1);
  const double across = (quarter & 1) != 0 ? s : c, along = (quarter & 1) != 0 ? c : s;
  *cosine = ((quarter + 1) & 2) != 0 ? -across : across;
  *sine = (quarter & 2) != 0 ? -along : along;
}

PD_FN double pd_tanh_f64(double x) {
  return tanh(x);
}

PD_FN double pd_sigmoid_f64(double x) {
  return 1 / (1 + exp(-x));
}

PD_FN double pd_silu_f64(double x) {
  return x / (1 + exp(-x));
}

PD_FN double pd_silu_grad_f64(double x, double dy) {
  const double s = pd_sigmoid_f64(x);
  return dy * (s + x * s * (1 - s));
}

PD_FN double pd_relu_f64(double x) {
  return x < 0 ? 0 : x;
}

PD_FN double pd_relu_grad_f64(double x, double dy) {
  return x > 0 ? dy : x != x ? x : 0;
}

PD_FN double pd_gelu_tanh_f64(double x) {
  const double u = 0.79788456080286535588 * x * (1 + 0.044715 * x * x);
  return x / (1 + exp(-2 * u));
}

PD_FN double pd_gelu_tanh_grad_f64(double x, double dy) {
  const double c = x < -40 ? -40 : x > 40 ? 40 : x; /* further out the derivative is 0 or 1 */
  const double u = 0.79788456080286535588 * c * (1 + 0.044715 * c * c), s = 1 / (1 + exp(-2 * u));
  const double du = 0.79788456080286535588 * (1 + 3 * 0.044715 * c * c);
  return dy * (s + c * s * (1 - s) * 2 * du);
}

PD_FN double pd_gelu_erf_f64(double x) {
  return x * 0.5 * erfc(-0.70710678118654752440 * x);
}

PD_FN double pd_gelu_erf_grad_f64(double x, double dy) {
  const double density = 0.39894228040143267794 * exp(-0.5 * x * x);
  return dy * (0.5 * erfc(-0.70710678118654752440 * x) + x * density);
}

#endif
