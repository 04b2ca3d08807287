// All memory of one call in one block, so that a test can compare every byte of it: outputs, inputs that
// must not change, and the gaps between them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "bitexact.h"

namespace bitexact_test {

inline int64_t size_of_dtype(int32_t dtype) {
  switch (dtype) {
    case BITEXACT_DTYPE_FLOAT16:
    case BITEXACT_DTYPE_BFLOAT16: return 2;
    case BITEXACT_DTYPE_FLOAT32:
    case BITEXACT_DTYPE_INT32: return 4;
    default: return 8;
  }
}

class Arena {
 public:
  explicit Arena(uint64_t seed) : random_(seed) {}

  // Room for n elements, `skew` elements beyond a multiple of 256 bytes; filled with random bits.
  int64_t reserve(int64_t n, int32_t dtype, int64_t skew = 0) {
    const int64_t size = size_of_dtype(dtype),
                  offset = static_cast<int64_t>(bytes_.size()) + 256 + skew * size;
    bytes_.resize(static_cast<size_t>((offset + n * size + 511) / 256 * 256));
    for (size_t i = static_cast<size_t>(offset); i < static_cast<size_t>(offset + n * size); ++i) {
      bytes_[i] = static_cast<uint8_t>(random_());
    }
    return offset;
  }

  template <class T>
  T* at(int64_t offset) {
    return reinterpret_cast<T*>(bytes_.data() + offset);
  }
  std::vector<uint8_t>& bytes() { return bytes_; }
  const std::vector<uint8_t>& bytes() const { return bytes_; }
  std::mt19937_64& random() { return random_; }

  // A small number, an arbitrary bit pattern or a special value, by chance.
  void put_value(int64_t offset, int64_t index, int32_t dtype) {
    const uint64_t kind = random_() % 16;
    if (kind == 0) return;  // random bits, as reserved
    const double value = (static_cast<double>(random_() >> 11) * 0x1p-53 - 0.5) * (kind < 4 ? 200.0 : 4.0);
    const float f = static_cast<float>(value);
    uint32_t bits;
    std::memcpy(&bits, &f, 4);
    if (kind == 1) bits = specials_[random_() % 12] | static_cast<uint32_t>(random_() & 1) << 31;
    switch (dtype) {
      case BITEXACT_DTYPE_BFLOAT16: at<uint16_t>(offset)[index] = static_cast<uint16_t>(bits >> 16); break;
      case BITEXACT_DTYPE_FLOAT16: at<uint16_t>(offset)[index] = half(bits, kind == 1); break;
      case BITEXACT_DTYPE_FLOAT32: at<uint32_t>(offset)[index] = bits; break;
      default: at<double>(offset)[index] = kind == 1 ? static_cast<double>(float_of(bits)) : value; break;
    }
  }

 private:
  static float float_of(uint32_t bits) {
    float f;
    std::memcpy(&f, &bits, 4);
    return f;
  }
  static uint16_t half(uint32_t bits, bool special) {
    if (special) return static_cast<uint16_t>(bits >> 16);  // some pattern of the other format
    const int exponent = static_cast<int>(bits >> 23 & 0xff) - 127 + 15;
    const uint32_t sign = bits >> 31 << 15;
    if (exponent <= 0) return static_cast<uint16_t>(sign | (bits >> 20 & 7));
    return static_cast<uint16_t>(sign | static_cast<uint32_t>(exponent) << 10 | (bits >> 13 & 0x3ff));
  }
  static constexpr uint32_t specials_[12] = {0,          1,          0x007fffff, 0x00800000,
                                             0x7f7fffff, 0x7f800000, 0x7fc00000, 0x7f800001,
                                             0x3f800000, 0x00010000, 0x7f7f0000, 0x7fff0000};

  std::vector<uint8_t> bytes_;
  std::mt19937_64 random_;
};

// Equal to the last byte; says where they first differ.
inline ::testing::AssertionResult same_bytes(const std::vector<uint8_t>& actual,
                                             const std::vector<uint8_t>& expected) {
  if (actual == expected) return ::testing::AssertionSuccess();
  size_t count = 0, first = actual.size();
  for (size_t i = 0; i < actual.size() && i < expected.size(); ++i) {
    if (actual[i] == expected[i]) continue;
    if (count++ == 0) first = i;
  }
  const size_t word = first / 4 * 4;
  uint32_t a = 0, e = 0;
  std::memcpy(&a, actual.data() + word, 4);
  std::memcpy(&e, expected.data() + word, 4);
  return ::testing::AssertionFailure() << count << " bytes differ, first in the word at byte " << word
                                       << ": got 0x" << std::hex << a << ", expected 0x" << e;
}

}  // namespace bitexact_test
