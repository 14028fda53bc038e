// See block_types.h. All multi-byte fields are little-endian and may lie at any address.
#include "core/checkpoint/block_types.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "core/float8.h"
#include "core/half.h"

namespace inferd {
namespace {

using Byte = const uint8_t*;

Byte bytes_of(const std::byte* block) { return reinterpret_cast<Byte>(block); }

float half_at(Byte p) {
  uint16_t h;
  std::memcpy(&h, p, 2);
  return f16_to_f32(h);
}
uint32_t word_at(Byte p) {
  uint32_t w;
  std::memcpy(&w, p, 4);
  return w;
}

void set_scale(CodedBlock& out, float scale, float min) {
  out.scale[0] = out.scale[1] = scale;
  out.min[0] = out.min[1] = min;
}

// A loop has one shift, known beforehand: compilers make vectors of such loops, and single steps of
// those that find out the place of each code. Q6_K takes an eighth of the time.

// Of 16 bytes that hold codes 0..15 in their lower halves and 16..31 in their upper ones.
void read_nibbles(Byte qs, int16_t* __restrict codes) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = static_cast<int16_t>(qs[i] & 15);
    codes[16 + i] = static_cast<int16_t>(qs[i] >> 4);
  }
}

// Of 32 bytes, `kBits` from `kShift` on of each.
template <int kShift, int kBits>
void read_bits(Byte qs, int16_t* __restrict codes) {
  for (int i = 0; i < 32; ++i)
    codes[i] = static_cast<int16_t>(qs[i] >> kShift & ((1 << kBits) - 1));
}

// Two bits of each put before the four that codes have.
template <int kShift>
void add_upper_two(Byte qs, int16_t* __restrict codes) {
  for (int i = 0; i < 32; ++i)
    codes[i] = static_cast<int16_t>(codes[i] | (qs[i] >> kShift & 3) << 4);
}

// `value` added to the codes whose byte has bit `bit`.
void add_where(Byte qs, int bit, int value, int16_t* __restrict codes) {
  const auto mask = static_cast<uint8_t>(1 << bit);
  for (int i = 0; i < 32; ++i)
    codes[i] = static_cast<int16_t>(codes[i] + ((qs[i] & mask) != 0 ? value : 0));
}

void add_fifth_bits(uint32_t bits, int16_t* __restrict codes) {
  for (int i = 0; i < 32; ++i)
    codes[i] = static_cast<int16_t>(codes[i] | static_cast<int>(bits >> i & 1) << 4);
}

void move_down(int by, int16_t* codes) {
  for (int i = 0; i < 32; ++i) codes[i] = static_cast<int16_t>(codes[i] - by);
}

void look_up(const int8_t (&values)[16], int16_t* codes) {
  for (int i = 0; i < 32; ++i) codes[i] = values[codes[i]];
}

void decode_q4_0(const std::byte* block, CodedBlock* out) {
  const Byte p = bytes_of(block);
  set_scale(*out, half_at(p), 0);
  read_nibbles(p + 2, out->codes);
  move_down(8, out->codes);
}

void decode_q4_1(const std::byte* block, CodedBlock* out) {
  const Byte p = bytes_of(block);
  set_scale(*out, half_at(p), half_at(p + 2));
  read_nibbles(p + 4, out->codes);
}

void decode_q5_0(const std::byte* block, CodedBlock* out) {
  const Byte p = bytes_of(block);
  set_scale(*out, half_at(p), 0);
  read_nibbles(p + 6, out->codes);
  add_fifth_bits(word_at(p + 2), out->codes);
  move_down(16, out->codes);
}

void decode_q5_1(const std::byte* block, CodedBlock* out) {
  const Byte p = bytes_of(block);
  set_scale(*out, half_at(p), half_at(p + 2));
  read_nibbles(p + 8, out->codes);
  add_fifth_bits(word_at(p + 4), out->codes);
}

void decode_q8_0(const std::byte* block, CodedBlock* out) {
  const Byte p = bytes_of(block);
  set_scale(*out, half_at(p), 0);
  for (int i = 0; i < 32; ++i) out->codes[i] = static_cast<int8_t>(p[2 + i]);
}

constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                   1,    13,   25,  38,  53,  69,  89,  113};

void decode_iq4_nl(const std::byte* block, CodedBlock* out) {
  const Byte p = bytes_of(block);
  set_scale(*out, half_at(p), 0);
  read_nibbles(p + 2, out->codes);
  look_up(kIq4Values, out->codes);
}

void decode_mxfp4(const std::byte* block, CodedBlock* out) {
  const Byte p = bytes_of(block);
  set_scale(*out, 0.5f * e8m0_to_f32(p[0]), 0);
  read_nibbles(p + 1, out->codes);
  look_up(kTwiceE2m1, out->codes);
}

// The K types have 256 weights in 16 groups of 16, or 8 of 32, whose scales are themselves coded.

// The two low bits of all codes, in 64 bytes.
void read_two_bits(Byte qs, CodedBlock* out) {
  for (int half = 0; half < 2; ++half, qs += 32, out += 4) {
    read_bits<0, 2>(qs, out[0].codes);
    read_bits<2, 2>(qs, out[1].codes);
    read_bits<4, 2>(qs, out[2].codes);
    read_bits<6, 2>(qs, out[3].codes);
  }
}

void decode_q2_k(const std::byte* block, CodedBlock* out) {
  const Byte sc = bytes_of(block), qs = sc + 16;
  const float d = half_at(sc + 80), dmin = half_at(sc + 82);
  read_two_bits(qs, out);
  for (int j = 0; j < 16; ++j) {
    out[j / 2].scale[j % 2] = d * static_cast<float>(sc[j] & 15);
    out[j / 2].min[j % 2] = -(dmin * static_cast<float>(sc[j] >> 4));
  }
}

void decode_q3_k(const std::byte* block, CodedBlock* out) {
  const Byte hmask = bytes_of(block), qs = hmask + 32, sc = qs + 64;
  const float d = half_at(sc + 12);
  read_two_bits(qs, out);
  for (int j = 0; j < 8; ++j) {
    add_where(hmask, j, 4, out[j].codes);
    move_down(4, out[j].codes);
  }
  for (int j = 0; j < 16; ++j) {
    const int low = j < 8 ? sc[j] & 15 : sc[j - 8] >> 4;
    const int high = sc[8 + j % 4] >> (2 * (j / 4)) & 3;
    out[j / 2].scale[j % 2] = d * static_cast<float>((low | high << 4) - 32);
    out[j / 2].min[j % 2] = 0;
  }
}

// Scale and minimum j of 12 bytes with eight of each, 6 bits wide.
void scale_min(Byte sc, int j, int& scale, int& min) {
  if (j < 4) {
    scale = sc[j] & 63;
    min = sc[j + 4] & 63;
    return;
  }
  scale = (sc[j + 4] & 15) | (sc[j - 4] >> 6) << 4;
  min = sc[j + 4] >> 4 | (sc[j] >> 6) << 4;
}

// Q4_K and Q5_K: `high` holds the fifth bits, or is null.
void decode_k_minima(Byte p, Byte high, Byte qs, CodedBlock* out) {
  const float d = half_at(p), dmin = half_at(p + 2);
  for (int j = 0; j < 8; ++j) {
    int scale, min;
    scale_min(p + 4, j, scale, min);
    set_scale(out[j], d * static_cast<float>(scale), -(dmin * static_cast<float>(min)));
    const Byte pair = qs + 32 * (j / 2);
    j % 2 == 0 ? read_bits<0, 4>(pair, out[j].codes) : read_bits<4, 4>(pair, out[j].codes);
    if (high != nullptr) add_where(high, j, 16, out[j].codes);
  }
}

void decode_q4_k(const std::byte* block, CodedBlock* out) {
  const Byte p = bytes_of(block);
  decode_k_minima(p, nullptr, p + 16, out);
}

void decode_q5_k(const std::byte* block, CodedBlock* out) {
  const Byte p = bytes_of(block);
  decode_k_minima(p, p + 16, p + 48, out);
}

void decode_q6_k(const std::byte* block, CodedBlock* out) {
  const Byte ql = bytes_of(block), qh = ql + 128, sc = qh + 64;
  const float d = half_at(sc + 16);
  for (int half = 0; half < 2; ++half) {
    const Byte low = ql + 64 * half, high = qh + 32 * half;
    CodedBlock* const four = out + 4 * half;
    read_bits<0, 4>(low, four[0].codes);
    read_bits<0, 4>(low + 32, four[1].codes);
    read_bits<4, 4>(low, four[2].codes);
    read_bits<4, 4>(low + 32, four[3].codes);
    add_upper_two<0>(high, four[0].codes);
    add_upper_two<2>(high, four[1].codes);
    add_upper_two<4>(high, four[2].codes);
    add_upper_two<6>(high, four[3].codes);
    for (int i = 0; i < 4; ++i) move_down(32, four[i].codes);
  }
  for (int j = 0; j < 16; ++j) {
    out[j / 2].scale[j % 2] = d * static_cast<float>(static_cast<int8_t>(sc[j]));
    out[j / 2].min[j % 2] = 0;
  }
}

constexpr BlockType kTypes[] = {
    {"F32", 0, 1, 4, DType::kF32, nullptr, kFormatF32},
    {"F16", 1, 1, 2, DType::kF16, nullptr, kFormatF16},
    {"BF16", 30, 1, 2, DType::kBF16, nullptr, kFormatBF16},
    {"Q4_0", 2, 32, 18, DType::kF32, decode_q4_0, kCodedInt4},
    {"Q4_1", 3, 32, 20, DType::kF32, decode_q4_1, kCodedInt4Minima},
    {"Q5_0", 6, 32, 22, DType::kF32, decode_q5_0, kCodedInt8},
    {"Q5_1", 7, 32, 24, DType::kF32, decode_q5_1, kCodedInt8Halves, kCodedInt6Minima},
    {"Q8_0", 8, 32, 34, DType::kF32, decode_q8_0, kCodedInt8},
    {"IQ4_NL", 20, 32, 18, DType::kF32, decode_iq4_nl, kCodedInt8},
    {"MXFP4", 39, 32, 17, DType::kF32, decode_mxfp4, kCodedInt8},
    {"Q2_K", 10, 256, 84, DType::kF32, decode_q2_k, kCodedInt8Halves},
    {"Q3_K", 11, 256, 110, DType::kF32, decode_q3_k, kCodedInt8Halves, kCodedInt6Halves},
    {"Q4_K", 12, 256, 144, DType::kF32, decode_q4_k, kCodedInt4Minima},
    {"Q5_K", 13, 256, 176, DType::kF32, decode_q5_k, kCodedInt8Halves, kCodedInt6Minima},
    {"Q6_K", 14, 256, 210, DType::kF32, decode_q6_k, kCodedInt8Halves, kCodedInt6Halves},
};

struct UnreadType {
  uint32_t id;
  const char* name;
};
constexpr UnreadType kUnread[] = {
    {9, "Q8_1"},   {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"},
    {19, "IQ1_S"}, {21, "IQ3_S"}, {22, "IQ2_S"},   {23, "IQ4_XS"}, {24, "I8"},
    {25, "I16"},   {26, "I32"},   {27, "I64"},     {28, "F64"},    {29, "IQ1_M"},
    {34, "TQ1_0"}, {35, "TQ2_0"}, {40, "NVFP4"},   {41, "Q1_0"},   {42, "Q2_0"},
};

}  // namespace

std::span<const BlockType> block_types() { return kTypes; }

const BlockType* find_block_type(uint32_t id) {
  const auto* at = std::find_if(std::begin(kTypes), std::end(kTypes),
                                [&](const BlockType& t) { return t.id == id; });
  return at == std::end(kTypes) ? nullptr : at;
}

const char* unread_type_name(uint32_t id) {
  const auto* at = std::find_if(std::begin(kUnread), std::end(kUnread),
                                [&](const UnreadType& t) { return t.id == id; });
  return at == std::end(kUnread) ? "of no known name" : at->name;
}

}  // namespace inferd
