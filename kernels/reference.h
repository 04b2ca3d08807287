// The built-in reference: plain scalar arithmetic, one element or one pair at a time, rounding done on
// integers. Written for being obviously right; the same source serves the GPU and the host, and shares
// nothing with the fused kernels.
#pragma once

#include "reference_numeric.h"

namespace bitexact {

// One step of splitmix64.
BITEXACT_BOTH inline uint64_t mix(uint64_t z) {
  z += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

// One output's share of a digest, which is their sum modulo 2^64 and so knows no order; `place` names the output.
BITEXACT_BOTH inline uint64_t digest_share(uint64_t place, uint64_t bits) { return mix(place << 32 | bits); }

namespace reference {

// -------------------------------------------------------------------------------- silu_mul --

BITEXACT_BOTH inline int64_t count(const SiluMulArgs& a) { return a.batches * a.rows * a.cols; }

// As torch.clamp has it: a NaN is neither above nor below, and stays.
BITEXACT_BOTH inline float at_most(float x, float limit) { return x > limit ? limit : x; }
BITEXACT_BOTH inline float at_least(float x, float limit) { return x < limit ? limit : x; }

BITEXACT_BOTH inline uint64_t silu_mul(uint64_t gate, uint64_t up, const SiluMulArgs& a) {
  const float limit = a.compute_float32 ? a.limit : rounded(a.limit, a.dtype);
  float g = widen(gate, a.dtype), u = widen(up, a.dtype);
  if (a.clamp == Clamp::before) g = at_most(g, limit);
  if (a.clamp != Clamp::none) u = at_most(at_least(u, -limit), limit);
  const float e = exp32(-g);
  float s;
  if (a.silu == Silu::sigmoid) {
    s = mul(g, rounded(divide(1.0f, add(1.0f, e)), a.dtype));
  } else if (a.silu == Silu::candle) {
    s = divide(g, rounded(add(1.0f, rounded(e, a.dtype)), a.dtype));
  } else {
    s = divide(a.silu == Silu::glu ? 1.0f : g, add(1.0f, e));
  }
  if (!a.compute_float32) s = rounded(s, a.dtype);
  if (a.clamp == Clamp::after) s = at_most(s, limit);
  return round_bits(mul(s, u), a.dtype);
}

BITEXACT_BOTH inline void silu_mul_at(const SiluMulArgs& a, int64_t index) {
  const int64_t c = index % a.cols, r = index / a.cols % a.rows, b = index / a.cols / a.rows;
  const uint64_t gate = load_bits(a.gate.data, b * a.gate.batch + r * a.gate.row + c, a.dtype);
  const uint64_t up = load_bits(a.up.data, b * a.up.batch + r * a.up.row + c, a.dtype);
  store_bits(a.out.data, b * a.out.batch + r * a.out.row + c, a.dtype, silu_mul(gate, up, a));
}

// ------------------------------------------------------------------------------------ rope --

struct Pair64 {
  uint64_t first, second;  // bits
};

// C is float for 16-bit and float32 compute dtypes, double for float64.
BITEXACT_BOTH inline float round_compute(float x, const RopeArgs& a) { return rounded(x, a.compute_dtype); }
BITEXACT_BOTH inline double round_compute(double x, const RopeArgs&) { return x; }

BITEXACT_BOTH inline uint64_t round_result(float x, const RopeArgs& a) { return round_bits(x, a.dtype); }
BITEXACT_BOTH inline uint64_t round_result(double x, const RopeArgs& a) {
  const uint64_t single = narrow(bits_as<uint64_t>(x), format_of(Dtype::float64), format_of(Dtype::float32));
  return round_result(bits_as<float>(static_cast<uint32_t>(single)), a);
}

// product + other, `product` = p * q either rounded first or fused into the sum.
template <class C>
BITEXACT_BOTH C combine(C p, C q, C r, C s, bool fuse_first, const RopeArgs& a) {
  C sum;
  if (a.combine == Combine::separate) {
    sum = add(round_compute(mul(p, q), a), round_compute(mul(r, s), a));
    if (a.sum_from_zero) sum = add(sum, C(0));
  } else if (fuse_first) {
    sum = fused(p, q, round_compute(mul(r, s), a));
  } else {
    sum = fused(r, s, round_compute(mul(p, q), a));
  }
  return round_compute(sum, a);
}

template <class C>
BITEXACT_BOTH Pair64 rotate(C x1, C x2, C c1, C s1, C c2, C s2, const RopeArgs& a) {
  const bool complex_first = a.combine == Combine::complex || a.combine == Combine::complex_alt;
  const bool cos_second = a.combine == Combine::complex_alt || a.combine == Combine::addcmul_x1;
  return {round_result(combine(x1, c1, -x2, s1, complex_first, a), a),
          round_result(combine(x2, c2, x1, s2, cos_second, a), a)};
}

BITEXACT_BOTH inline int64_t member(Pairing pairing, int64_t j, int64_t half, bool second) {
  return pairing == Pairing::half ? j + (second ? half : 0) : 2 * j + (second ? 1 : 0);
}

template <class C>
BITEXACT_BOTH C number(uint64_t bits, Dtype dtype) {
  return dtype == Dtype::float64 ? static_cast<C>(bits_as<double>(bits)) : static_cast<C>(widen(bits, dtype));
}

// Units of work: the pairs of a head, then the elements of its tail.
BITEXACT_BOTH inline int64_t units_a_head(const RopeArgs& a) { return a.head_dim - a.rotary_dim / 2; }
BITEXACT_BOTH inline int64_t count(const RopeArgs& a) {
  return a.batches * a.tokens * (a.heads[0] + a.heads[1]) * units_a_head(a);
}

// The result of pair j, or NaN for both where the position lies outside the table.
template <class C>
BITEXACT_BOTH Pair64 rotated(const RopeArgs& a, uint64_t x1, uint64_t x2, int64_t table_at_cos,
                             int64_t table_at_sin, int64_t j) {
  const int64_t half = a.rotary_dim / 2;
  const int64_t e1 = a.full_table ? member(a.pairing_in, j, half, false) : j;
  const int64_t e2 = a.full_table ? member(a.pairing_in, j, half, true) : j;
  auto entry = [&](const Table& table, int64_t at, int64_t e) {
    return number<C>(load_bits(table.data, at + e * table.element, a.table_dtype), a.table_dtype);
  };
  const C c1 = entry(a.cos, table_at_cos, e1), c2 = entry(a.cos, table_at_cos, e2);
  const C s1 = entry(a.sin, table_at_sin, e1), s2 = entry(a.sin, table_at_sin, e2);
  return rotate<C>(number<C>(x1, a.dtype), number<C>(x2, a.dtype), c1, a.inverse ? -s1 : s1, c2,
                   a.inverse ? -s2 : s2, a);
}

// Work unit `index`. Returns true where a row was found out of range, once a token.
BITEXACT_BOTH inline bool rope_at(const RopeArgs& a, int64_t index) {
  const int64_t units = units_a_head(a), heads = a.heads[0] + a.heads[1], half = a.rotary_dim / 2;
  const int64_t unit = index % units, h = index / units % heads;
  const int64_t t = index / units / heads % a.tokens, b = index / units / heads / a.tokens;
  const bool is_k = h >= a.heads[0];
  const int64_t n = is_k ? h - a.heads[0] : h;
  const Heads &in = a.in[is_k], &out = a.out[is_k];
  const int64_t from = b * in.batch + t * in.token + n * in.head;
  const int64_t to = b * out.batch + t * out.token + n * out.head;
  int64_t row = t;
  if (a.positions.data != nullptr) {
    const uint64_t bits =
        load_bits(a.positions.data, b * a.positions.batch + t * a.positions.token, a.positions.dtype);
    row = a.positions.dtype == Dtype::int32 ? static_cast<int32_t>(bits) : static_cast<int64_t>(bits);
  }
  const bool outside = a.positions.data != nullptr && (row < 0 || row >= a.table_rows);
  if (unit >= half) {
    const int64_t d = a.rotary_dim + unit - half;
    store_bits(out.data, to + d, a.dtype, load_bits(in.data, from + d, a.dtype));
  } else {
    Pair64 result;
    if (outside) {
      result.first = result.second = a.dtype == Dtype::float32 ? 0x7fffffff : 0x7fff;
    } else {
      const uint64_t x1 = load_bits(in.data, from + member(a.pairing_in, unit, half, false), a.dtype);
      const uint64_t x2 = load_bits(in.data, from + member(a.pairing_in, unit, half, true), a.dtype);
      const int64_t cos = b * a.cos.batch + row * a.cos.token + n * a.cos.head;
      const int64_t sin = b * a.sin.batch + row * a.sin.token + n * a.sin.head;
      result = a.compute_dtype == Dtype::float64 ? rotated<double>(a, x1, x2, cos, sin, unit)
                                                 : rotated<float>(a, x1, x2, cos, sin, unit);
    }
    store_bits(out.data, to + member(a.pairing_out, unit, half, false), a.dtype, result.first);
    store_bits(out.data, to + member(a.pairing_out, unit, half, true), a.dtype, result.second);
  }
  return outside && unit == 0 && h == 0;
}

// --------------------------------------------------------------------------------- compare --

enum class Difference { none, nan_payload, value };

struct Compared {
  Difference difference;
  uint64_t actual, expected, share;
};

BITEXACT_BOTH inline bool is_nan(uint64_t bits, Dtype dtype) {
  const Format f = format_of(dtype);
  const uint64_t infinity = ((uint64_t{1} << f.exponent_bits) - 1) << f.fraction_bits;
  return (bits & (infinity | (infinity - 1) | 1)) > infinity;
}

BITEXACT_BOTH inline uint64_t element(const View& x, int64_t index, Dtype dtype) {
  int64_t i = x.first + index;
  const int64_t i3 = i % x.shape[3];
  i /= x.shape[3];
  const int64_t i2 = i % x.shape[2];
  i /= x.shape[2];
  const int64_t i1 = i % x.shape[1], i0 = i / x.shape[1];
  return load_bits(x.data, i0 * x.stride[0] + i1 * x.stride[1] + i2 * x.stride[2] + i3, dtype);
}

BITEXACT_BOTH inline Compared compare_at(const CompareArgs& a, int64_t index) {
  Compared c{Difference::none, element(a.actual, index, a.dtype), element(a.expected, index, a.dtype), 0};
  if (a.first_place != no_place)
    c.share = digest_share(a.first_place + static_cast<uint64_t>(index), c.expected);
  if (c.actual != c.expected) {
    const bool both = is_nan(c.actual, a.dtype) && is_nan(c.expected, a.dtype);
    c.difference = both ? Difference::nan_payload : Difference::value;
  }
  return c;
}

}  // namespace reference
}  // namespace bitexact
