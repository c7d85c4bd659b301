// The device language: each part is a kernel and what it must compute, worked out on the host in another way.
#include "program.h"

#include <algorithm>
#include <numeric>

struct triple {
  int a;
  double b;
  float *out;
};

// ---- indices and parameters ----

__global__ void indices(int *out) {
  int thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  int block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  out[block * (int)(blockDim.x * blockDim.y * blockDim.z) + thread] =
      (int)(blockIdx.x + 10 * blockIdx.y + 100 * blockIdx.z + 1000 * threadIdx.x + 10000 * threadIdx.y + 100000 * threadIdx.z);
}
static void index_space() {
  dim3 grid(3, 2, 4), block(5, 7, 2);
  buffer<int> out(3 * 2 * 4 * 5 * 7 * 2);
  LAUNCH(indices, grid, block, 0, 0, out.at);
  MUST(cudaGetLastError());
  std::vector<int> got = out.read();
  size_t at = 0;
  for (unsigned bz = 0; bz < 4; bz++)
    for (unsigned by = 0; by < 2; by++)
      for (unsigned bx = 0; bx < 3; bx++)
        for (unsigned tz = 0; tz < 2; tz++)
          for (unsigned ty = 0; ty < 7; ty++)
            for (unsigned tx = 0; tx < 5; tx++)
              CHECK(got[at++] == (int)(bx + 10 * by + 100 * bz + 1000 * tx + 10000 * ty + 100000 * tz));
}

template <class T, int scale, bool negate>
__global__ void parameters(T *out, const char c, short s, const triple t, unsigned long long u, float f, bool b) {
  double sum = c + s + t.a + t.b + (double)u + f + (b ? 1000 : 0);
  out[0] = (T)(negate ? -sum * scale : sum * scale);
  t.out[0] = (float)sum;
}
static __global__ void internal(int *out) {
  *out = 7;
}
namespace {
__global__ void unnamed(int *out) {
  *out = 8;
}
} // namespace
namespace outer {
namespace inner {
__global__ void nested(int *out) {
  *out = 9;
}
} // namespace inner
} // namespace outer
extern "C" __global__ void with_c_name(int *out) {
  *out = 10;
}
__device__ int counter;
__global__ void without_parameters() {
  counter = 11;
}
static void parameter_types() {
  buffer<double> out(1);
  buffer<float> sum(1);
  buffer<int> number(1);
  triple t = {4, 0.25, sum.at};
  LAUNCH((parameters<double, 3, true>), 1, 1, 0, 0, out.at, (char)1, (short)-2, t, 8ull, 0.5f, true);
  CHECK(out.read()[0] == -3 * 1011.75 && sum.read()[0] == 1011.75f);
  LAUNCH(internal, 1, 1, 0, 0, number.at);
  CHECK(number.read()[0] == 7);
  LAUNCH(unnamed, 1, 1, 0, 0, number.at);
  CHECK(number.read()[0] == 8);
  LAUNCH(outer::inner::nested, 1, 1, 0, 0, number.at);
  CHECK(number.read()[0] == 9);
  LAUNCH(with_c_name, 1, 1, 0, 0, number.at);
  CHECK(number.read()[0] == 10);
  LAUNCH(without_parameters, 1, 1, 0, 0);
  int got = 0;
  MUST(cudaMemcpyFromSymbol(&got, counter, sizeof got));
  CHECK(got == 11);
  void *arguments[] = {&number.at};
  MUST(cudaLaunchKernel((const void *)internal, dim3(1), dim3(1), arguments, 0, 0));
  CHECK(number.read()[0] == 7);
}

__constant__ float table[4];
__device__ float kept[4];
__global__ void variables(float *out) {
  out[threadIdx.x] = table[threadIdx.x] + kept[threadIdx.x];
  kept[threadIdx.x] += 1;
}
static void variable_symbols() {
  float constant[4] = {1, 2, 3, 4}, device[4] = {10, 20, 30, 40};
  MUST(cudaMemcpyToSymbol(table, constant, sizeof constant));
  MUST(cudaMemcpyToSymbol(kept, device, sizeof device));
  buffer<float> out(4);
  for (int i = 0; i < 3; i++) {
    LAUNCH(variables, 1, 4, 0, 0, out.at);
    std::vector<float> got = out.read();
    for (int k = 0; k < 4; k++) CHECK(got[k] == 11 * (k + 1) + i);
  }
}

// ---- barriers and shared memory ----

template <int n> __global__ void reverse(const int *in, int *out, int rounds) {
  __shared__ int fixed[n];
  SHARED(int, sized);
  int value = in[blockIdx.x * n + threadIdx.x];
  for (int i = 0; i < rounds; i++) {
    fixed[threadIdx.x] = value;
    __syncthreads();
    sized[threadIdx.x] = fixed[n - 1 - threadIdx.x] + 1;
    __syncthreads();
    value = sized[(threadIdx.x + 1) % n];
  }
  out[blockIdx.x * n + threadIdx.x] = value;
}
static void shared_memory() {
  const int n = 96, blocks = 9, rounds = 5;
  std::vector<int> host(n * blocks), want(n);
  std::iota(host.begin(), host.end(), 0);
  buffer<int> in(n * blocks), out(n * blocks);
  in.write(host);
  LAUNCH(reverse<n>, blocks, n, n * sizeof(int), 0, in.at, out.at, rounds);
  std::vector<int> got = out.read();
  for (int b = 0; b < blocks; b++) {
    std::vector<int> now(host.begin() + b * n, host.begin() + (b + 1) * n);
    for (int i = 0; i < rounds; i++) {
      for (int t = 0; t < n; t++) want[t] = now[n - 1 - t] + 1;
      for (int t = 0; t < n; t++) now[t] = want[(t + 1) % n];
    }
    for (int t = 0; t < n; t++) CHECK(got[b * n + t] == now[t]);
  }
}

__global__ void predicates(int *out) {
  int t = (int)threadIdx.x;
  int count = __syncthreads_count(t % 3 == 0), all = __syncthreads_and(t < 1000), most = __syncthreads_and(t != 5);
  int any = __syncthreads_or(t == 17), none = __syncthreads_or(t < 0);
  out[t] = count + 1000 * all + 2000 * most + 4000 * any + 8000 * none;
}
static void block_predicates() {
  buffer<int> out(130);
  LAUNCH(predicates, 1, 130, 0, 0, out.at);
  for (int value : out.read()) CHECK(value == 44 + 1000 + 4000);
}

__global__ void tree(const float *in, float *out) {
  __shared__ float part[1024];
  part[threadIdx.x] = in[threadIdx.x];
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
  }
  if (threadIdx.x == 0) *out = part[0];
}
static void full_block() {
  std::vector<float> host(1024);
  for (size_t i = 0; i < host.size(); i++) host[i] = (float)(i % 37);
  buffer<float> in(1024), out(1);
  in.write(host);
  LAUNCH(tree, 1, 1024, 0, 0, in.at, out.at);
  CHECK(out.read()[0] == std::accumulate(host.begin(), host.end(), 0.0f));
}

// ---- warps ----

template <class T> __global__ void shuffles(T *out, int width) {
  unsigned all = 0xffffffffu;
  int lane = (int)threadIdx.x;
  T value = (T)(lane * 3 + 1);
  out[lane] = __shfl_sync(all, value, (lane * 5 + 3) % 40, width);
  out[32 + lane] = __shfl_up_sync(all, value, 3, width);
  out[64 + lane] = __shfl_down_sync(all, value, 3, width);
  out[96 + lane] = __shfl_xor_sync(all, value, 5, width);
}
template <class T> static void check_shuffles(int width) {
  buffer<T> out(128);
  LAUNCH(shuffles<T>, 1, 32, 0, 0, out.at, width);
  std::vector<T> got = out.read();
  for (int lane = 0; lane < 32; lane++) { // the definitions of the programming guide
    int first = lane / width * width, self = lane;
    auto value = [](int source) { return (T)(source * 3 + 1); };
    CHECK(got[lane] == value(first + (lane * 5 + 3) % 40 % width));
    CHECK(got[32 + lane] == value(lane - 3 < first ? self : lane - 3));
    CHECK(got[64 + lane] == value(lane + 3 >= first + width ? self : lane + 3));
    CHECK(got[96 + lane] == value((lane ^ 5) >= first + width ? self : lane ^ 5));
  }
}
static void warp_shuffles() {
  for (int width : {2, 4, 8, 16, 32}) {
    check_shuffles<int>(width);
    check_shuffles<float>(width);
    check_shuffles<double>(width);
    check_shuffles<long long>(width);
  }
}

__global__ void halves(int *out) {
  int lane = (int)threadIdx.x % 32;
  unsigned half = lane < 16 ? 0x0000ffffu : 0xffff0000u;
  int sum = lane;
  for (int step = 8; step > 0; step /= 2) sum += __shfl_xor_sync(half, sum, step);
  if (lane < 16) sum += __shfl_sync(0x0000ffffu, sum, 3); // one half does more than the other
  sum += __shfl_sync(0xffffffffu, sum, 31);
  if (lane % 2 == 0) sum += __shfl_xor_sync(0x55555555u, lane, 2);
  __syncwarp();
  out[threadIdx.x] = sum;
}
static void warp_masks() {
  buffer<int> out(96);
  LAUNCH(halves, 1, 96, 0, 0, out.at);
  std::vector<int> got = out.read();
  for (int i = 0; i < 96; i++) {
    int lane = i % 32, want = (lane < 16 ? 240 : 376) + 376;
    CHECK(got[i] == want + (lane % 2 == 0 ? lane ^ 2 : 0));
  }
}

__global__ void votes(unsigned *out) {
  unsigned all = 0xffffffffu;
  int lane = (int)threadIdx.x;
  unsigned *mine = out + lane * 9;
  mine[0] = __ballot_sync(all, lane % 3 == 0);
  mine[1] = (unsigned)__any_sync(all, lane == 31) + 2 * (unsigned)__any_sync(all, lane > 31);
  mine[2] = (unsigned)__all_sync(all, lane < 32) + 2 * (unsigned)__all_sync(all, lane < 31);
  mine[3] = __match_any_sync(all, lane / 8);
  mine[4] = __reduce_add_sync(all, (unsigned)lane);
  mine[5] = (unsigned)__reduce_max_sync(all, lane - 40) + (unsigned)__reduce_min_sync(all, lane);
  mine[6] = __reduce_or_sync(all, 1u << lane % 7);
  mine[7] = __reduce_xor_sync(all, (unsigned)lane * 77u);
  mine[8] = (unsigned)__reduce_add_sync(lane < 4 ? 0xfu : ~0xfu, lane);
}
static void warp_votes() {
  buffer<unsigned> out(32 * 9);
  LAUNCH(votes, 1, 32, 0, 0, out.at);
  std::vector<unsigned> got = out.read();
  unsigned thirds = 0, xors = 0;
  for (int lane = 0; lane < 32; lane++) thirds |= (unsigned)(lane % 3 == 0) << lane, xors ^= (unsigned)lane * 77u;
  for (int lane = 0; lane < 32; lane++) {
    const unsigned *mine = &got[lane * 9];
    CHECK(mine[0] == thirds && mine[1] == 1 && mine[2] == 1 && mine[3] == 0xffu << lane / 8 * 8);
    CHECK(mine[4] == 496 && mine[5] == (unsigned)-9 && mine[6] == 127 && mine[7] == xors);
    CHECK(mine[8] == (lane < 4 ? 6u : 490u));
  }
}

__global__ void warp_memory(int *out) {
  __shared__ int box[64];
  box[threadIdx.x] = (int)threadIdx.x * 2;
  __syncwarp();
  int got = box[threadIdx.x ^ 1];
  __syncwarp();
  box[threadIdx.x] = got + 1;
  __syncwarp();
  out[threadIdx.x] = box[threadIdx.x ^ 2];
}
static void warp_barrier() {
  buffer<int> out(64);
  LAUNCH(warp_memory, 1, 64, 0, 0, out.at);
  std::vector<int> got = out.read();
  for (int i = 0; i < 64; i++) CHECK(got[i] == (i ^ 3) * 2 + 1);
}

// ---- atomics ----

struct totals {
  int sum, low, high, bits, swapped;
  unsigned ring;
  float real;
  double wide;
  unsigned long long large;
};
__global__ void atomics(totals *t) {
  int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
  atomicAdd(&t->sum, i);
  atomicMin(&t->low, i - 100);
  atomicMax(&t->high, i);
  atomicOr(&t->bits, 1 << i % 20);
  atomicAdd(&t->real, 0.5f);
  atomicAdd(&t->wide, 0.25);
  atomicAdd(&t->large, 1ull << 33);
  atomicInc(&t->ring, 9);
  for (int old = 0, seen; (seen = atomicCAS(&t->swapped, old, old + 3)) != old; old = seen) {}
}
static void atomic_operations() {
  buffer<totals> t(1);
  t.write({totals{}});
  LAUNCH(atomics, 20, 50, 0, 0, t.at);
  totals got = t.read()[0];
  CHECK(got.sum == 499500 && got.low == -100 && got.high == 999 && got.bits == (1 << 20) - 1);
  CHECK(got.real == 500 && got.wide == 250 && got.large == 1000ull << 33 && got.ring == 0 && got.swapped == 3000);
}

__global__ void last_block(const int *in, int *parts, unsigned *done, int *out) {
  __shared__ bool last;
  int sum = in[blockIdx.x * 2] + in[blockIdx.x * 2 + 1];
  if (threadIdx.x == 0) {
    parts[blockIdx.x] = sum;
    __threadfence();
    last = atomicInc(done, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (last && threadIdx.x == 0) {
    __threadfence();
    int total = 0;
    for (unsigned i = 0; i < gridDim.x; i++) total += parts[i];
    *out = total;
  }
}
static void grid_reduction() {
  const int n = 50;
  std::vector<int> host(2 * n);
  std::iota(host.begin(), host.end(), 1);
  buffer<int> in(2 * n), parts(n), out(1);
  buffer<unsigned> done(1);
  in.write(host);
  done.write({0});
  for (int i = 0; i < 2; i++) {
    LAUNCH(last_block, n, 64, 0, 0, in.at, parts.at, done.at, out.at);
    CHECK(out.read()[0] == 5050);
  }
}

// ---- numbers ----

__global__ void bfloat(const float *in, __nv_bfloat16 *out, float *back, int n) {
  int i = (int)threadIdx.x;
  if (i >= n) return;
  __nv_bfloat16 x = __float2bfloat16_rn(in[i]);
  __nv_bfloat162 pair = __floats2bfloat162_rn(in[i], 2);
  out[i] = x;
  back[i] = __bfloat162float(x) + __low2float(pair) * __high2float(pair);
}
static void bfloat16() {
  std::vector<float> host = {0.0f, -0.0f, 1.0f, 1.00390625f, 1.01171875f, 3.14159f, -65504.0f, 1e-40f, 3.39e38f, INFINITY};
  const int n = (int)host.size();
  buffer<float> in(n), back(n);
  buffer<__nv_bfloat16> out(n);
  in.write(host);
  LAUNCH(bfloat, 1, 32, 0, 0, in.at, out.at, back.at, n);
  std::vector<__nv_bfloat16> got = out.read();
  std::vector<float> value = back.read();
  for (int i = 0; i < n; i++) { // round to nearest even by hand
    uint32_t bits;
    memcpy(&bits, &host[i], 4);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    float want;
    memcpy(&want, &bits, 4);
    uint16_t have;
    memcpy(&have, &got[i], 2);
    CHECK(have == bits >> 16 && value[i] == want + want * 2);
  }
}

__global__ void numbers(int *i, float *f, float x, int k) {
  int n = 0, m = 0;
  i[n++] = __clz(k), i[n++] = __popc((unsigned)k), i[n++] = __ffs(k), i[n++] = (int)__brev((unsigned)k);
  i[n++] = __float_as_int(x), i[n++] = (int)__umulhi(0x80000000u, (unsigned)k), i[n++] = __float2int_rn(2.5f * x);
  i[n++] = __float2int_rz(-2.5f * x), i[n++] = __float2int_ru(2.25f * x), i[n++] = __float2int_rd(-2.25f * x);
  i[n++] = __float2int_rn(x * 1e20f), i[n++] = (int)__funnelshift_l((unsigned)k, 1u, 4), i[n++] = min(k, 7), i[n++] = max(k, 7);
  f[m++] = __int_as_float(k), f[m++] = rsqrtf(x * 4), f[m++] = __fdividef(x, 4), f[m++] = __saturatef(x + 1);
  f[m++] = __fmaf_rn(x, 3, 2), f[m++] = exp2f(x * 3), f[m++] = fmaxf(x, 3), f[m++] = max(x, 2.0f), f[m++] = __frcp_rn(x * 2);
  f[m++] = __expf(x), f[m++] = __logf(x * 2), f[m++] = tanhf(x), f[m++] = erff(x), f[m++] = __powf(x * 2, 3);
}
static void arithmetic() {
  buffer<int> i(14);
  buffer<float> f(14);
  LAUNCH(numbers, 1, 1, 0, 0, i.at, f.at, 1.0f, 40);
  std::vector<int> got = i.read();
  CHECK(got[0] == 26 && got[1] == 2 && got[2] == 4 && got[3] == 0x14000000 && got[4] == 0x3f800000 && got[5] == 20);
  CHECK(got[6] == 2 && got[7] == -2 && got[8] == 3 && got[9] == -3 && got[10] == 0x7fffffff && got[11] == 16);
  CHECK(got[12] == 7 && got[13] == 40);
  std::vector<float> real = f.read();
  CHECK(real[1] == 0.5f && real[2] == 0.25f && real[3] == 1 && real[4] == 5 && real[5] == 8 && real[6] == 3 && real[7] == 2);
  double want[] = {0.5, 2.718281828, 0.693147181, 0.761594156, 0.842700793, 8};
  for (int k = 0; k < 6; k++) CHECK(fabs(real[8 + k] - want[k]) < 1e-5 * want[k]);
}

static const part parts[] = {PART(index_space),  PART(parameter_types),  PART(variable_symbols), PART(shared_memory),
                             PART(block_predicates), PART(full_block),   PART(warp_shuffles),    PART(warp_masks),
                             PART(warp_votes),   PART(warp_barrier),     PART(atomic_operations), PART(grid_reduction),
                             PART(bfloat16),     PART(arithmetic)};
int main(int argc, char **argv) {
  if (argc == 2 && !strcmp(argv[1], "all")) {
    for (const part &p : parts) p.run();
    printf("ok\n");
    return 0;
  }
  return run_part(parts, sizeof parts / sizeof *parts, argc, argv);
}
