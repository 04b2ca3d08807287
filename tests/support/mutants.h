// Fused kernels that are wrong in one known way, for the GPU and the host. Built for tests alone: a check
// that any of them passes is no check.
#pragma once

#include "reference.h"

namespace bitexact_test {

using namespace bitexact;

enum class Mutant : int {
  none,  // right: shows that it is the fault that is caught
  // silu_mul
  single_rounding,
  times_sigmoid,
  reciprocal,
  tanh_form,
  stable_branch,
  in_double,
  fast_exp,
  fast_division,
  infinity_limit,
  flush_result,
  flush_gate,
  half_away,
  truncation,
  minus_zero_lost,
  up_plus_zero,
  nan_to_minus_zero,
  nan_to_zero,
  swapped_inputs,
  tail_lane,
  silu_nothing,
  // silu_mul with a clamp
  clamp_lost,
  clamp_of_up_lost,
  clamp_other_side,
  clamp_drops_nan,
  clamp_unrounded,
  clamp_gate_below,
  clamp_up_above_alone,
  // rope
  one_rounding,
  fma_first,
  fma_second,
  rope_minus_zero_lost,
  rope_half_away,
  rope_truncation,
  rope_flush,
  rope_nan_to_zero,
  halves_swapped,
  other_pairing,
  table_halves_equal,
  partner_from_head_dim,
  rotary_dim_ignored,
  tail_not_copied,
  tail_through_float,
  row_off_by_one,
  sine_sign,
  inverse_ignored,
  position_clamped,
  head_tables_ignored,
  second_tensor_ignored,
  rope_nothing,
  count
};

constexpr Mutant first_clamp_mutant = Mutant::clamp_lost, first_rope_mutant = Mutant::one_rounding;

inline const char* name_of(Mutant mutant) {
  static const char* const names[] = {"none",
                                      "single rounding",
                                      "x * sigmoid(x)",
                                      "x * (1 / (1 + exp(-x)))",
                                      "tanh form",
                                      "sign-branched stable form",
                                      "double precision, then rounded",
                                      "fast exp",
                                      "fast division",
                                      "silu(-inf) = 0",
                                      "subnormal results flushed",
                                      "subnormal gates flushed",
                                      "round half away",
                                      "truncation",
                                      "-0 lost",
                                      "up + 0.0",
                                      "NaN -> -0 by carry",
                                      "NaN -> 0",
                                      "gate and up swapped",
                                      "last lane of the tail",
                                      "nothing done (silu_mul)",
                                      "no clamp",
                                      "no clamp of up",
                                      "clamp at the other side of silu",
                                      "clamp drops NaN",
                                      "limit not rounded",
                                      "gate limited below too",
                                      "up limited above alone",
                                      "one rounding (float32)",
                                      "fma takes the first product",
                                      "fma takes the second product",
                                      "-0 lost (rope)",
                                      "round half away (rope)",
                                      "truncation (rope)",
                                      "subnormal results flushed (rope)",
                                      "NaN -> 0 (rope)",
                                      "halves swapped",
                                      "the other pairing",
                                      "table halves assumed equal",
                                      "partner from head_dim",
                                      "rotary_dim ignored",
                                      "tail not copied",
                                      "tail through float",
                                      "table row off by one",
                                      "sign of sin",
                                      "inverse ignored",
                                      "position clamped",
                                      "tables by head ignored",
                                      "k left alone",
                                      "nothing done (rope)"};
  static_assert(sizeof(names) / sizeof(names[0]) == static_cast<size_t>(Mutant::count), "a name each");
  return names[static_cast<int>(mutant)];
}

// Bits of a float32 in dtype `to`, rounded the mutant's way.
BITEXACT_BOTH inline uint64_t wrongly_rounded(float x, Dtype to, Mutant m) {
  const bool away = m == Mutant::half_away || m == Mutant::rope_half_away;
  const bool cut = m == Mutant::truncation || m == Mutant::rope_truncation;
  if ((m == Mutant::nan_to_zero || m == Mutant::rope_nan_to_zero) && x != x) return 0;
  if (m == Mutant::nan_to_minus_zero && to == Dtype::bfloat16 && x != x) {
    const uint32_t bits = 0x7fffffff;  // CUDA's NaN: adding 0x7fff carries into the sign
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  }
  uint64_t bits = reference::round_bits(x, to);
  if (to != Dtype::float32 && (away || cut) && x == x) {
    const float back = reference::widen(bits, to);
    const float above = fabsf(back), value = fabsf(x);
    if (cut && above > value) bits -= 1;
    if (away && above < value) {  // was it a tie that went down to even?
      const float next = reference::widen(bits + 1, to);
      if (value - above == fabsf(next) - value) bits += 1;
    }
  }
  return bits;
}

BITEXACT_BOTH inline bool is_subnormal(uint64_t bits, Dtype dtype) {
  const reference::Format f = reference::format_of(dtype);
  const uint64_t magnitude = bits & ((uint64_t{1} << (f.exponent_bits + f.fraction_bits)) - 1);
  return magnitude != 0 && magnitude >> f.fraction_bits == 0;
}
BITEXACT_BOTH inline uint64_t sign_of(uint64_t bits, Dtype dtype) {
  return bits & uint64_t{1} << (8 * size_of(dtype) - 1);
}

// -------------------------------------------------------------------------------- silu_mul --

// The clamp from above (`sign` 1) or below (-1), the mutant's way.
BITEXACT_BOTH inline float wrongly_limited(float x, float sign, float limit, Mutant m) {
  const float reflected = sign * x;
  if (m == Mutant::clamp_drops_nan) return sign * fminf(reflected, limit);
  return reflected > limit ? sign * limit : x;
}

BITEXACT_BOTH inline float wrong_silu(float x, Dtype dtype, Mutant m) {
  using namespace reference;
  const float e = expf(-x);
  switch (m) {
    case Mutant::times_sigmoid: return mul(x, rounded(divide(1.0f, add(1.0f, e)), dtype));
    case Mutant::reciprocal: return mul(x, divide(1.0f, add(1.0f, e)));
    case Mutant::tanh_form: return mul(mul(0.5f, x), add(1.0f, tanhf(mul(0.5f, x))));
    case Mutant::stable_branch: {
      if (x >= 0.0f) return divide(x, add(1.0f, e));
      const float p = expf(x);
      return mul(x, divide(p, add(1.0f, p)));
    }
    case Mutant::in_double:
      return static_cast<float>(static_cast<double>(x) / (1.0 + exp(-static_cast<double>(x))));
    case Mutant::infinity_limit: return x == -INFINITY ? 0.0f : divide(x, add(1.0f, e));
#ifdef __CUDA_ARCH__
    case Mutant::fast_exp: return divide(x, add(1.0f, __expf(-x)));
    case Mutant::fast_division: return __fdividef(x, add(1.0f, e));
#else
    // What the GPU's intrinsic does: 0 for great divisors.
    case Mutant::fast_division: return add(1.0f, e) > 0x1p126f ? 0.0f : divide(x, add(1.0f, e));
#endif
    default: return divide(x, add(1.0f, e));
  }
}

BITEXACT_BOTH inline void mutant_silu_mul_at(const SiluMulArgs& a, Mutant m, int64_t index) {
  using namespace reference;
  if (m == Mutant::silu_nothing) return;
  const int64_t c = index % a.cols, r = index / a.cols % a.rows, b = index / a.cols / a.rows;
  uint64_t gate = load_bits(a.gate.data, b * a.gate.batch + r * a.gate.row + c, a.dtype);
  uint64_t up = load_bits(a.up.data, b * a.up.batch + r * a.up.row + c, a.dtype);
  if (m == Mutant::swapped_inputs) {
    const uint64_t t = gate;
    gate = up;
    up = t;
  }
  if (m == Mutant::flush_gate && is_subnormal(gate, a.dtype)) gate = sign_of(gate, a.dtype);
  const float limit = m == Mutant::clamp_unrounded ? a.limit : rounded(a.limit, a.dtype);
  const bool clamps = a.clamp != Clamp::none && m != Mutant::clamp_lost;
  const bool before = (a.clamp == Clamp::before) != (m == Mutant::clamp_other_side);
  float g = widen(gate, a.dtype), u = widen(up, a.dtype);
  if (clamps && before) g = wrongly_limited(g, 1.0f, limit, m);
  if (clamps && m == Mutant::clamp_gate_below) g = wrongly_limited(g, -1.0f, limit, m);
  if (clamps && m != Mutant::clamp_of_up_lost) u = wrongly_limited(u, 1.0f, limit, m);
  if (clamps && m != Mutant::clamp_of_up_lost && m != Mutant::clamp_up_above_alone)
    u = wrongly_limited(u, -1.0f, limit, m);
  float s = a.silu == Silu::glu ? divide(1.0f, add(1.0f, exp32(-g))) : wrong_silu(g, a.dtype, m);
  if (m != Mutant::single_rounding) s = widen(wrongly_rounded(s, a.dtype, m), a.dtype);
  if (clamps && !before) s = wrongly_limited(s, 1.0f, limit, m);
  if (m == Mutant::up_plus_zero) u = add(u, 0.0f);
  float product = mul(s, u);
  if (m == Mutant::minus_zero_lost) product = add(product, 0.0f);
  uint64_t bits = wrongly_rounded(product, a.dtype, m);
  if (m == Mutant::flush_result && is_subnormal(bits, a.dtype)) bits = sign_of(bits, a.dtype);
  const int64_t vector = 16 / size_of(a.dtype);
  if (m == Mutant::tail_lane && c == a.cols - 1 && a.cols % vector != 0) bits ^= 1;
  store_bits(a.out.data, b * a.out.batch + r * a.out.row + c, a.dtype, bits);
}

// ------------------------------------------------------------------------------------ rope --

BITEXACT_BOTH inline float wrong_sum(float p, float q, float r, float s, Dtype compute, Mutant m) {
  using namespace reference;
  auto round = [&](float v) {
    return m == Mutant::one_rounding ? v : widen(wrongly_rounded(v, compute, m), compute);
  };
  float sum;
  if (m == Mutant::fma_first) {
    sum = fused(p, q, round(mul(r, s)));
  } else if (m == Mutant::fma_second) {
    sum = fused(r, s, round(mul(p, q)));
  } else {
    sum = add(round(mul(p, q)), round(mul(r, s)));
  }
  if (m == Mutant::rope_minus_zero_lost) sum = add(sum, 0.0f);
  return round(sum);
}

// For tables of x's own dtype or float32, compute dtypes of 16 bits or float32, combine separate.
BITEXACT_BOTH inline void mutant_rope_at(const RopeArgs& a, Mutant m, int64_t index) {
  using namespace reference;
  if (m == Mutant::rope_nothing) return;
  const int64_t units = units_a_head(a), heads = a.heads[0] + a.heads[1];
  const int64_t half = (m == Mutant::rotary_dim_ignored ? a.head_dim : a.rotary_dim) / 2;
  const int64_t unit = index % units, h = index / units % heads;
  const int64_t t = index / units / heads % a.tokens, b = index / units / heads / a.tokens;
  const bool is_k = h >= a.heads[0];
  if (unit >= half && m == Mutant::rotary_dim_ignored) return;
  if (is_k && m == Mutant::second_tensor_ignored) return;
  const int64_t n = is_k ? h - a.heads[0] : h;
  const Heads &in = a.in[is_k], &out = a.out[is_k];
  const int64_t from = b * in.batch + t * in.token + n * in.head,
                to = b * out.batch + t * out.token + n * out.head;
  if (unit >= half) {
    if (m == Mutant::tail_not_copied) return;
    const int64_t d = a.rotary_dim + unit - half;
    uint64_t bits = load_bits(in.data, from + d, a.dtype);
    if (m == Mutant::tail_through_float) bits = round_bits(widen(bits, a.dtype), a.dtype);
    store_bits(out.data, to + d, a.dtype, bits);
    return;
  }
  int64_t row = t;
  if (a.positions.data != nullptr) {
    const uint64_t bits =
        load_bits(a.positions.data, b * a.positions.batch + t * a.positions.token, a.positions.dtype);
    row = a.positions.dtype == Dtype::int32 ? static_cast<int32_t>(bits) : static_cast<int64_t>(bits);
  }
  bool outside = a.positions.data != nullptr && (row < 0 || row >= a.table_rows);
  if (m == Mutant::position_clamped && outside) {
    row = row < 0 ? 0 : a.table_rows - 1;
    outside = false;
  }
  if (m == Mutant::row_off_by_one && row > 0 && !outside) row -= 1;
  Pairing pairing = a.pairing_in;
  if (m == Mutant::other_pairing) pairing = pairing == Pairing::half ? Pairing::interleaved : Pairing::half;
  const int64_t head_half = m == Mutant::partner_from_head_dim ? a.head_dim / 2 : half;
  const uint64_t x1 = load_bits(in.data, from + member(pairing, unit, head_half, false), a.dtype);
  const uint64_t x2 = load_bits(in.data, from + member(pairing, unit, head_half, true), a.dtype);
  uint64_t o1 = a.dtype == Dtype::float32 ? 0x7fffffff : 0x7fff, o2 = o1;
  if (!outside) {
    const int64_t entries = a.full_table ? a.rotary_dim : a.rotary_dim / 2;  // never read beyond a row
    const int64_t e1 = (a.full_table ? member(a.pairing_in, unit, half, false) : unit) % entries;
    const int64_t e2 = a.full_table && m != Mutant::table_halves_equal
                           ? member(a.pairing_in, unit, half, true) % entries
                           : e1;
    const int64_t table_head = m == Mutant::head_tables_ignored ? 0 : n;
    auto entry = [&](const Table& table, int64_t e) {
      return widen(
          load_bits(table.data,
                    b * table.batch + row * table.token + table_head * table.head + e * table.element,
                    a.table_dtype),
          a.table_dtype);
    };
    const bool back = a.inverse && m != Mutant::inverse_ignored;
    const float sign = back != (m == Mutant::sine_sign) ? -1.0f : 1.0f;
    const float c1 = entry(a.cos, e1), c2 = entry(a.cos, e2);
    const float s1 = mul(sign, entry(a.sin, e1)), s2 = mul(sign, entry(a.sin, e2));
    const float y1 = widen(x1, a.dtype), y2 = widen(x2, a.dtype);
    o1 = wrongly_rounded(wrong_sum(y1, c1, -y2, s1, a.compute_dtype, m), a.dtype, m);
    o2 = wrongly_rounded(wrong_sum(y2, c2, y1, s2, a.compute_dtype, m), a.dtype, m);
    if (m == Mutant::rope_flush && is_subnormal(o1, a.dtype)) o1 = sign_of(o1, a.dtype);
    if (m == Mutant::rope_flush && is_subnormal(o2, a.dtype)) o2 = sign_of(o2, a.dtype);
  }
  const bool swap = m == Mutant::halves_swapped;
  store_bits(out.data, to + member(a.pairing_out, unit, half, swap), a.dtype, o1);
  store_bits(out.data, to + member(a.pairing_out, unit, half, !swap), a.dtype, o2);
}

// -------------------------------------------------------------------------------- comparison --

// Faults of the check itself.
enum class Blindness : int { by_value, with_itself, sees_nothing, count };

inline const char* name_of(Blindness blindness) {
  static const char* const names[] = {"comparison by float ==", "scratch compared with itself",
                                      "comparison that sees nothing"};
  return names[static_cast<int>(blindness)];
}

BITEXACT_BOTH inline void blind_compare(const CompareArgs& a, Blindness blindness, Comparison* result) {
  if (blindness == Blindness::sees_nothing) return;
  for (int64_t i = 0; i < a.count; ++i) {
    const uint64_t actual = reference::element(a.actual, i, a.dtype);
    const uint64_t expected =
        reference::element(blindness == Blindness::with_itself ? a.actual : a.expected, i, a.dtype);
    const bool equal = blindness == Blindness::by_value
                           ? reference::widen(actual, a.dtype) == reference::widen(expected, a.dtype)
                           : actual == expected;
    if (equal) continue;
    if (result->mismatches++ == 0) {
      result->key = a.first_key + static_cast<uint64_t>(i);
      result->actual = actual;
      result->expected = expected;
    }
  }
}

}  // namespace bitexact_test
