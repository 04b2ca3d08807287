// Division by a number that is the same for all threads: a product and a shift. Plain C++.
#pragma once

#include <cstdint>

namespace bitexact {

constexpr int64_t most_divided = int64_t{1} << 31;

// n / divisor = n * factor >> (32 + shift), exact for n < most_divided and divisor > 1; factor 0 stands for the divisor
// 1, which has no such factor.
struct Reciprocal {
  uint32_t factor;
  uint8_t shift;
};

inline Reciprocal reciprocal(int64_t divisor) {
  if (divisor <= 1) return {0, 0};
  uint8_t shift = 0;
  while (int64_t{2} << shift < divisor) ++shift;
  return {static_cast<uint32_t>(((int64_t{1} << 32 << shift) + divisor - 1) / divisor), shift};
}

}  // namespace bitexact
