// The last block of a flat kernel stores without looking whether its elements exist.
// caught by: asan AddressSanitizer
template <bool wrong> __global__ void store_outside_kernel(int n, float value, float *out) {
  const int i = (int)pd_thread();
  if (wrong || i < n) out[i] = value; // <- here
}
struct store_outside {
  template <bool wrong> static int run() {
    tensor<float> out(1000);
    PD_LAUNCH(store_outside_kernel<wrong>, pd_blocks(1000, FAULT_BLOCK), dim3(FAULT_BLOCK), 0, 0, 1000, 2.0f, out.device);
    return near_to(out.pull()[999], 2);
  }
};
