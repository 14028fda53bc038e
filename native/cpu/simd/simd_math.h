// exp over the vector face `Simd` of the file that includes this: about one unit in the last place
// over the whole float range.
//
// exp(x) = 2^n * exp(r) with n = round(x / ln 2), r = x - n ln 2 in two parts (Cody and Waite), and
// the polynomial of the Cephes library for exp(r) on |r| <= ln 2 / 2. exp(0) is exactly 1; results
// below the smallest normal float are 0.
#pragma once

namespace inferd::cpu {
namespace {

inline Simd::V exp_of(Simd::V x) {
  using S = Simd;
  const S::V top = S::min(x, S::set(88.3762626647949f));
  const S::V n = S::round(S::mul(top, S::set(1.44269504088896341f)));
  S::V r = S::fma(n, S::set(-0.693359375f), top);
  r = S::fma(n, S::set(2.12194440e-4f), r);
  S::V p = S::set(1.9875691500e-4f);
  p = S::fma(p, r, S::set(1.3981999507e-3f));
  p = S::fma(p, r, S::set(8.3334519073e-3f));
  p = S::fma(p, r, S::set(4.1665795894e-2f));
  p = S::fma(p, r, S::set(1.6666665459e-1f));
  p = S::fma(p, r, S::set(5.0000001201e-1f));
  p = S::fma(S::mul(r, r), p, S::add(r, S::set(1.0f)));
  return S::zero_where_less(S::scale2(p, n), x, -87.33654f);
}

}  // namespace
}  // namespace inferd::cpu
