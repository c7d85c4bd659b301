/* Atomics, cached loads and stores, and the names of CUDA's arithmetic for kernels on the fake GPU (a part of
 * device.h). Approximate instructions are computed exactly by libm: results differ from a GPU's in the last bits. */
#ifndef PD_FAKE_DEVICE_MATH_H
#define PD_FAKE_DEVICE_MATH_H

/* ---- atomics: also between the CPU threads that run blocks at the same time ---- */

/* replaces *address by combine(*address) and returns what was there; T of 2, 4 or 8 bytes */
template <class T, class F> inline T fake_atomic(T *address, F &&combine) {
  using word = std::conditional_t<sizeof(T) == 2, uint16_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>;
  static_assert(sizeof(T) == sizeof(word), "no atomic of this size");
  word *place = reinterpret_cast<word *>(address), before = __atomic_load_n(place, __ATOMIC_ACQUIRE), after;
  T old;
  do {
    memcpy(&old, &before, sizeof old);
    T next = combine(old);
    memcpy(&after, &next, sizeof after);
  } while (!__atomic_compare_exchange_n(place, &before, after, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
  return old;
}
/* the value of an argument is converted as by a prototype `T f(T *, T)` */
template <class T> struct fake_identity { using type = T; };
template <class T> using fake_as = typename fake_identity<T>::type;

template <class T> inline T atomicAdd(T *address, fake_as<T> value) {
  return fake_atomic(address, [=](T old) { return static_cast<T>(old + value); });
}
template <class T> inline T atomicSub(T *address, fake_as<T> value) {
  return fake_atomic(address, [=](T old) { return static_cast<T>(old - value); });
}
template <class T> inline T atomicMin(T *address, fake_as<T> value) {
  static_assert(std::is_integral_v<T>, "CUDA has atomicMin for integers only");
  return fake_atomic(address, [=](T old) { return old < value ? old : value; });
}
template <class T> inline T atomicMax(T *address, fake_as<T> value) {
  static_assert(std::is_integral_v<T>, "CUDA has atomicMax for integers only");
  return fake_atomic(address, [=](T old) { return old > value ? old : value; });
}
template <class T> inline T atomicAnd(T *address, fake_as<T> value) {
  return fake_atomic(address, [=](T old) { return static_cast<T>(old & value); });
}
template <class T> inline T atomicOr(T *address, fake_as<T> value) {
  return fake_atomic(address, [=](T old) { return static_cast<T>(old | value); });
}
template <class T> inline T atomicXor(T *address, fake_as<T> value) {
  return fake_atomic(address, [=](T old) { return static_cast<T>(old ^ value); });
}
template <class T> inline T atomicExch(T *address, fake_as<T> value) {
  return fake_atomic(address, [=](T) { return value; });
}
template <class T> inline T atomicCAS(T *address, fake_as<T> compare, fake_as<T> value) {
  return fake_atomic(address, [=](T old) { return old == compare ? value : old; });
}
inline unsigned atomicInc(unsigned *address, unsigned limit) {
  return fake_atomic(address, [=](unsigned old) { return old >= limit ? 0 : old + 1; });
}
inline unsigned atomicDec(unsigned *address, unsigned limit) {
  return fake_atomic(address, [=](unsigned old) { return old == 0 || old > limit ? limit : old - 1; });
}

/* ---- loads and stores with cache hints ---- */

#define FAKE_LOAD(name)                                                                                                \
  template <class T> inline T name(const T *address) {                                                                 \
    return *address;                                                                                                   \
  }
FAKE_LOAD(__ldg)
FAKE_LOAD(__ldcg)
FAKE_LOAD(__ldca)
FAKE_LOAD(__ldcs)
FAKE_LOAD(__ldlu)
FAKE_LOAD(__ldcv)
#undef FAKE_LOAD
#define FAKE_STORE(name)                                                                                               \
  template <class T> inline void name(T *address, fake_as<T> value) {                                                  \
    *address = value;                                                                                                  \
  }
FAKE_STORE(__stwb)
FAKE_STORE(__stcg)
FAKE_STORE(__stcs)
FAKE_STORE(__stwt)
#undef FAKE_STORE

/* ---- bits ---- */

inline int __float_as_int(float x) {
  return fake_value<int>(fake_bits(x));
}
inline unsigned __float_as_uint(float x) {
  return fake_value<unsigned>(fake_bits(x));
}
inline float __int_as_float(int x) {
  return fake_value<float>(fake_bits(x));
}
inline float __uint_as_float(unsigned x) {
  return fake_value<float>(fake_bits(x));
}
inline long long __double_as_longlong(double x) {
  return fake_value<long long>(fake_bits(x));
}
inline double __longlong_as_double(long long x) {
  return fake_value<double>(fake_bits(x));
}
inline int __clz(int x) {
  return x ? __builtin_clz(static_cast<unsigned>(x)) : 32;
}
inline int __clzll(long long x) {
  return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64;
}
inline int __popc(unsigned x) {
  return __builtin_popcount(x);
}
inline int __popcll(unsigned long long x) {
  return __builtin_popcountll(x);
}
inline int __ffs(int x) {
  return __builtin_ffs(x);
}
inline unsigned __brev(unsigned x) {
  unsigned y = 0;
  for (int i = 0; i < 32; i++) y = y << 1 | (x >> i & 1);
  return y;
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<uint64_t>(a) * b >> 32);
}
inline int __mulhi(int a, int b) {
  return static_cast<int>(static_cast<int64_t>(a) * b >> 32);
}
__extension__ typedef unsigned __int128 fake_uint128;
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return static_cast<unsigned long long>(static_cast<fake_uint128>(a) * b >> 64);
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>(((static_cast<uint64_t>(high) << 32 | low) << (shift & 31)) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return static_cast<unsigned>((static_cast<uint64_t>(high) << 32 | low) >> (shift & 31));
}

/* ---- arithmetic ---- */

#define FAKE_ONE(type, name, expression)                                                                               \
  inline type name(type x) {                                                                                           \
    return expression;                                                                                                 \
  }
#define FAKE_TWO(type, name, expression)                                                                               \
  inline type name(type x, type y) {                                                                                   \
    return expression;                                                                                                 \
  }
FAKE_ONE(float, __expf, ::expf(x))
FAKE_ONE(float, __exp10f, ::exp10f(x))
FAKE_ONE(float, __logf, ::logf(x))
FAKE_ONE(float, __log2f, ::log2f(x))
FAKE_ONE(float, __log10f, ::log10f(x))
FAKE_ONE(float, __sinf, ::sinf(x))
FAKE_ONE(float, __cosf, ::cosf(x))
FAKE_ONE(float, __tanf, ::tanf(x))
FAKE_ONE(float, __tanhf, ::tanhf(x))
FAKE_ONE(float, __saturatef, x > 0 ? x < 1 ? x : 1 : 0)
FAKE_ONE(float, __frcp_rn, 1 / x)
FAKE_ONE(float, __fsqrt_rn, ::sqrtf(x))
FAKE_ONE(float, __frsqrt_rn, 1 / ::sqrtf(x))
FAKE_ONE(double, __drcp_rn, 1 / x)
FAKE_ONE(double, __dsqrt_rn, ::sqrt(x))
FAKE_TWO(float, __powf, ::powf(x, y))
FAKE_TWO(float, __fdividef, x / y)
FAKE_TWO(float, __fadd_rn, x + y)
FAKE_TWO(float, __fsub_rn, x - y)
FAKE_TWO(float, __fmul_rn, x *y)
FAKE_TWO(float, __fdiv_rn, x / y)
FAKE_TWO(double, __dadd_rn, x + y)
FAKE_TWO(double, __dsub_rn, x - y)
FAKE_TWO(double, __dmul_rn, x *y)
FAKE_TWO(double, __ddiv_rn, x / y)
#undef FAKE_ONE
#undef FAKE_TWO
inline float __fmaf_rn(float x, float y, float z) {
  return ::fmaf(x, y, z);
}
inline double __fma_rn(double x, double y, double z) {
  return ::fma(x, y, z);
}
inline void __sincosf(float x, float *sine, float *cosine) {
  *sine = ::sinf(x);
  *cosine = ::cosf(x);
}

/* conversions from floating point: saturating, NaN gives 0 as on the device */
template <class To, class From> inline To fake_convert(From x) {
  if (x != x) return 0;
  constexpr From low = static_cast<From>(std::numeric_limits<To>::min());
  constexpr From high = static_cast<From>(std::numeric_limits<To>::max());
  return x <= low ? std::numeric_limits<To>::min() : x >= high ? std::numeric_limits<To>::max() : static_cast<To>(x);
}
#define FAKE_CONVERT(name, to, from)                                                                                   \
  inline to name##_rn(from x) {                                                                                        \
    return fake_convert<to>(std::nearbyint(x));                                                                        \
  }                                                                                                                    \
  inline to name##_rz(from x) {                                                                                        \
    return fake_convert<to>(std::trunc(x));                                                                            \
  }                                                                                                                    \
  inline to name##_ru(from x) {                                                                                        \
    return fake_convert<to>(std::ceil(x));                                                                             \
  }                                                                                                                    \
  inline to name##_rd(from x) {                                                                                        \
    return fake_convert<to>(std::floor(x));                                                                            \
  }
FAKE_CONVERT(__float2int, int, float)
FAKE_CONVERT(__float2uint, unsigned, float)
FAKE_CONVERT(__float2ll, long long, float)
FAKE_CONVERT(__float2ull, unsigned long long, float)
FAKE_CONVERT(__double2int, int, double)
FAKE_CONVERT(__double2uint, unsigned, double)
FAKE_CONVERT(__double2ll, long long, double)
FAKE_CONVERT(__double2ull, unsigned long long, double)
#undef FAKE_CONVERT
inline float __int2float_rn(int x) {
  return static_cast<float>(x);
}
inline float __uint2float_rn(unsigned x) {
  return static_cast<float>(x);
}
inline float __double2float_rn(double x) {
  return static_cast<float>(x);
}
inline double __ll2double_rn(long long x) {
  return static_cast<double>(x);
}

/* names that cuda_runtime.h declares for device code only */
#ifndef __CUDACC__
#define FAKE_MINMAX(type)                                                                                              \
  inline type min(type x, type y) {                                                                                    \
    return x < y ? x : y;                                                                                              \
  }                                                                                                                    \
  inline type max(type x, type y) {                                                                                    \
    return x > y ? x : y;                                                                                              \
  }
FAKE_MINMAX(int)
FAKE_MINMAX(unsigned)
FAKE_MINMAX(long)
FAKE_MINMAX(unsigned long)
FAKE_MINMAX(long long)
FAKE_MINMAX(unsigned long long)
#undef FAKE_MINMAX
inline float min(float x, float y) {
  return ::fminf(x, y);
}
inline float max(float x, float y) {
  return ::fmaxf(x, y);
}
inline double min(double x, double y) {
  return ::fmin(x, y);
}
inline double max(double x, double y) {
  return ::fmax(x, y);
}
inline float rsqrtf(float x) {
  return 1 / ::sqrtf(x);
}
inline double rsqrt(double x) {
  return 1 / ::sqrt(x);
}
inline float rcbrtf(float x) {
  return 1 / ::cbrtf(x);
}
inline float fdividef(float x, float y) {
  return x / y;
}
inline float normcdff(float x) {
  return ::erfcf(-x * 0.70710678118654752f) / 2;
}
inline float sinpif(float x) {
  return static_cast<float>(::sin(x * 3.14159265358979323846));
}
inline float cospif(float x) {
  return static_cast<float>(::cos(x * 3.14159265358979323846));
}
#endif

inline long long clock64() {
  return fake_clock();
}
inline void __nanosleep(unsigned) {
}
inline void __trap(FAKE_PLACE_PARAMETERS) {
  fake_device_fault("trap", "__trap was called", {file, line});
}

#endif
