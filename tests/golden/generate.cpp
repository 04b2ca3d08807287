#include "generate.h"

#include <cstring>
#include <stdexcept>

#include "bitexact.h"

namespace bitexact_golden {
namespace {

struct Format {
  int size, exponent_bits, mantissa_bits;
  uint64_t bias() const { return (uint64_t{1} << (exponent_bits - 1)) - 1; }
  uint64_t infinity() const { return ((uint64_t{1} << exponent_bits) - 1) << mantissa_bits; }
  uint64_t sign() const { return uint64_t{1} << (exponent_bits + mantissa_bits); }
};

Format format_of(int32_t dtype) {
  switch (dtype) {
    case BITEXACT_DTYPE_FLOAT32: return {4, 8, 23};
    case BITEXACT_DTYPE_FLOAT16: return {2, 5, 10};
    case BITEXACT_DTYPE_BFLOAT16: return {2, 8, 7};
    case BITEXACT_DTYPE_FLOAT64: return {8, 11, 52};
    case BITEXACT_DTYPE_INT32: return {4, 0, 0};
    case BITEXACT_DTYPE_INT64: return {8, 0, 0};
    default: throw std::invalid_argument("golden: unknown dtype");
  }
}

std::vector<uint64_t> special_patterns(const Format& f) {
  const uint64_t one = f.bias() << f.mantissa_bits, step = uint64_t{1} << f.mantissa_bits;
  std::vector<uint64_t> patterns = {0,
                                    1,
                                    step / 2 + 1,
                                    step - 1,
                                    step,
                                    step * 2 + 1,
                                    one / 2 + 1,
                                    one - step,
                                    one - 1,
                                    one,
                                    one + 1,
                                    one + step + step / 2,
                                    (f.bias() + 7) << f.mantissa_bits | step / 2,
                                    f.infinity() - step - 1,
                                    f.infinity() - 1,
                                    f.infinity(),
                                    f.infinity() + 1,
                                    f.infinity() + step / 2};
  const size_t positive = patterns.size();
  for (size_t i = 0; i < positive; ++i) patterns.push_back(f.sign() | patterns[i]);
  return patterns;
}

uint64_t uniform_bits(const Format& f, uint64_t w, int64_t scale) {
  uint64_t exponent = f.bias() + static_cast<uint64_t>(scale - 1);
  for (uint64_t field = (w >> 52 & 0x7ff) | 0x800; field % 2 == 0; field /= 2) --exponent;
  const uint64_t mantissa = (w & ((uint64_t{1} << 52) - 1)) >> (52 - f.mantissa_bits);
  return (w >> 63 != 0 ? f.sign() : 0) | exponent << f.mantissa_bits | mantissa;
}

}  // namespace

int64_t size_of(int32_t dtype) { return format_of(dtype).size; }

uint64_t mix(uint64_t z) {
  z += 0x9e3779b97f4a7c15;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
  z = (z ^ z >> 27) * 0x94d049bb133111eb;
  return z ^ z >> 31;
}

std::vector<uint8_t> generate(const Fill& fill, int32_t dtype, int64_t count) {
  const Format f = format_of(dtype);
  const std::vector<uint64_t> patterns =
      fill.kind == Fill::special ? special_patterns(f) : std::vector<uint64_t>{};
  const uint64_t start = mix(fill.seed);
  auto word = [&](int64_t i) { return mix(start + static_cast<uint64_t>(i)); };
  auto element = [&](int64_t i) -> uint64_t {
    switch (fill.kind) {
      case Fill::uniform: return uniform_bits(f, word(i), fill.scale);
      case Fill::bits: return word(i);
      case Fill::special: return patterns[word(i) % patterns.size()];
      case Fill::index: return word(i) % static_cast<uint64_t>(fill.modulus);
      case Fill::rotation: {
        const int64_t matrix = i / 4, part = i % 4;
        const bool sine = part == 1 || part == 2;
        return uniform_bits(f, word(2 * matrix + (sine ? 1 : 0)), fill.scale) ^ (part == 1 ? f.sign() : 0);
      }
    }
    throw std::invalid_argument("golden: unknown fill");
  };
  std::vector<uint8_t> bytes;
  bytes.reserve(static_cast<size_t>(count * f.size));
  for (int64_t i = 0; i < count; ++i) {
    uint64_t value = element(i);
    for (int byte = 0; byte < f.size; ++byte, value >>= 8) bytes.push_back(static_cast<uint8_t>(value));
  }
  return bytes;
}

}  // namespace bitexact_golden
