// Several matrices in one weight, one below the other.
#pragma once
#include <cstdint>

namespace inferd {

// Rows from one matrix of `rows` rows to the next, so that each begins where repacked layouts
// begin.
constexpr int64_t stacked_rows(int64_t rows) { return (rows + 63) / 64 * 64; }

}  // namespace inferd
