// What one call asks for, in plain C++: read by the CUDA kernels, the host backend and the dispatcher.
// No CUDA header here, so that a host-only build sees the same types.
#pragma once

#include <cstdint>
#include <initializer_list>

namespace bitexact {

// Values equal the BITEXACT_DTYPE constants.
enum class Dtype : int32_t {
  none = 0,
  float32 = 1,
  float16 = 2,
  bfloat16 = 3,
  float64 = 4,
  int32 = 5,
  int64 = 6
};

// In bytes. A digit for each constant, in place of a branch: a call asks often.
constexpr int64_t size_of(Dtype dtype) { return int64_t{0x8482240} >> 4 * static_cast<int32_t>(dtype) & 15; }
static_assert(size_of(Dtype::none) == 0 && size_of(Dtype::float32) == 4 && size_of(Dtype::float16) == 2 &&
                  size_of(Dtype::bfloat16) == 2 && size_of(Dtype::float64) == 8 &&
                  size_of(Dtype::int32) == 4 && size_of(Dtype::int64) == 8,
              "the digits in order");

// ---------------------------------------------------------------------------------- silu_mul --

enum class Silu : int32_t { aten = 0, sigmoid = 1, candle = 2, glu = 3 };  // BITEXACT_SILU constants
enum class Clamp : int8_t { none = 0, before = 1, after = 2 };             // BITEXACT_CLAMP constants

// Bytes that a thread reads of each tensor at a time; and, in the fast forms, silu by approximate instructions:
// proven by the first-use check, which has every gate.
enum class SiluMulVariant : int32_t {
  scalar = 0,
  vec8 = 1,
  vec16 = 2,
  scalar_fast = 3,
  vec8_fast = 4,
  vec16_fast = 5
};
constexpr int silu_mul_widths = 3;  // scalar, vec8, vec16: in either form
constexpr bool is_fast(SiluMulVariant variant) { return variant >= SiluMulVariant::scalar_fast; }
constexpr SiluMulVariant without_fast(SiluMulVariant variant) {
  return static_cast<SiluMulVariant>(static_cast<int32_t>(variant) % silu_mul_widths);
}
constexpr SiluMulVariant with_fast(SiluMulVariant variant) {
  return static_cast<SiluMulVariant>(static_cast<int32_t>(without_fast(variant)) + silu_mul_widths);
}
constexpr int64_t vector_bytes(SiluMulVariant variant) {
  const auto v = without_fast(variant);
  return v == SiluMulVariant::scalar ? 0 : v == SiluMulVariant::vec8 ? 8 : 16;
}

struct Rows {  // element (b, r, c) at data + b * batch + r * row + c, in elements
  void* data;
  int64_t batch, row;
};

struct SiluMulArgs {
  Dtype dtype;
  bool compute_float32;  // one rounding instead of two
  Clamp clamp;
  Silu silu;
  float limit;  // of the clamp, as the caller gave it: not rounded to the compute dtype
  int64_t batches, rows, cols;
  Rows gate, up, out;
};

// ------------------------------------------------------------------------------------- rope --

enum class Combine : int32_t { separate = 0, complex = 1, complex_alt = 2, addcmul_cos = 3, addcmul_x1 = 4 };
enum class Pairing : int32_t { half = 0, interleaved = 1 };

// How a thread reads a head: one pair at a time, or 16 bytes at a time; and, in the fast forms, its table
// entries as vectors too; or, in that of lanes, one vector of a head, whose other members another lane has.
enum class RopeVariant : int32_t { scalar = 0, vec16 = 1, vec16_table = 2, vec8_table = 3, vec16_lanes = 4 };
constexpr bool is_fast(RopeVariant) { return false; }  // none approximates
constexpr RopeVariant without_fast(RopeVariant variant) { return variant; }
constexpr int rope_max_threads = 256, rope_vector_threads = 512;  // of a block; in the fast form
constexpr int rope_lanes = 32;                                    // of a warp

struct Heads {  // element (b, t, h, d) at data + b * batch + t * token + h * head + d, in elements
  void* data;
  int64_t batch, token, head;
};

struct Table {  // entry e of row r for (b, h) at data + b * batch + r * token + h * head + e * element
  const void* data;
  int64_t batch, token, head, element;
};

struct Positions {  // null data: row t
  const void* data;
  int64_t batch, token;
  Dtype dtype;
};

struct RopeArgs {
  Dtype dtype, table_dtype;
  Dtype compute_dtype;  // resolved, never none
  Combine combine;
  Pairing pairing_in, pairing_out;
  bool inverse, sum_from_zero;
  bool full_table;  // an entry for each element instead of each pair
  int64_t batches, tokens, head_dim, rotary_dim, table_rows;
  int64_t heads[2];  // of q and of k
  Heads in[2], out[2];
  Table cos, sin;
  Positions positions;
  unsigned long long* position_errors;  // in the memory of the tensors
};

// -------------------------------------------------------------------------------- compare --

constexpr uint64_t no_key = ~uint64_t{0}, no_place = no_key;

// A strided tensor read in flat order from element `first` on; the last axis is contiguous.
struct View {
  const void* data;
  int64_t shape[4], stride[3];
  int64_t first;
};

// Compares `count` elements of two tensors, which may differ in shape but not in flat order.
struct CompareArgs {
  Dtype dtype;
  int64_t count;
  View actual, expected;
  uint64_t first_key;               // names element 0 in the result; keys count up in flat order
  uint64_t first_place = no_place;  // of element 0 in the digest of what is expected; no_place: not in it
};

// Summed up over comparisons; `key` is that of the first mismatch.
struct Comparison {
  unsigned long long mismatches = 0, nan_payload_differences = 0, key = no_key, expected = 0, actual = 0;
  unsigned long long digest = 0;  // of what is expected
};

// -------------------------------------------------------------------------- fewer dimensions --

// Folds batches into rows and rows into columns where the strides allow, so that kernels see long
// contiguous runs and the vector demands below are those of the memory, not of its description. The stride of an
// axis of one is never walked, may be anything, and becomes 0.
inline void collapse(SiluMulArgs& a) {
  Rows* const all[] = {&a.gate, &a.up, &a.out};
  auto every = [&](auto holds) { return holds(*all[0]) && holds(*all[1]) && holds(*all[2]); };
  if (a.rows == 1) {
    for (Rows* x : all) x->row = x->batch;
    a.rows = a.batches;
    a.batches = 1;
  } else if (a.batches > 1 && every([&](const Rows& x) { return x.batch == a.rows * x.row; })) {
    a.rows *= a.batches;
    a.batches = 1;
  }
  if (a.batches == 1 && a.rows > 1 && every([&](const Rows& x) { return x.row == a.cols; })) {
    a.cols *= a.rows;
    a.rows = 1;
  }
  for (Rows* x : all) {
    if (a.batches == 1) x->batch = 0;
    if (a.rows == 1) x->row = 0;
  }
}

// Folds batches into tokens where the strides allow.
inline void fold_batches(RopeArgs& a) {
  if (a.batches <= 1) return;
  const bool by_position = a.positions.data != nullptr;
  if (by_position && (a.cos.batch != 0 || a.sin.batch != 0)) return;
  const bool swap = a.tokens == 1;  // then the batch strides simply become the token strides
  auto folds = [&](int64_t batch, int64_t token) { return swap || batch == a.tokens * token; };
  for (int which = 0; which < 2; ++which) {
    if (a.heads[which] == 0) continue;
    if (!folds(a.in[which].batch, a.in[which].token)) return;
    if (!folds(a.out[which].batch, a.out[which].token)) return;
  }
  if (by_position ? !folds(a.positions.batch, a.positions.token)
                  : !folds(a.cos.batch, a.cos.token) || !folds(a.sin.batch, a.sin.token)) {
    return;
  }
  if (swap) {
    for (int which = 0; which < 2; ++which) {
      a.in[which].token = a.in[which].batch;
      a.out[which].token = a.out[which].batch;
    }
    if (by_position) {
      a.positions.token = a.positions.batch;
    } else {
      a.cos.token = a.cos.batch;
      a.sin.token = a.sin.batch;
    }
  }
  a.tokens *= a.batches;
  a.batches = 1;
}

inline void collapse(RopeArgs& a) {
  fold_batches(a);
  for (int which = 0; which < 2; ++which) {
    for (Heads* x : {&a.in[which], &a.out[which]}) {
      if (a.heads[which] == 0) *x = {};
      if (a.batches == 1) x->batch = 0;
      if (a.tokens == 1) x->token = 0;
      if (a.heads[which] == 1) x->head = 0;
    }
  }
  for (Table* x : {&a.cos, &a.sin}) {
    if (a.batches == 1) x->batch = 0;
    if (a.tokens == 1 && a.positions.data == nullptr) x->token = 0;
    if (a.heads[0] <= 1 && a.heads[1] <= 1) x->head = 0;
  }
  if (a.batches == 1) a.positions.batch = 0;
  if (a.tokens == 1) a.positions.token = 0;
}

}  // namespace bitexact
