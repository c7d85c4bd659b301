/* Numbers of one real type, PD_R: F(name) adds its suffix. For the tests of kernels, once for each type. */

/* a guarded copy; x NULL: NaN everywhere, so that what is not written shows */
static PD_R *F(copy_of)(int64_t n, const double *x) {
  PD_R *y = hold(sizeof *y * (size_t)(n + GUARD));
  for (int64_t i = 0; i < n; i++) y[i] = x == NULL ? (PD_R)NAN : (PD_R)x[i];
  for (int64_t i = n; i < n + GUARD; i++) y[i] = (PD_R)12345;
  return y;
}

static double *F(wide)(int64_t n, const PD_R *x) {
  double *y = hold(sizeof *y * (size_t)n);
  for (int64_t i = 0; i < n; i++) y[i] = (double)x[i];
  return y;
}
