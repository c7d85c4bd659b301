/* Attention and rotary positions against the reference in double: causal or not, grouped heads, more or fewer keys than
 * queries, sizes that no tile divides. */
#include "kernel_check.h"

#include "pd_attention.cuh"

static const pd_kernels_f64 *R = &pd_set_ref_f64;

typedef struct shape {
  int64_t b, s, t, h, g;
} shape;

template <typename T, int d> static void test_sdpa(const shape &z, bool causal) {
  const size_t rows = (size_t)(z.b * z.s * z.h), size = rows * d, keys = (size_t)(z.b * z.t * z.g) * d;
  char name[100];
  snprintf(name, sizeof name, "%s b=%d s=%d t=%d h=%d g=%d d=%d", causal ? "causal" : "full", (int)z.b, (int)z.s,
           (int)z.t, (int)z.h, (int)z.g, d);
  tensor<T> q(size), k(keys), v(keys), o(size), d_o(size), dq(size), dk(keys), dv(keys);
  tensor<float> lse(rows);
  q.random(2);
  k.random(2);
  v.random();
  d_o.random();
  pd_sdpa<T, d>(0, z.b, z.s, z.t, z.h, z.g, causal, q.device, k.device, v.device, o.device, lse.device);
  R->sdpa(z.b, z.s, z.t, z.h, z.g, d, causal, q.ref(), k.ref(), v.ref(), o.ref(), lse.ref());
  o.expect(std::string("sdpa ") + name, 3e-6, 1);
  lse.expect(std::string("sdpa lse ") + name, 2e-6, 1);
  o.push(); /* rounded, as the gradient reads it */
  lse.push();
  pd_sdpa_grad<T, d>(0, z.b, z.s, z.t, z.h, z.g, causal, q.device, k.device, v.device, o.device, lse.device, d_o.device,
                     dq.device, dk.device, dv.device);
  R->sdpa_grad(z.b, z.s, z.t, z.h, z.g, d, causal, q.ref(), k.ref(), v.ref(), o.ref(), lse.ref(), d_o.ref(), dq.ref(),
               dk.ref(), dv.ref());
  dq.expect(std::string("sdpa dq ") + name, 1e-5, 0.1);
  dk.expect(std::string("sdpa dk ") + name, 1e-5, 0.1);
  dv.expect(std::string("sdpa dv ") + name, 1e-5);
}

template <typename T, int d> static void test_shapes(const std::vector<shape> &shapes) {
  for (const shape &z : shapes) {
    test_sdpa<T, d>(z, true);
    test_sdpa<T, d>(z, false);
  }
}

template <typename T, int d> static void test_rope(int64_t b, int64_t s, int64_t h) {
  tensor<T> x((size_t)(b * s * h * d)), y(x.at.size());
  x.random();
  for (int sign = -1; sign < 2; sign += 2) {
    pd_rope<T, d>(0, b, s, h, 10000, sign, x.device, y.device);
    R->rope(b, s, h, d, 10000, sign, x.ref(), y.ref());
    y.expect("rope d=" + std::to_string(d) + " s=" + std::to_string(s), 2e-7);
  }
}

template <typename T> static void test_all(bool quick) {
  test_shapes<T, 64>({{1, 1, 1, 1, 1}, {1, 70, 70, 2, 1}, {1, 5, 100, 2, 1}});
  if (!quick) test_shapes<T, 64>({{2, 70, 70, 4, 2}, {1, 130, 130, 2, 2}, {1, 100, 37, 2, 1}});
  test_shapes<T, 33>({{2, 31, 33, 3, 1}});
  test_rope<T, 64>(2, 300, 3);
  test_rope<T, 7>(1, 9, 2);
  test_rope<T, 1>(1, 2, 1);
  if (!quick) test_rope<T, 8>(1, 60000, 1); /* far positions */
}

int main(int argc, char **argv) {
  const bool quick = has_word(argc, argv, "quick");
#ifndef PD_QUICK
  if (!has_word(argc, argv, "one-type")) test_all<float>(quick);
#endif
  test_all<bf16>(quick);
#ifndef PD_QUICK
  if (!quick) {
    test_shapes<bf16, 256>({{1, 20, 35, 2, 1}});
    test_shapes<bf16, 512>({{1, 18, 9, 1, 1}});
  }
#endif
  return report();
}
