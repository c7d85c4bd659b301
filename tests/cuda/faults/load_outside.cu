// The logit of a target that is to be ignored is read without asking whether it is one.
// caught by: asan AddressSanitizer
template <bool wrong> __global__ void load_outside_kernel(int classes, const float *x, const int32_t *targets, float *out) {
  const int32_t target = targets[threadIdx.x];
  if (wrong || target != PD_IGNORE) out[threadIdx.x] = x[(int)threadIdx.x * classes + target]; // <- here
  else out[threadIdx.x] = 0;
}
struct load_outside {
  template <bool wrong> static int run() {
    tensor<float> x(4 * 16), out(4);
    x.random();
    const integers targets({PD_IGNORE, 3, 0, 15});
    PD_LAUNCH(load_outside_kernel<wrong>, dim3(1), dim3(4), 0, 0, 16, x.device, targets.device, out.device);
    return near_to(out.pull()[0], 0);
  }
};
