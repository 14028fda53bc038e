// Kernels over one row of floats: conversion, norm, addition, gated activation, cap, rotation. Over
// the vector face `Simd`.
//
// Sums use four vectors of partial sums in a fixed order, so that a row's bits depend on its length
// only.
#pragma once
#include "cpu/isa/kernels.h"
#include "cpu/simd/simd_math.h"

namespace inferd::cpu {
namespace {

// Calls body(offset, lanes) for each vector of a row; lanes < kWidth only in the last call.
template <class Body>
inline void each_vector(int64_t n, Body&& body) {
  int64_t i = 0;
  for (; i + Simd::kWidth <= n; i += Simd::kWidth) body(i, Simd::kWidth);
  if (i < n) body(i, static_cast<int>(n - i));
}
inline Simd::V load_some(const float* p, int lanes) {
  return lanes == Simd::kWidth ? Simd::load(p) : Simd::load_n(p, lanes);
}
inline void store_some(float* p, Simd::V v, int lanes) {
  if (lanes == Simd::kWidth) {
    Simd::store(p, v);
  } else {
    Simd::store_n(p, v, lanes);
  }
}

struct F32Codec {
  static Simd::V load(const float* p) { return Simd::load(p); }
  static void store(float* p, Simd::V v) { Simd::store(p, v); }
  using Type = float;
};
struct F16Codec {
  static Simd::V load(const uint16_t* p) { return Simd::load_f16(p); }
  static void store(uint16_t* p, Simd::V v) { Simd::store_f16(p, v); }
  using Type = uint16_t;
};
struct Bf16Codec {
  static Simd::V load(const uint16_t* p) { return Simd::load_bf16(p); }
  static void store(uint16_t* p, Simd::V v) { Simd::store_bf16(p, v); }
  using Type = uint16_t;
};

// Only read; cpu/cache_rows.h writes them.
struct Int8Codec {
  static Simd::V load(const int8_t* p) { return Simd::load_i8(p); }
  using Type = int8_t;
};
struct Float8Codec {
  static Simd::V load(const uint8_t* p) { return Simd::load_e4m3(p); }
  using Type = uint8_t;
};

// dst[i] = change(src[i])
template <class Codec, class Change>
inline void widen(float* dst, const void* src, int64_t n, Change&& change) {
  using T = typename Codec::Type;
  const T* from = static_cast<const T*>(src);
  each_vector(n, [&](int64_t i, int lanes) {
    if (lanes == Simd::kWidth) return Simd::store(dst + i, change(Codec::load(from + i)));
    T tail[Simd::kWidth] = {};
    __builtin_memcpy(tail, from + i, lanes * sizeof(T));
    Simd::store_n(dst + i, change(Codec::load(tail)), lanes);
  });
}

template <class Codec>
void to_f32(float* dst, const void* src, int64_t n) {
  widen<Codec>(dst, src, n, [](Simd::V v) { return v; });
}

template <class Codec>
void from_f32(void* dst, const float* src, int64_t n) {
  using T = typename Codec::Type;
  T* to = static_cast<T*>(dst);
  each_vector(n, [&](int64_t i, int lanes) {
    if (lanes == Simd::kWidth) return Codec::store(to + i, Simd::load(src + i));
    T tail[Simd::kWidth];
    Codec::store(tail, Simd::load_n(src + i, lanes));
    __builtin_memcpy(to + i, tail, lanes * sizeof(T));
  });
}

void rms_norm(float* out, const float* x, const float* weight, int64_t n, float eps) {
  Simd::V part[4] = {Simd::zero(), Simd::zero(), Simd::zero(), Simd::zero()};
  int64_t vector = 0;
  each_vector(n, [&](int64_t i, int lanes) {
    const Simd::V v = load_some(x + i, lanes);
    Simd::V& sum = part[vector++ & 3];
    sum = Simd::fma(v, v, sum);
  });
  const float squares =
      Simd::sum(Simd::add(Simd::add(part[0], part[1]), Simd::add(part[2], part[3])));
  const float mean = squares / static_cast<float>(n) + eps;
  const Simd::V scale = Simd::set(1.0f / __builtin_sqrtf(mean));
  each_vector(n, [&](int64_t i, int lanes) {
    const Simd::V v = Simd::mul(load_some(x + i, lanes), scale);
    store_some(out + i, Simd::mul(v, load_some(weight + i, lanes)), lanes);
  });
}

void add(float* inout, const float* x, int64_t n, float scale) {
  const Simd::V factor = Simd::set(scale);
  each_vector(n, [&](int64_t i, int lanes) {
    store_some(inout + i, Simd::fma(load_some(x + i, lanes), factor, load_some(inout + i, lanes)),
               lanes);
  });
}

// 1 / (1 + exp(-x))
inline Simd::V sigmoid(Simd::V x) {
  return Simd::div(Simd::set(1.0f), Simd::add(Simd::set(1.0f), exp_of(Simd::sub(Simd::zero(), x))));
}
inline Simd::V tanh_of(Simd::V x) {
  const Simd::V e = exp_of(Simd::add(x, x));
  return Simd::sub(Simd::set(1.0f), Simd::div(Simd::set(2.0f), Simd::add(Simd::set(1.0f), e)));
}

inline Simd::V silu(Simd::V g) {
  return Simd::div(g, Simd::add(Simd::set(1.0f), exp_of(Simd::sub(Simd::zero(), g))));
}
// 0.5 (1 + tanh(y)) is sigmoid(2 y).
inline Simd::V gelu_tanh(Simd::V g) {
  const Simd::V cube = Simd::mul(Simd::mul(g, g), g);
  const Simd::V inner = Simd::fma(cube, Simd::set(0.044715f), g);
  return Simd::mul(g, sigmoid(Simd::mul(inner, Simd::set(2 * 0.7978845608f))));
}

template <Simd::V (*kGate)(Simd::V)>
void gated_mul(float* out, const float* gate, const float* up, int64_t n) {
  each_vector(n, [&](int64_t i, int lanes) {
    store_some(out + i, Simd::mul(kGate(load_some(gate + i, lanes)), load_some(up + i, lanes)),
               lanes);
  });
}

// Gate::kClampedSwiglu.
void clamped_swiglu(float* out, const float* gate, const float* up, int64_t n) {
  const Simd::V most = Simd::set(7.0f), least = Simd::set(-7.0f), one = Simd::set(1.0f);
  each_vector(n, [&](int64_t i, int lanes) {
    const Simd::V g = Simd::min(load_some(gate + i, lanes), most);
    const Simd::V u = Simd::max(Simd::min(load_some(up + i, lanes), most), least);
    const Simd::V gated = Simd::mul(g, sigmoid(Simd::mul(g, Simd::set(1.702f))));
    store_some(out + i, Simd::mul(gated, Simd::add(u, one)), lanes);
  });
}

void scale_cap(float* x, int64_t n, float scale, float cap) {
  const Simd::V factor = Simd::set(cap > 0 ? scale / cap : scale), most = Simd::set(cap);
  each_vector(n, [&](int64_t i, int lanes) {
    const Simd::V v = Simd::mul(load_some(x + i, lanes), factor);
    store_some(x + i, cap > 0 ? Simd::mul(tanh_of(v), most) : v, lanes);
  });
}

void rotate(float* x, const float* cos, const float* sin, int32_t half) {
  each_vector(half, [&](int64_t i, int lanes) {
    const Simd::V a = load_some(x + i, lanes), b = load_some(x + half + i, lanes);
    const Simd::V c = load_some(cos + i, lanes), s = load_some(sin + i, lanes);
    store_some(x + i, Simd::sub(Simd::mul(a, c), Simd::mul(b, s)), lanes);
    store_some(x + half + i, Simd::fma(a, s, Simd::mul(b, c)), lanes);
  });
}

}  // namespace
}  // namespace inferd::cpu
