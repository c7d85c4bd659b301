// Lanes of a warp meet at different collectives: half exchange values while half vote, all with the full mask.
// caught by: run warp-mixed
template <bool wrong> __global__ void warp_mixed_kernel(const float *x, float *out) {
  float value = x[threadIdx.x];
  const bool low = threadIdx.x < PD_WARP / 2;
  if (wrong) {
    if (low) value += __shfl_xor_sync(PD_ALL_LANES, value, 1); // <- here
    else value = (float)__popc(__ballot_sync(PD_ALL_LANES, value > 0)); // <- here
  } else {
    const float other = __shfl_xor_sync(PD_ALL_LANES, value, 1);
    const unsigned votes = __ballot_sync(PD_ALL_LANES, value > 0);
    value = low ? value + other : (float)__popc(votes);
  }
  out[threadIdx.x] = value;
}
struct warp_mixed {
  template <bool wrong> static int run() {
    tensor<float> x(PD_WARP), out(PD_WARP);
    for (double &v : x.at) v = 1;
    x.push();
    PD_LAUNCH(warp_mixed_kernel<wrong>, dim3(1), dim3(PD_WARP), 0, 0, x.device, out.device);
    return near_to(out.pull()[0], 2) && near_to(out.pull()[31], PD_WARP);
  }
};
