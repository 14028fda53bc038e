// Rotary position embedding: reading its configuration, and the inverse frequencies that result.
//
// Types: default; linear (every frequency divided by `factor`); llama3 (long wavelengths divided,
// short ones kept, a ramp between); longrope (one factor per frequency, Phi-3); yarn (Peng et al.
// 2023: as llama3, with a ramp over frequencies instead of wavelengths, and larger scores).
// Formulas as published with the models and computed by transformers.
#pragma once
#include <vector>

#include "models/config/config.h"

namespace inferd {

// Reads rope_parameters, or rope_theta with rope_scaling, and partial_rotary_factor.
RopeConfig read_rope(const ConfigReader& reader, int32_t head_dim, int64_t max_positions);
// The same from `object`, for models with several; what it lacks is looked for in `root`.
RopeConfig read_rope(const ConfigReader& root, const ConfigReader& object, int32_t head_dim,
                     int64_t max_positions);

// By how much yarn makes cos and sin larger, and so scores twice: 0.1 weight ln(factor) + 1.
double yarn_scale(double factor, double weight = 1);

struct RopeFrequencies {
  std::vector<float> inv_freq;  // [head_dim / 2], zero beyond rotary_dim / 2
  float attention_factor;       // multiplies cos and sin
};

// `max_len` is the longest sequence served: with longrope it decides between the short and the long
// factors once and for all, since cached keys cannot be rotated again when a sequence grows past
// the original length.
RopeFrequencies rope_frequencies(const RopeConfig& rope, int64_t max_len);

}  // namespace inferd
