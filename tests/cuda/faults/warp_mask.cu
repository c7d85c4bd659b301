// A vote whose mask leaves out lanes that take part in it.
// caught by: run warp-mask
template <bool wrong> __global__ void warp_mask_kernel(const float *x, float *out) {
  const unsigned votes = __ballot_sync(wrong ? 0x0000ffffu : PD_ALL_LANES, x[threadIdx.x] > 0); // <- here
  out[threadIdx.x] = (float)__popc(votes);
}
struct warp_mask {
  template <bool wrong> static int run() {
    tensor<float> x(PD_WARP), out(PD_WARP);
    for (double &v : x.at) v = 1;
    x.push();
    PD_LAUNCH(warp_mask_kernel<wrong>, dim3(1), dim3(PD_WARP), 0, 0, x.device, out.device);
    return near_to(out.pull()[0], PD_WARP);
  }
};
