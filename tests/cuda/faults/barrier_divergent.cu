// A barrier inside a condition that only some warps meet, while the others wait at another one.
// caught by: run barrier-divergent
template <bool wrong> __global__ void barrier_divergent_kernel(const float *x, float *out) {
  __shared__ float first;
  if (threadIdx.x < PD_WARP) {
    if (threadIdx.x == 0) first = x[0];
    if (wrong) __syncthreads(); // <- here
  }
  __syncthreads(); // <- here
  out[threadIdx.x] = first;
}
struct barrier_divergent {
  template <bool wrong> static int run() {
    tensor<float> x(1), out(FAULT_BLOCK);
    x.at[0] = 3;
    x.push();
    PD_LAUNCH(barrier_divergent_kernel<wrong>, dim3(1), dim3(FAULT_BLOCK), 0, 0, x.device, out.device);
    return near_to(out.pull()[FAULT_BLOCK - 1], 3);
  }
};
