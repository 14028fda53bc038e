// The formats of weights that checkpoints are read from, by the names that people know, for
// `inferd doctor`.
#pragma once
#include <string>
#include <vector>

#include "core/weight_format.h"

namespace inferd {

struct StoredFormat {
  std::string name;
  // In which a backend keeps it where it can; one without scales: it is widened.
  WeightFormat kept;
};

// Quantized ones only.
std::vector<StoredFormat> stored_formats();

}  // namespace inferd
