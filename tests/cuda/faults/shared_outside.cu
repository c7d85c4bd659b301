// Partial sums of a block with more warps than the array has places.
// caught by: ubsan index 4 out of bounds
template <bool wrong> __global__ void shared_outside_kernel(const float *x, float *out) {
  __shared__ float part[4], behind[8];
  const float sum = pd_warp_sum(x[threadIdx.x]);
  const int warp = (int)threadIdx.x / PD_WARP;
  if (threadIdx.x % PD_WARP == 0) behind[warp] = sum;
  __syncthreads();
  if (threadIdx.x % PD_WARP == 0 && (wrong || warp < 4)) part[warp] = sum; // <- here
  __syncthreads();
  out[threadIdx.x] = part[threadIdx.x % 4] + behind[threadIdx.x % 8];
}
struct shared_outside {
  template <bool wrong> static int run() {
    tensor<float> x(8 * PD_WARP), out(8 * PD_WARP);
    for (double &v : x.at) v = 1;
    x.push();
    PD_LAUNCH(shared_outside_kernel<wrong>, dim3(1), dim3(8 * PD_WARP), 0, 0, x.device, out.device);
    return near_to(out.pull()[0], 2 * PD_WARP);
  }
};
