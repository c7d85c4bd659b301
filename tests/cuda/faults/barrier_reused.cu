// Two sums by a block through one array: the second is written while slow warps still read the first.
// caught by: tsan data race
template <bool wrong> __global__ void barrier_reused_kernel(const float *x, float *out) {
  __shared__ float part[FAULT_BLOCK / PD_WARP];
  const float value = x[threadIdx.x];
  float total = 0;
  for (int power = 1; power <= 2; power++) {
    const float sum = pd_warp_sum(power == 1 ? value : value * value);
    if (!wrong) __syncthreads();
    if (threadIdx.x % PD_WARP == 0) part[threadIdx.x / PD_WARP] = sum; // <- here
    __syncthreads();
    for (int warp = 0; warp < FAULT_BLOCK / PD_WARP; warp++) total += part[warp]; // <- here
  }
  out[threadIdx.x] = total;
}
struct barrier_reused {
  template <bool wrong> static int run() {
    tensor<float> x(FAULT_BLOCK), out(FAULT_BLOCK);
    for (double &v : x.at) v = 2;
    x.push();
    PD_LAUNCH(barrier_reused_kernel<wrong>, dim3(1), dim3(FAULT_BLOCK), 0, 0, x.device, out.device);
    return near_to(out.pull()[5], 6 * FAULT_BLOCK);
  }
};
