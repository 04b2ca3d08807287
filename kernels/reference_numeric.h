// Numbers for the built-in reference: formats and rounding on integers, and single IEEE operations. The
// same source serves the GPU and the host.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "args.h"

#ifdef __CUDACC__
#define BITEXACT_BOTH __host__ __device__
#else
#define BITEXACT_BOTH
#endif

namespace bitexact {
namespace reference {

// -------------------------------------------------------------------------------- formats --

// An IEEE binary format by its widths. The bits of a number are (sign, exponent, fraction).
struct Format {
  int exponent_bits, fraction_bits;
};

BITEXACT_BOTH inline Format format_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::bfloat16: return {8, 7};
    case Dtype::float16: return {5, 10};
    case Dtype::float32: return {8, 23};
    default: return {11, 52};
  }
}

// Of a number that is not 0.
BITEXACT_BOTH inline int leading_zeros(uint64_t x) {
#ifdef __CUDA_ARCH__
  return __clzll(static_cast<long long>(x));
#else
  return __builtin_clzll(x);
#endif
}

// Bits of a wider format rounded to a narrower one: to nearest even, subnormals kept, every NaN becomes
// the positive one with all fraction bits set, as CUDA's conversions give it.
BITEXACT_BOTH inline uint64_t narrow(uint64_t bits, Format from, Format to) {
  const int from_bias = (1 << (from.exponent_bits - 1)) - 1, to_bias = (1 << (to.exponent_bits - 1)) - 1;
  const uint64_t sign = bits >> (from.exponent_bits + from.fraction_bits) & 1;
  const int64_t exponent = static_cast<int64_t>(bits >> from.fraction_bits) & ((1 << from.exponent_bits) - 1);
  const uint64_t fraction = bits & ((uint64_t{1} << from.fraction_bits) - 1);
  const uint64_t to_sign = sign << (to.exponent_bits + to.fraction_bits);
  const uint64_t infinity = ((uint64_t{1} << to.exponent_bits) - 1) << to.fraction_bits;
  if (exponent == (1 << from.exponent_bits) - 1) {
    return fraction != 0 ? infinity | ((uint64_t{1} << to.fraction_bits) - 1) : to_sign | infinity;
  }
  if (exponent == 0 && fraction == 0) return to_sign;
  // value = significand * 2^unit
  const uint64_t significand = exponent == 0 ? fraction : fraction | uint64_t{1} << from.fraction_bits;
  const int64_t unit = (exponent == 0 ? 1 : exponent) - from_bias - from.fraction_bits;
  const int64_t top = 63 - leading_zeros(significand);
  const int64_t least_unit = 1 - to_bias - to.fraction_bits;
  int64_t to_unit = unit + top - to.fraction_bits;
  if (to_unit < least_unit) to_unit = least_unit;
  const int64_t shift = to_unit - unit;
  if (shift > top + 1) return to_sign;  // below half of the least subnormal
  uint64_t rounded = significand >> shift;
  if (shift > 0) {
    const uint64_t rest = significand & ((uint64_t{1} << shift) - 1), tie = uint64_t{1} << (shift - 1);
    if (rest > tie || (rest == tie && (rounded & 1) != 0)) ++rounded;
  }
  // A carry out of the fraction moves into the exponent by itself.
  const uint64_t biased = static_cast<uint64_t>(to_unit + to.fraction_bits + to_bias);
  const uint64_t result = (biased << to.fraction_bits) + rounded - (uint64_t{1} << to.fraction_bits);
  return to_sign | (result > infinity ? infinity : result);
}

template <class To, class From>
BITEXACT_BOTH To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From), "same width");
  To to;
  memcpy(&to, &from, sizeof(to));
  return to;
}

// 16-bit formats to float32, exact.
BITEXACT_BOTH inline float widen(uint64_t bits, Dtype dtype) {
  if (dtype == Dtype::bfloat16) return bits_as<float>(static_cast<uint32_t>(bits) << 16);
  if (dtype == Dtype::float32) return bits_as<float>(static_cast<uint32_t>(bits));
  const uint32_t sign = static_cast<uint32_t>(bits >> 15) << 31, rest = static_cast<uint32_t>(bits) & 0x7fff;
  if (rest >= 0x7c00) return bits_as<float>(sign | 0x7f800000u | (rest & 0x3ff) << 13);
  if (rest >= 0x0400) return bits_as<float>(sign | ((rest << 13) + (uint32_t{127 - 15} << 23)));
  const float magnitude = static_cast<float>(rest) * (1.0f / 16777216.0f);  // subnormal: rest * 2^-24
  return bits_as<float>(bits_as<uint32_t>(magnitude) | sign);
}

BITEXACT_BOTH inline uint64_t round_bits(float x, Dtype to) {
  return narrow(bits_as<uint32_t>(x), format_of(Dtype::float32), format_of(to));
}
BITEXACT_BOTH inline float rounded(float x, Dtype to) {
  return to == Dtype::float32 ? x : widen(round_bits(x, to), to);
}

// ------------------------------------------------------------------------------ arithmetic --

// One IEEE operation each, to nearest even; intrinsics on the GPU, since operators may be contracted.
#ifdef __CUDA_ARCH__
BITEXACT_BOTH inline float mul(float a, float b) { return __fmul_rn(a, b); }
BITEXACT_BOTH inline float add(float a, float b) { return __fadd_rn(a, b); }
BITEXACT_BOTH inline float divide(float a, float b) { return __fdiv_rn(a, b); }
BITEXACT_BOTH inline float exp32(float x) { return expf(x); }
BITEXACT_BOTH inline float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
BITEXACT_BOTH inline double mul(double a, double b) { return __dmul_rn(a, b); }
BITEXACT_BOTH inline double add(double a, double b) { return __dadd_rn(a, b); }
BITEXACT_BOTH inline double fused(double a, double b, double c) { return __fma_rn(a, b, c); }
#else
inline float mul(float a, float b) { return a * b; }
inline float add(float a, float b) { return a + b; }
inline float divide(float a, float b) { return a / b; }
// CUDA's expf is a step above the nearest float32 at two inputs and a step below at another, which sigmoids in
// float16 show; at no other 16-bit input does any silu show where the two functions differ (silu_table proves
// it).
inline float exp32(float x) {
  const float e = std::exp(x);
  if (x == 0x1.6p-8f || x == 0x1.3p-7f) return std::nextafter(e, 2.0f);
  return x == 0x1.5p-7f ? std::nextafter(e, 0.0f) : e;
}
inline float fused(float a, float b, float c) { return std::fma(a, b, c); }
inline double mul(double a, double b) { return a * b; }
inline double add(double a, double b) { return a + b; }
inline double fused(double a, double b, double c) { return std::fma(a, b, c); }
#endif

BITEXACT_BOTH inline uint64_t load_bits(const void* data, int64_t at, Dtype dtype) {
  switch (size_of(dtype)) {
    case 2: return static_cast<const uint16_t*>(data)[at];
    case 4: return static_cast<const uint32_t*>(data)[at];
    default: return static_cast<const uint64_t*>(data)[at];
  }
}
BITEXACT_BOTH inline void store_bits(void* data, int64_t at, Dtype dtype, uint64_t bits) {
  switch (size_of(dtype)) {
    case 2: static_cast<uint16_t*>(data)[at] = static_cast<uint16_t>(bits); break;
    case 4: static_cast<uint32_t*>(data)[at] = static_cast<uint32_t>(bits); break;
    default: static_cast<uint64_t*>(data)[at] = bits;
  }
}

}  // namespace reference
}  // namespace bitexact
