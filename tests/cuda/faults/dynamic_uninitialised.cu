// The rows of a tile behind the last key are multiplied with, but were not set to zero.
// caught by: result
template <bool wrong> __global__ void dynamic_uninitialised_kernel(int count, const float *values, float *out) {
  PD_SHARED(float, tile);
  if (!wrong || (int)threadIdx.x < count) tile[threadIdx.x] = (int)threadIdx.x < count ? values[threadIdx.x] : 0;
  __syncthreads();
  float sum = 0;
  for (int j = 0; j < PD_WARP; j++) sum = fmaf(j < count ? 1.0f : 0.0f, tile[j], sum); /* 0 * NaN is NaN */
  out[threadIdx.x] = sum;
}
struct dynamic_uninitialised {
  template <bool wrong> static int run() {
    tensor<float> values(20), out(PD_WARP);
    for (double &v : values.at) v = 1;
    values.push();
    PD_LAUNCH(dynamic_uninitialised_kernel<wrong>, dim3(1), dim3(PD_WARP), PD_WARP * sizeof(float), 0, 20, values.device,
              out.device);
    return near_to(out.pull()[0], 20);
  }
};
