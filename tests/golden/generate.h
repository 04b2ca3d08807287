// generate.py again, in C++: both must change together.
#pragma once

#include <cstdint>
#include <vector>

namespace bitexact_golden {

struct Fill {
  enum Kind { uniform, bits, special, index, rotation } kind;
  uint64_t seed;
  int64_t scale;    // uniform and rotation
  int64_t modulus;  // index
};

int64_t size_of(int32_t dtype);

// One step of splitmix64 from state z.
uint64_t mix(uint64_t z);

// The little-endian bytes of `count` elements.
std::vector<uint8_t> generate(const Fill& fill, int32_t dtype, int64_t count);

}  // namespace bitexact_golden
