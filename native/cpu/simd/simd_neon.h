// The vector face of NEON on 64-bit ARM: what the *_kernel.h bodies are written over. Included by
// the kernels_neon*.cpp only.
//
// 32 registers of 4 floats: a matrix tile of 6 rows x 4 vectors keeps 24 sums, 4 weights and a
// broadcast in registers.
#pragma once
#include <arm_neon.h>

#include <cstdint>

namespace inferd::cpu {
namespace {

struct Simd {
  using V = float32x4_t;
  using Words = uint32x4_t;
  static constexpr int kWidth = 4;
  static constexpr int kPanelVectors = 4;
  static constexpr int kTileRows = 6;
  // Vectors of the value sums of four queries kept in registers.
  static constexpr int kValueVectors = 4;

  static V zero() { return vdupq_n_f32(0); }
  static V set(float x) { return vdupq_n_f32(x); }
  static V load(const float* p) { return vld1q_f32(p); }
  static void store(float* p, V v) { vst1q_f32(p, v); }
  static V load_n(const float* p, int n) {
    float t[4] = {0, 0, 0, 0};
    for (int i = 0; i < n; ++i) t[i] = p[i];
    return vld1q_f32(t);
  }
  static void store_n(float* p, V v, int n) {
    float t[4];
    vst1q_f32(t, v);
    for (int i = 0; i < n; ++i) p[i] = t[i];
  }
  static V load_f16(const uint16_t* p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
  static V load_bf16(const uint16_t* p) {
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16));
  }
  static void store_f16(uint16_t* p, V v) { vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(v))); }
  static void store_bf16(uint16_t* p, V v) {
    const uint32x4_t bits = vreinterpretq_u32_f32(v);
    const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const uint32x4_t up = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
    const uint32x4_t quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
    vst1_u16(p, vshrn_n_u32(vbslq_u32(vceqq_f32(v, v), up, quiet), 16));
  }
  // Bytes, and their lower and upper halves, as floats.
  static V load_u8(const uint8_t* p) { return vcvtq_f32_u32(bytes(p)); }
  static V load_low4(const uint8_t* p) {
    return vcvtq_f32_u32(vandq_u32(bytes(p), vdupq_n_u32(15)));
  }
  static V load_high4(const uint8_t* p) { return vcvtq_f32_u32(vshrq_n_u32(bytes(p), 4)); }
  // Twice the numbers e2m1 in the lower or the upper halves of bytes.
  static V load_float4(const uint8_t* p, bool upper) {
    static constexpr int8_t kTwice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    uint32_t word;
    __builtin_memcpy(&word, p, sizeof(word));
    const uint8x8_t loaded = vcreate_u8(word);
    const uint8x8_t codes = upper ? vshr_n_u8(loaded, 4) : vand_u8(loaded, vdup_n_u8(15));
    const int8x8_t twice = vqtbl1_s8(vld1q_s8(kTwice), codes);
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(twice))));
  }
  // Powers of two, by their exponents (e8m0); 0 for the least.
  static V load_powers(const uint8_t* p) {
    return vreinterpretq_f32_u32(vshlq_n_u32(bytes(p), 23));
  }
  // Two bits of each byte, those at `shift`.
  static V load_bits2(const uint8_t* p, int shift) {
    const uint32x4_t bits = vshlq_u32(bytes(p), vdupq_n_s32(-shift));
    return vcvtq_f32_u32(vandq_u32(bits, vdupq_n_u32(3)));
  }
  // 16 numbers e4m3, which are not NaN, times 2^-8: moved into a half float, whose exponents are
  // greater by 8.
  static void load_float8(const void* p, V* w) {
    const int8x16_t codes = vld1q_s8(static_cast<const int8_t*>(p));
    const auto halves = [](int8x8_t of) {
      const uint16x8_t words = vreinterpretq_u16_s16(vshll_n_s8(of, 7));
      return vreinterpretq_f16_u16(vandq_u16(words, vdupq_n_u16(0xbfff)));
    };
    const float16x8_t low = halves(vget_low_s8(codes)), high = halves(vget_high_s8(codes));
    w[0] = vcvt_f32_f16(vget_low_f16(low));
    w[1] = vcvt_f32_f16(vget_high_f16(low));
    w[2] = vcvt_f32_f16(vget_low_f16(high));
    w[3] = vcvt_f32_f16(vget_high_f16(high));
  }
  // Numbers e4m3, NaN among them.
  static V load_e4m3(const uint8_t* p) {
    uint32_t word;
    __builtin_memcpy(&word, p, sizeof(word));
    const int16x8_t codes = vshll_n_s8(vreinterpret_s8_u8(vcreate_u8(word)), 7);
    const uint16x4_t halves =
        vand_u16(vreinterpret_u16_s16(vget_low_s16(codes)), vdup_n_u16(0xbfff));
    const uint16x4_t size = vand_u16(halves, vdup_n_u16(0x7fff));
    const uint16x4_t nan = vshl_n_u16(vceq_u16(size, vdup_n_u16(0x3f80)), 10);
    return vmulq_n_f32(vcvt_f32_f16(vreinterpret_f16_u16(vorr_u16(halves, nan))), 256.0f);
  }
  static V load_i8(const int8_t* p) {
    uint32_t word;
    __builtin_memcpy(&word, p, sizeof(word));
    const int16x8_t codes = vmovl_s8(vreinterpret_s8_u8(vcreate_u8(word)));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(codes)));
  }
  // Pairs of bf16 in 32-bit words: the first and the second of each pair as floats.
  static Words load_words(const void* p) { return vld1q_u32(static_cast<const uint32_t*>(p)); }
  static V first_bf16(Words w) { return vreinterpretq_f32_u32(vshlq_n_u32(w, 16)); }
  static V second_bf16(Words w) {
    return vreinterpretq_f32_u32(vandq_u32(w, vdupq_n_u32(0xffff0000u)));
  }

  static V add(V a, V b) { return vaddq_f32(a, b); }
  static V sub(V a, V b) { return vsubq_f32(a, b); }
  static V mul(V a, V b) { return vmulq_f32(a, b); }
  static V div(V a, V b) { return vdivq_f32(a, b); }
  static V fma(V a, V b, V c) { return vfmaq_f32(c, a, b); }
  // b where a is NaN.
  static V max(V a, V b) { return vmaxnmq_f32(a, b); }
  static V min(V a, V b) { return vminnmq_f32(a, b); }
  static V round(V a) { return vrndnq_f32(a); }
  // a * 2^n for integral n of at least -126 and at most 127.
  static V scale2(V a, V n) {
    const int32x4_t e = vaddq_s32(vcvtq_s32_f32(n), vdupq_n_s32(127));
    return vmulq_f32(a, vreinterpretq_f32_s32(vshlq_n_s32(e, 23)));
  }
  static V zero_where_less(V a, V x, float limit) {
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(a), vcltq_f32(x, set(limit))));
  }
  static float sum(V a) { return vaddvq_f32(a); }
  static float largest(V a) { return vmaxnmvq_f32(a); }
  static int count_greater(V a, V b) {
    return static_cast<int>(vaddvq_u32(vshrq_n_u32(vcgtq_f32(a, b), 31)));
  }
  static int count_at_least(V a, V b) {
    return static_cast<int>(vaddvq_u32(vshrq_n_u32(vcgeq_f32(a, b), 31)));
  }
  static bool any_equal(V a, V b) { return vmaxvq_u32(vceqq_f32(a, b)) != 0; }

  // Lane i of the result is the sum of the lanes of a[i].
  static V sum_each(const V* a) {
    return vpaddq_f32(vpaddq_f32(a[0], a[1]), vpaddq_f32(a[2], a[3]));
  }

 private:
  static uint32x4_t bytes(const uint8_t* p) {
    uint32_t word;
    __builtin_memcpy(&word, p, sizeof(word));
    return vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(word))));
  }
};

}  // namespace
}  // namespace inferd::cpu
