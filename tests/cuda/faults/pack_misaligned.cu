// Packs of four in rows of 33: every row but the first starts where no pack may (a GPU stops with a misaligned address).
// caught by: ubsan misaligned address
template <bool wrong> __global__ void pack_misaligned_kernel(const float *x, float *out) {
  constexpr int width = 33, lanes = wrong ? 4 : pd_lanes<float>(width);
  const float *row = x + threadIdx.y * width;
  float sum = 0, v[lanes];
  for (int c = (int)threadIdx.x * lanes; c + lanes <= width; c += PD_WARP * lanes) {
    const pd_pack<float, lanes> *from = reinterpret_cast<const pd_pack<float, lanes> *>(row + c);
    const pd_pack<float, lanes> pack = *from; // <- here
    for (int k = 0; k < lanes; k++) sum += v[k] = pack.at[k];
  }
  if (wrong && threadIdx.x == 0) sum += row[32];
  sum = pd_warp_sum(sum);
  if (threadIdx.x == 0) out[threadIdx.y] = sum;
}
struct pack_misaligned {
  template <bool wrong> static int run() {
    tensor<float> x(4 * 33), out(4);
    for (double &v : x.at) v = 1;
    x.push();
    PD_LAUNCH(pack_misaligned_kernel<wrong>, dim3(1), dim3(PD_WARP, 4), 0, 0, x.device, out.device);
    return near_to(out.pull()[3], 33);
  }
};
