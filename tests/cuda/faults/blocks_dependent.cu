// Blocks hand a running sum to each other through memory, as if they ran in the order of their numbers.
// caught by: order
template <bool wrong> __global__ void blocks_dependent_kernel(const float *x, float *out) {
  if (wrong) {
    const float before = blockIdx.x == 0 ? 0 : out[blockIdx.x - 1];
    out[blockIdx.x] = before + x[blockIdx.x];
  } else {
    float sum = 0;
    for (unsigned i = 0; i <= blockIdx.x; i++) sum += x[i];
    out[blockIdx.x] = sum;
  }
}
struct blocks_dependent {
  template <bool wrong> static int run() {
    tensor<float> x(16), out(16);
    for (double &v : x.at) v = 1;
    x.push();
    PD_LAUNCH(blocks_dependent_kernel<wrong>, dim3(16), dim3(1), 0, 0, x.device, out.device);
    return near_to(out.pull()[15], 16);
  }
};
