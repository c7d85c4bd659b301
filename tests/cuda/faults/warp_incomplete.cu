// A shuffle with all lanes in its mask, in a branch that only half of them take.
// caught by: run warp-incomplete
template <bool wrong> __global__ void warp_incomplete_kernel(const float *x, float *out) {
  float value = x[threadIdx.x];
  if (threadIdx.x < PD_WARP / 2) {
    const unsigned mask = wrong ? PD_ALL_LANES : 0xffffu;
    for (int step = 8; step > 0; step /= 2) value += __shfl_xor_sync(mask, value, step); // <- here
  }
  out[threadIdx.x] = value;
}
struct warp_incomplete {
  template <bool wrong> static int run() {
    tensor<float> x(PD_WARP), out(PD_WARP);
    for (double &v : x.at) v = 1;
    x.push();
    PD_LAUNCH(warp_incomplete_kernel<wrong>, dim3(1), dim3(PD_WARP), 0, 0, x.device, out.device);
    return near_to(out.pull()[0], PD_WARP / 2);
  }
};
