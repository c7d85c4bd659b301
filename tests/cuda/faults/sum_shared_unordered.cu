// A histogram in shared memory: threads with one bin add to it without an atomic.
// caught by: tsan data race
template <bool wrong> __global__ void sum_shared_unordered_kernel(const int32_t *ids, float *out) {
  __shared__ int bins[8];
  if (threadIdx.x < 8) bins[threadIdx.x] = 0;
  __syncthreads();
  if (wrong) bins[ids[threadIdx.x] % 8]++; // <- here
  else atomicAdd(&bins[ids[threadIdx.x] % 8], 1);
  __syncthreads();
  if (threadIdx.x < 8) out[threadIdx.x] = (float)bins[threadIdx.x];
}
struct sum_shared_unordered {
  template <bool wrong> static int run() {
    const integers ids(std::vector<int32_t>(FAULT_BLOCK, 3));
    tensor<float> out(8);
    PD_LAUNCH(sum_shared_unordered_kernel<wrong>, dim3(1), dim3(FAULT_BLOCK), 0, 0, ids.device, out.device);
    return near_to(out.pull()[3], FAULT_BLOCK);
  }
};
