// A launch that asks for more shared memory than a block may have without saying so before.
// caught by: run launch of
template <bool wrong> __global__ void launch_refused_kernel(float *out) {
  PD_SHARED(float, tile);
  tile[threadIdx.x] = (float)threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = tile[PD_WARP - 1 - threadIdx.x];
}
struct launch_refused {
  template <bool wrong> static int run() {
    tensor<float> out(PD_WARP);
    const size_t bytes = wrong ? 64 * 1024 : 48 * 1024;
    PD_LAUNCH(launch_refused_kernel<wrong>, dim3(1), dim3(PD_WARP), bytes, 0, out.device); // <- here
    return near_to(out.pull()[0], PD_WARP - 1);
  }
};
