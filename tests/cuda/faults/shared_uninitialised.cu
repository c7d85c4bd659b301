// A sum over places for 8 warps in a block of 4: the others were never written.
// caught by: result
template <bool wrong> __global__ void shared_uninitialised_kernel(const float *x, float *out) {
  __shared__ float part[8];
  const float sum = pd_warp_sum(x[threadIdx.x]);
  if (threadIdx.x % PD_WARP == 0) part[threadIdx.x / PD_WARP] = sum;
  __syncthreads();
  float total = 0;
  for (int warp = 0; warp < (wrong ? 8 : FAULT_BLOCK / PD_WARP); warp++) total += part[warp];
  out[threadIdx.x] = total;
}
struct shared_uninitialised {
  template <bool wrong> static int run() {
    tensor<float> x(FAULT_BLOCK), out(FAULT_BLOCK);
    for (double &v : x.at) v = 1;
    x.push();
    PD_LAUNCH(shared_uninitialised_kernel<wrong>, dim3(1), dim3(FAULT_BLOCK), 0, 0, x.device, out.device);
    return near_to(out.pull()[0], FAULT_BLOCK);
  }
};
