// A kernel is given a pointer to host memory.
// caught by: run kernel-argument
template <bool wrong> __global__ void argument_host_kernel(const double *inverse, float *out) {
  out[threadIdx.x] = (float)*inverse;
}
struct argument_host {
  template <bool wrong> static int run() {
    tensor<float> out(PD_WARP);
    const double host = 0.5;
    const scalar<double> device(host);
    PD_LAUNCH(argument_host_kernel<wrong>, dim3(1), dim3(PD_WARP), 0, 0, wrong ? &host : device.device, out.device);
    return near_to(out.pull()[0], 0.5);
  }
};
