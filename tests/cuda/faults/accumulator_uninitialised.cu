// A gradient is added to an accumulator that nobody has filled.
// caught by: result
template <bool wrong> __global__ void accumulator_uninitialised_kernel(bool accumulate, const float *x, float *out) {
  const float old = wrong || accumulate ? out[threadIdx.x] : 0;
  out[threadIdx.x] = old + x[threadIdx.x];
}
struct accumulator_uninitialised {
  template <bool wrong> static int run() {
    tensor<float> x(PD_WARP), out(PD_WARP);
    x.random();
    PD_LAUNCH(accumulator_uninitialised_kernel<wrong>, dim3(1), dim3(PD_WARP), 0, 0, false, x.device, out.device);
    return near_to(out.pull()[7], x.at[7]);
  }
};
