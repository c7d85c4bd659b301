// A tile in dynamic shared memory, for which the launch asks for the size without the padding of its rows.
// caught by: asan AddressSanitizer
template <bool wrong> __global__ void tile_outside_kernel(int rows, int cols, const float *x, float *out) {
  PD_SHARED(float, tile);
  const int stride = cols + 1, c = (int)threadIdx.x;
  for (int r = 0; r < rows; r++) tile[r * stride + c] = x[r * cols + c]; // <- here
  __syncthreads();
  for (int r = 0; r < rows; r++) out[r * cols + c] = tile[r * stride + cols - 1 - c];
}
struct tile_outside {
  template <bool wrong> static int run() {
    tensor<float> x(8 * 32), out(8 * 32);
    x.random();
    PD_LAUNCH(tile_outside_kernel<wrong>, dim3(1), dim3(32), 8 * (wrong ? 32 : 33) * sizeof(float), 0, 8, 32, x.device,
              out.device);
    return near_to(out.pull()[0], x.at[31]);
  }
};
