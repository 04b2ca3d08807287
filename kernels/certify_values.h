// The numbers that a certificate feeds to kernels, and the digest of what comes out.
#pragma once

#include "reference.h"

namespace bitexact {

// Of a certificate's digest, to which all NaNs are one value.
BITEXACT_BOTH inline uint64_t digest_share(uint64_t key, uint64_t value, Dtype dtype) {
  const uint64_t nan = dtype == Dtype::float32 ? 0x7fffffff : 0x7fff;
  return digest_share(key, reference::is_nan(value, dtype) ? nan : value);
}

// ---------------------------------------------------------------------------------- values --

namespace certify {

BITEXACT_BOTH inline uint64_t sign_bit(Dtype dtype) { return uint64_t{1} << (8 * size_of(dtype) - 1); }
BITEXACT_BOTH inline uint64_t exponent_bias(Dtype dtype) {
  return (uint64_t{1} << (reference::format_of(dtype).exponent_bits - 1)) - 1;
}
BITEXACT_BOTH inline uint64_t one(Dtype dtype) {
  return exponent_bias(dtype) << reference::format_of(dtype).fraction_bits;
}
BITEXACT_BOTH inline uint64_t any_bits(Dtype dtype, uint64_t h) { return h >> (64 - 8 * size_of(dtype)); }

// Between 2^-4 and 2^4, either sign; `fraction` in its low bits.
BITEXACT_BOTH inline uint64_t moderate(Dtype dtype, uint64_t h, uint64_t fraction) {
  const int bits = reference::format_of(dtype).fraction_bits;
  const uint64_t exponent = exponent_bias(dtype) - 4 + (h >> 60 & 7);
  return (h >> 63) * sign_bit(dtype) | exponent << bits | (fraction & ((uint64_t{1} << bits) - 1));
}

// Zero, the ends of the subnormal and the normal range, infinity, NaNs; either sign.
BITEXACT_BOTH inline uint64_t special(Dtype dtype, uint64_t h) {
  const uint64_t least_normal = uint64_t{1} << reference::format_of(dtype).fraction_bits;
  const uint64_t infinity = sign_bit(dtype) - least_normal;
  const uint64_t sign = (h >> 63) * sign_bit(dtype);
  switch (h >> 60 & 7) {
    case 0: return sign;
    case 1: return sign | 1;
    case 2: return sign | (least_normal - 1);
    case 3: return sign | least_normal;
    case 4: return sign | (infinity - 1);
    case 5: return sign | infinity;
    case 6: return sign | infinity | least_normal >> 1;
    default: return sign | infinity | 1;
  }
}

// By the low bits of h: how one number of a sample is made.
BITEXACT_BOTH inline uint64_t sample(Dtype dtype, uint64_t h) {
  switch (h & 15) {
    case 0:
    case 1: return any_bits(dtype, h);
    case 2: return special(dtype, h);
    case 3: return moderate(dtype, h, 0);  // a power of two keeps the other factor's bits
    case 4: return moderate(dtype, h, h << 8 & h << 20 & h << 33);  // few bits: products and sums hit ties
    default: return moderate(dtype, h, h >> 8);
  }
}

}  // namespace certify

}  // namespace bitexact
