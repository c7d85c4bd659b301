// Attention's stream of tiles: the next tile is loaded while another warp still multiplies with the last.
// caught by: tsan data race
template <bool wrong> __global__ void tile_overwritten_kernel(int tiles, const float *keys, float *out) {
  PD_SHARED(float, tile);
  float sum = 0;
  for (int from = 0; from < tiles; from++) {
    tile[threadIdx.x] = keys[from * FAULT_BLOCK + threadIdx.x]; // <- here
    __syncthreads();
    for (int j = 0; j < FAULT_BLOCK; j++) sum = fmaf(tile[j], (float)(j % 4), sum); // <- here
    if (!wrong) __syncthreads();
  }
  out[threadIdx.x] = sum;
}
struct tile_overwritten {
  template <bool wrong> static int run() {
    tensor<float> keys(4 * FAULT_BLOCK), out(FAULT_BLOCK);
    for (size_t i = 0; i < keys.at.size(); i++) keys.at[i] = (double)(i / FAULT_BLOCK);
    keys.push();
    PD_LAUNCH(tile_overwritten_kernel<wrong>, dim3(1), dim3(FAULT_BLOCK), FAULT_BLOCK * sizeof(float), 0, 4, keys.device,
              out.device);
    return near_to(out.pull()[1], 6 * 1.5 * FAULT_BLOCK);
  }
};
