// A sum over blocks by atomics on floats: its last bits depend on which block comes first.
// caught by: order
template <bool wrong> __global__ void sum_order_kernel(int count, const float *x, float *out) {
  if (wrong) {
    atomicAdd(out, x[blockIdx.x]);
  } else if (blockIdx.x == 0) {
    float sum = 0;
    for (int i = 0; i < count; i++) sum += x[i];
    *out = sum;
  }
}
struct sum_order {
  template <bool wrong> static int run() {
    tensor<float> x(64), out(1);
    double sum = 0;
    for (size_t i = 0; i < x.at.size(); i++) sum += x.at[i] = exp2((double)(i % 32) - 16) * 1.1;
    x.push();
    out.push(); /* 0 */
    PD_LAUNCH(sum_order_kernel<wrong>, dim3(64), dim3(1), 0, 0, 64, x.device, out.device);
    return near_to(out.pull()[0], sum);
  }
};
