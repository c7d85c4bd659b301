// The usual guard, placed too early: threads behind the end return, and the rest wait for them at the barrier.
// caught by: run barrier-exited
template <bool wrong> __global__ void barrier_exited_kernel(int n, const float *x, float *out) {
  __shared__ float copy[FAULT_BLOCK];
  const int i = (int)threadIdx.x;
  if (wrong && i >= n) return;
  if (i < n) copy[i] = x[i];
  __syncthreads(); // <- here
  if (i < n) out[i] = copy[n - 1 - i];
}
struct barrier_exited {
  template <bool wrong> static int run() {
    tensor<float> x(100), out(100);
    x.random();
    PD_LAUNCH(barrier_exited_kernel<wrong>, dim3(1), dim3(FAULT_BLOCK), 0, 0, 100, x.device, out.device);
    return near_to(out.pull()[99], x.at[0]);
  }
};
