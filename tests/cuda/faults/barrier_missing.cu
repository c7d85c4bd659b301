// The sum of a row by a block: a warp's part is read before its warp has written it.
// caught by: tsan data race
template <bool wrong> __global__ void barrier_missing_kernel(const float *x, float *out) {
  __shared__ float part[FAULT_BLOCK / PD_WARP];
  const float sum = pd_warp_sum(x[blockIdx.x * FAULT_BLOCK + threadIdx.x]);
  if (threadIdx.x % PD_WARP == 0) part[threadIdx.x / PD_WARP] = sum; // <- here
  if (!wrong) __syncthreads();
  float total = 0;
  for (int warp = 0; warp < FAULT_BLOCK / PD_WARP; warp++) total += part[warp]; // <- here
  out[blockIdx.x * FAULT_BLOCK + threadIdx.x] = total;
}
struct barrier_missing {
  template <bool wrong> static int run() {
    tensor<float> x(FAULT_BLOCK), out(FAULT_BLOCK);
    for (double &v : x.at) v = 1;
    x.push();
    PD_LAUNCH(barrier_missing_kernel<wrong>, dim3(1), dim3(FAULT_BLOCK), 0, 0, x.device, out.device);
    return near_to(out.pull()[0], FAULT_BLOCK);
  }
};
