// See rope.h. Frequencies are computed in double and rounded once.
#include "models/config/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.h"

namespace inferd {
namespace {

RopeConfig::Type read_type(const ConfigReader& r) {
  const std::string name = r.string("rope_type", r.string("type", "default"));
  if (name == "default") return RopeConfig::Type::kDefault;
  if (name == "linear") return RopeConfig::Type::kLinear;
  if (name == "llama3") return RopeConfig::Type::kLlama3;
  if (name == "longrope" || name == "su") return RopeConfig::Type::kLongRope;
  if (name == "yarn") return RopeConfig::Type::kYarn;
  r.unsupported("the rope type " + in_quotes(name) +
                " is not supported; default, linear, llama3, longrope and yarn are");
}

void read_long_rope(RopeConfig& rope, const ConfigReader& root, const ConfigReader& r) {
  const size_t count = static_cast<size_t>(rope.rotary_dim / 2);
  rope.short_factors = r.numbers("short_factor", 1024);
  rope.long_factors = r.numbers("long_factor", 1024);
  if (rope.short_factors.size() != count || rope.long_factors.size() != count) {
    r.fail(format("short_factor and long_factor must hold %zu numbers each, and hold %zu and %zu",
                  count, rope.short_factors.size(), rope.long_factors.size()));
  }
  const int64_t nested =
      r.integer("original_max_position_embeddings", 1, 1 << 24, rope.max_positions);
  rope.original_max_positions =
      root.integer("original_max_position_embeddings", 1, 1 << 24, nested);
  const double ratio =
      static_cast<double>(rope.max_positions) / static_cast<double>(rope.original_max_positions);
  rope.factor = ratio > 1 ? ratio : r.number("factor", 0.01, 1e6, 1.0);
  if (r.find("attention_factor") != nullptr)
    rope.attention_factor = r.number("attention_factor", 0.01, 100);
}

void read_yarn(RopeConfig& rope, const ConfigReader& r) {
  rope.factor = r.number("factor", 1, 1e6);
  rope.original_max_positions =
      r.integer("original_max_position_embeddings", 1, 1 << 24, rope.max_positions);
  rope.beta_fast = r.number("beta_fast", 1e-3, 1e6, 32.0);
  rope.beta_slow = r.number("beta_slow", 1e-3, 1e6, 1.0);
  // Where they are equal, as in Kimi K2, the ramp is between two neighbours.
  if (rope.beta_fast < rope.beta_slow) r.fail("beta_fast must not be below beta_slow");
  rope.whole_ramp = r.boolean("truncate", true);
  rope.mscale = r.number("mscale", 0, 100, 0.0);
  rope.mscale_all_dim = r.number("mscale_all_dim", 0, 100, 0.0);
  if (r.find("attention_factor") != nullptr)
    rope.attention_factor = r.number("attention_factor", 0.01, 100);
  if (rope.theta <= 1) r.fail("rope_theta must be above 1 for yarn");
}

// Frequencies whose wavelength is short against the original context stay, long ones are divided,
// between them a linear ramp.
double llama3_scaled(const RopeConfig& rope, double freq) {
  const double wavelength = 2 * std::numbers::pi / freq;
  const double original = static_cast<double>(rope.original_max_positions);
  if (wavelength < original / rope.high_freq_factor) return freq;
  if (wavelength > original / rope.low_freq_factor) return freq / rope.factor;
  const double smooth = (original / wavelength - rope.low_freq_factor) /
                        (rope.high_freq_factor - rope.low_freq_factor);
  return (1 - smooth) * freq / rope.factor + smooth * freq;
}

// Frequencies that turn often within the original context stay, those that hardly turn are divided;
// between them a linear ramp over the number of the frequency.
double yarn_scaled(const RopeConfig& rope, double freq, int32_t i) {
  // The number, as a fraction, of the frequency that turns so often.
  const auto number = [&](double turns) {
    const double original = static_cast<double>(rope.original_max_positions);
    return rope.rotary_dim * std::log(original / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(rope.theta));
  };
  double first = number(rope.beta_fast), last = number(rope.beta_slow);
  if (rope.whole_ramp) first = std::floor(first), last = std::ceil(last);
  first = std::max(first, 0.0);
  last = std::min(last, static_cast<double>(rope.rotary_dim - 1));
  if (first == last) last += 0.001;
  const double divided = std::clamp((i - first) / (last - first), 0.0, 1.0);
  return divided * freq / rope.factor + (1 - divided) * freq;
}

double yarn_attention_factor(const RopeConfig& rope) {
  if (rope.attention_factor) return *rope.attention_factor;
  if (rope.mscale == 0 || rope.mscale_all_dim == 0) return yarn_scale(rope.factor);
  return yarn_scale(rope.factor, rope.mscale) / yarn_scale(rope.factor, rope.mscale_all_dim);
}

}  // namespace

RopeConfig read_rope(const ConfigReader& root, int32_t head_dim, int64_t max_positions) {
  const Json* newer = root.find("rope_parameters");
  const Json* older = root.find("rope_scaling");
  const Json empty;
  const char* key = newer != nullptr ? "rope_parameters" : "rope_scaling";
  const Json& object = newer != nullptr ? *newer : older != nullptr ? *older : empty;
  const ConfigReader r = root.nested(key, object);
  if ((newer != nullptr || older != nullptr) && !object.is(Json::Kind::kObject))
    root.fail(format("%s must be an object", key));
  return read_rope(root, r, head_dim, max_positions);
}

RopeConfig read_rope(const ConfigReader& root, const ConfigReader& r, int32_t head_dim,
                     int64_t max_positions) {
  RopeConfig rope;
  rope.head_dim = head_dim;
  rope.max_positions = max_positions;
  rope.type = read_type(r);
  rope.theta = r.number("rope_theta", 1, 1e15, root.number("rope_theta", 1, 1e15, 10000.0));
  const double partial = r.number("partial_rotary_factor", 0.01, 1,
                                  root.number("partial_rotary_factor", 0.01, 1, 1.0));
  rope.rotary_dim = static_cast<int32_t>(head_dim * partial);
  if (rope.rotary_dim < 2 || rope.rotary_dim % 2 != 0)
    r.fail(format("the rotary dimension %d is not a positive even number", rope.rotary_dim));
  switch (rope.type) {
    case RopeConfig::Type::kDefault:
      break;
    case RopeConfig::Type::kLinear:
      rope.factor = r.number("factor", 0.01, 1e6);
      break;
    case RopeConfig::Type::kLongRope:
      read_long_rope(rope, root, r);
      break;
    case RopeConfig::Type::kYarn:
      read_yarn(rope, r);
      break;
    case RopeConfig::Type::kLlama3:
      rope.factor = r.number("factor", 0.01, 1e6);
      rope.low_freq_factor = r.number("low_freq_factor", 1e-3, 1e6);
      rope.high_freq_factor = r.number("high_freq_factor", 1e-3, 1e6);
      rope.original_max_positions = r.integer("original_max_position_embeddings", 1, 1 << 24);
      if (rope.high_freq_factor <= rope.low_freq_factor)
        r.fail("high_freq_factor must be above low_freq_factor");
  }
  return rope;
}

double yarn_scale(double factor, double weight) {
  return factor <= 1 ? 1 : 0.1 * weight * std::log(factor) + 1;
}

RopeFrequencies rope_frequencies(const RopeConfig& rope, int64_t max_len) {
  RopeFrequencies out{std::vector<float>(static_cast<size_t>(rope.head_dim / 2), 0.0f), 1.0f};
  const bool beyond = max_len > rope.original_max_positions;
  for (int32_t i = 0; i < rope.rotary_dim / 2; ++i) {
    double freq = std::pow(rope.theta, -2.0 * i / rope.rotary_dim);
    const size_t at = static_cast<size_t>(i);
    switch (rope.type) {
      case RopeConfig::Type::kDefault:
        break;
      case RopeConfig::Type::kLinear:
        freq /= rope.factor;
        break;
      case RopeConfig::Type::kLlama3:
        freq = llama3_scaled(rope, freq);
        break;
      case RopeConfig::Type::kLongRope:
        freq /= beyond ? rope.long_factors[at] : rope.short_factors[at];
        break;
      case RopeConfig::Type::kYarn:
        freq = yarn_scaled(rope, freq, i);
    }
    out.inv_freq[at] = static_cast<float>(freq);
  }
  if (rope.type == RopeConfig::Type::kLongRope) {
    const double derived =
        rope.factor <= 1
            ? 1
            : std::sqrt(1 + std::log(rope.factor) /
                                std::log(static_cast<double>(rope.original_max_positions)));
    out.attention_factor = static_cast<float>(rope.attention_factor.value_or(derived));
  }
  if (rope.type == RopeConfig::Type::kYarn)
    out.attention_factor = static_cast<float>(yarn_attention_factor(rope));
  return out;
}

}  // namespace inferd
