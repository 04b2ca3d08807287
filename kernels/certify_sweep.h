// What a certificate sweeps: the inputs of every part as functions of their place alone, and the judgement of
// one output. The same source serves the GPU and the host.
#pragma once

#include "certify_values.h"

namespace bitexact {

enum class Sweep : int32_t {
  samples,          // random and adversarial inputs; of a clamp, each part with a limit of its own
  pairs,            // silu_mul in 16 bits: every (gate, up)
  gates,            // silu_mul in float32: every gate, up = 1
  first_products,   // rope: every (x1, cos) in the first output, every (x1, sin) in the second; all else +0
  second_products,  // rope: every (x2, sin) in the first output, every (x2, cos) in the second; all else +0
  sums              // rope: every x1 - x2 and x2 + x1: table entries are 1
};

// A part is 2^22 inputs. Of a sweep over two 16-bit numbers it is one tile: the numbers' five high bits.
constexpr int64_t certify_inputs = int64_t{1} << 22;
constexpr int tile_bits = 5, tile_low_bits = 16 - tile_bits;

// The tensors of a part of rope: this many pairs a head, heads of q and of k, and as many tokens as it takes.
constexpr int64_t certify_pairs = 64, certify_q_heads = 24, certify_heads = 32;
constexpr int64_t certify_token_inputs = certify_pairs * certify_heads;

template <class Args>
struct CertifyArgs {
  Args call;  // its tensors are dense, and hold what the functions below say
  Sweep sweep;
  int64_t part;   // of the sweep
  bool digested;  // does the digest cover this sweep?
};

// Summed up over parts. `key` names the first mismatch: part and place of the output among all parts.
struct Tally {
  unsigned long long mismatches, nan_payload_differences, digest, key;
  uint64_t inputs[4], expected, actual;
};

// -------------------------------------------------------------------------------- silu_mul --

struct SiluMulInput {
  uint64_t gate, up;
};

BITEXACT_BOTH inline SiluMulInput certify_input(const CertifyArgs<SiluMulArgs>& a, int64_t i) {
  const uint64_t part = static_cast<uint64_t>(a.part), at = static_cast<uint64_t>(i);
  const Dtype dtype = a.call.dtype;
  if (a.sweep == Sweep::pairs) {
    const uint64_t low = (1u << tile_low_bits) - 1;
    return {part >> tile_bits << tile_low_bits | at >> tile_low_bits,
            (part & ((1u << tile_bits) - 1)) << tile_low_bits | (at & low)};
  }
  if (a.sweep == Sweep::gates) return {part << 22 | at, certify::one(dtype)};
  const uint64_t h = mix(part << 22 | at), k = mix(h);
  if (a.call.clamp != Clamp::none && (h & 48) == 0) {  // about the limit, either sign
    const uint64_t limit = reference::round_bits(a.call.limit, dtype);
    const auto near = [&](uint64_t z) {
      return (z >> 63) * certify::sign_bit(dtype) | (limit + (z >> 60 & 7) - 3) % certify::sign_bit(dtype);
    };
    return {near(h), (k & 1) == 0 ? near(k) : certify::sample(dtype, k)};
  }
  if (size_of(dtype) == 2) return {certify::sample(dtype, h), certify::sample(dtype, k)};
  // Between -80 and -105.5 expf(-gate) comes to its overflow, and silu is subnormal.
  const bool far_out = (h & 15) >= 12;
  return {far_out ? 0xc2a00000u + (h >> 24) % 0x330000u : certify::sample(dtype, h),
          certify::sample(dtype, k)};
}

BITEXACT_BOTH inline void certify_fill(const CertifyArgs<SiluMulArgs>& a, int64_t i) {
  const SiluMulInput in = certify_input(a, i);
  reference::store_bits(a.call.gate.data, i, a.call.dtype, in.gate);
  reference::store_bits(a.call.up.data, i, a.call.dtype, in.up);
}

// ------------------------------------------------------------------------------------ rope --

struct RopeInput {
  uint64_t x1, x2, c1, s1, c2, s2;
};

// Input i is pair i % 64 of head i / 64 % 32 of token i / 2048; all heads of a token share its table entries.
BITEXACT_BOTH inline RopeInput certify_input(const CertifyArgs<RopeArgs>& a, int64_t i) {
  const uint64_t part = static_cast<uint64_t>(a.part), at = static_cast<uint64_t>(i);
  const uint64_t heads = certify_heads, pairs = certify_pairs;
  const uint64_t slot = at / (heads * pairs) * pairs + at % pairs, head = at / pairs % heads;
  const uint64_t high = part >> tile_bits << tile_low_bits, low_mask = (1u << tile_low_bits) - 1;
  const uint64_t low = (part & ((1u << tile_bits) - 1)) << tile_low_bits;
  const uint64_t x = high | (slot >> tile_low_bits) * heads | head, t = low | (slot & low_mask);
  switch (a.sweep) {
    case Sweep::first_products: return {x, 0, t, 0, 0, t};
    case Sweep::second_products: return {0, x, 0, t, t, 0};
    case Sweep::sums: {
      const uint64_t unit = certify::one(a.call.table_dtype);
      return {high | at >> tile_low_bits, low | (at & low_mask), unit, unit, unit, unit};
    }
    default: break;
  }
  const Dtype x_dtype = a.call.dtype, t_dtype = a.call.table_dtype;
  RopeInput in;
  uint64_t h = mix(~(part << 22 | slot));
  const uint64_t entries = h >> 4 & 7;
  in.c1 = certify::sample(t_dtype, h);
  in.s1 =
      entries == 0 ? in.c1 : certify::sample(t_dtype, h = mix(h));  // with x1 == x2 the first output cancels
  in.c2 = a.call.full_table ? certify::sample(t_dtype, h = mix(h)) : in.c1;
  in.s2 = a.call.full_table ? certify::sample(t_dtype, h = mix(h)) : in.s1;
  h = mix(part << 22 | at);
  const uint64_t kind = h >> 4 & 15;
  in.x1 = certify::sample(x_dtype, h);
  in.x2 = kind == 0   ? in.x1
          : kind == 1 ? in.x1 ^ certify::sign_bit(x_dtype)
                      : certify::sample(x_dtype, mix(h));
  if (kind == 2 && x_dtype == t_dtype) in.x1 = in.s1, in.x2 = in.c1;  // x1 * c1 - x2 * s1 cancels
  if (kind == 3 && x_dtype == t_dtype) in.x1 = in.c2, in.x2 = in.s2;
  return in;
}

BITEXACT_BOTH inline int64_t certify_place(int64_t i, Pairing pairing, bool second) {
  return i / certify_pairs * 2 * certify_pairs +
         reference::member(pairing, i % certify_pairs, certify_pairs, second);
}

BITEXACT_BOTH inline void certify_fill(const CertifyArgs<RopeArgs>& a, int64_t i) {
  const RopeInput in = certify_input(a, i);
  void* const x = a.call.in[0].data;  // k follows q, head by head
  reference::store_bits(x, certify_place(i, a.call.pairing_in, false), a.call.dtype, in.x1);
  reference::store_bits(x, certify_place(i, a.call.pairing_in, true), a.call.dtype, in.x2);
  if (i / certify_pairs % certify_heads != 0) return;
  const int64_t token = i / certify_token_inputs, j = i % certify_pairs;
  auto put = [&](const Table& table, bool second, uint64_t bits) {
    const int64_t e = a.call.full_table ? reference::member(a.call.pairing_in, j, certify_pairs, second) : j;
    reference::store_bits(const_cast<void*>(table.data), token * table.token + e, a.call.table_dtype, bits);
  };
  put(a.call.cos, false, in.c1);
  put(a.call.sin, false, in.s1);
  if (!a.call.full_table) return;
  put(a.call.cos, true, in.c2);
  put(a.call.sin, true, in.s2);
}

template <class C>
BITEXACT_BOTH reference::Pair64 certify_rotated(const RopeArgs& a, const RopeInput& in) {
  using reference::number;
  const C s1 = number<C>(in.s1, a.table_dtype), s2 = number<C>(in.s2, a.table_dtype);
  return reference::rotate<C>(number<C>(in.x1, a.dtype), number<C>(in.x2, a.dtype),
                              number<C>(in.c1, a.table_dtype), a.inverse ? -s1 : s1,
                              number<C>(in.c2, a.table_dtype), a.inverse ? -s2 : s2, a);
}

// ---------------------------------------------------------------------------- the judgement --

// What the kernel wrote for input i, and what it had to write.
struct Judged {
  uint64_t actual, expected, inputs[4], key;  // key: of the digest
  bool digested;
};

BITEXACT_BOTH constexpr int certify_outputs(const SiluMulArgs&) { return 1; }
BITEXACT_BOTH constexpr int certify_outputs(const RopeArgs&) { return 2; }

template <class Take>
BITEXACT_BOTH void certify_judge(const CertifyArgs<SiluMulArgs>& a, int64_t i, Take&& take) {
  const SiluMulInput in = certify_input(a, i);
  const uint64_t place = static_cast<uint64_t>(a.part) << 22 | static_cast<uint64_t>(i);
  const uint64_t key = a.sweep == Sweep::pairs ? in.gate << 16 | in.up : place;
  take(0, Judged{reference::load_bits(a.call.out.data, i, a.call.dtype),
                 reference::silu_mul(in.gate, in.up, a.call),
                 {in.gate, in.up, 0, 0},
                 key,
                 a.digested});
}

template <class Take>
BITEXACT_BOTH void certify_judge(const CertifyArgs<RopeArgs>& a, int64_t i, Take&& take) {
  const RopeInput in = certify_input(a, i);
  const bool in_double = a.call.compute_dtype == Dtype::float64;
  const reference::Pair64 expected =
      in_double ? certify_rotated<double>(a.call, in) : certify_rotated<float>(a.call, in);
  auto actual = [&](bool second) {
    return reference::load_bits(a.call.out[0].data, certify_place(i, a.call.pairing_out, second),
                                a.call.dtype);
  };
  // The digest covers each product and each sum once, as PyTorch's own does: the second products are not in it.
  const bool samples = a.sweep == Sweep::samples;
  const uint64_t place = (static_cast<uint64_t>(a.part) << 22 | static_cast<uint64_t>(i)) << 1;
  const uint64_t first = samples ? place : in.x1 << 16 | in.c1;
  const uint64_t second = samples ? place | 1 : in.x1 << 16 | in.x2;
  take(0, Judged{actual(false),
                 expected.first,
                 {in.x1, in.x2, in.c1, in.s1},
                 first,
                 a.digested && (samples || a.sweep == Sweep::first_products)});
  take(1, Judged{actual(true),
                 expected.second,
                 {in.x1, in.x2, in.c2, in.s2},
                 second,
                 a.digested && (samples || a.sweep == Sweep::sums)});
}

// Adds one output to a tally.
BITEXACT_BOTH inline void certify_count(const Judged& j, Dtype dtype, uint64_t key, Tally& tally) {
  if (j.digested) tally.digest += digest_share(j.key, j.actual, dtype);
  if (j.actual == j.expected) return;
  if (reference::is_nan(j.actual, dtype) && reference::is_nan(j.expected, dtype)) {
    ++tally.nan_payload_differences;
    return;
  }
  ++tally.mismatches;
  if (key < tally.key) tally.key = key;
}

}  // namespace bitexact
