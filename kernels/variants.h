// Which variant of a kernel serves a call: the one source of that choice. Plain C++.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "args.h"
#include "common/launch.h"
#include "reciprocal.h"

namespace bitexact {

// Of a power of two; divisions would be a tenth of what a call costs the host.
inline bool is_multiple(int64_t value, int64_t power) { return (value & (power - 1)) == 0; }
inline bool is_multiple(const void* pointer, int64_t power) {
  return is_multiple(static_cast<int64_t>(reinterpret_cast<uintptr_t>(pointer)), power);
}

// Do all of many numbers lie in [-half, half), half a power of two? Asked of all at once: a call has many, and would
// branch for each.
class AllWithin {
 public:
  constexpr explicit AllWithin(int64_t half) : half_(static_cast<uint64_t>(half)) {}
  void add(int64_t number) { moved_ |= static_cast<uint64_t>(number) + half_; }
  bool hold() const { return moved_ < 2 * half_; }

 private:
  uint64_t half_, moved_ = 0;
};

// Vector kernels keep strides in 32 bits, most in bytes.
constexpr int64_t short_stride = int64_t{1} << 28;
inline bool is_short(int64_t stride) { return stride >= -short_stride && stride < short_stride; }
// Strides between the batches of long sequences, in units of 8 bytes.
constexpr int batch_unit = 8;

// Where launchers change their ways. Measured.
constexpr int64_t rope_few_tokens = 64;      // below: small blocks, so that all multiprocessors have some
constexpr int64_t rope_spread_tokens = 512;  // below: a head a thread, where tables are not read as vectors
// Of cos and sin; above: the cache is not asked to keep them.
constexpr int64_t rope_kept_bytes = int64_t{8} << 20;

// Do the tensors take vectors of these bytes, and the sizes a grid without loops?
inline bool vectors_fit(const SiluMulArgs& a, int64_t bytes) {
  const int64_t size = size_of(a.dtype);
  if (a.batches > 65535 || a.rows > INT32_MAX / 8) return false;
  if (a.cols * size > bytes * (UINT32_MAX / 2)) return false;  // numbered in 32 bits
  if (a.rows > 1) {
    if (a.cols * size < 2 * bytes || !is_short(a.cols)) return false;  // one vector a row has no reciprocal
    if (a.rows * a.cols * size > most_divided * bytes) return false;
  }
  for (const Rows* rows : {&a.gate, &a.up, &a.out}) {
    if (!is_short(rows->batch) || !is_short(rows->row)) return false;
    if (!is_multiple(rows->data, bytes)) return false;
    if (a.batches > 1 && !is_multiple(rows->batch * size, bytes)) return false;
    if (a.rows > 1 && !is_multiple(rows->row * size, bytes)) return false;
  }
  return true;
}

// Approximations serve where silu is rounded to bfloat16. (Of float16 they give two gates another rounding.)
inline bool may_be_fast(const SiluMulArgs& a) { return a.dtype == Dtype::bfloat16 && !a.compute_float32; }

inline bool fits(const SiluMulArgs& a, SiluMulVariant variant) {
  if (is_fast(variant) && !may_be_fast(a)) return false;
  return vector_bytes(variant) == 0 || vectors_fit(a, vector_bytes(variant));
}

// Of few 16-bit elements a thread takes fewer, so that more threads share the arithmetic. Measured.
constexpr int64_t silu_mul_many = int64_t{1} << 23, silu_mul_many_fast = int64_t{1} << 18;

inline SiluMulVariant choose_variant(const SiluMulArgs& a) {
  const bool fast = may_be_fast(a);
  const int64_t many = fast ? silu_mul_many_fast : silu_mul_many;
  const bool few = size_of(a.dtype) == 2 && a.batches * a.rows * a.cols < many;
  const SiluMulVariant widest = !few && fits(a, SiluMulVariant::vec16) ? SiluMulVariant::vec16
                                : fits(a, SiluMulVariant::vec8)        ? SiluMulVariant::vec8
                                                                       : SiluMulVariant::scalar;
  return fast ? with_fast(widest) : widest;
}

// Bytes of a thread's accesses to heads: such that its entries of one table fill 16 bytes; vec8_table serves what
// is aligned to no more than 8. Measured.
constexpr int64_t vector_bytes(int64_t size, int64_t table_size, Pairing pairing_in, RopeVariant variant) {
  const bool wide = variant != RopeVariant::vec16 && size < table_size && pairing_in == Pairing::half;
  return wide || variant == RopeVariant::vec8_table ? 8 : 16;
}

// Do the tensors take vectors of these bytes? A thread holds one vector of each half, or one of whole pairs. What no
// call walks has strides of 0.
inline bool vectors_fit(const RopeArgs& a, int64_t bytes) {
  const bool halves = a.pairing_in == Pairing::half;
  if (halves && a.pairing_out != Pairing::half) return false;
  int64_t elements = halves ? a.rotary_dim / 2 : a.rotary_dim;
  uintptr_t data = 0;
  for (const auto* x : {&a.in, &a.out}) {
    for (const Heads& of : *x) {
      data |= reinterpret_cast<uintptr_t>(of.data);
      elements |= of.batch | of.token | of.head;
    }
  }
  return is_multiple(static_cast<int64_t>(data) | elements * size_of(a.dtype), bytes);
}

// Do the tables take such vectors, and the sizes the fast form's 32-bit numbers and its grid?
inline bool table_vectors_fit(const RopeArgs& a, int64_t bytes) {
  const int64_t size = size_of(a.dtype), table_size = size_of(a.table_dtype);
  if (a.compute_dtype == Dtype::float64 || a.sum_from_zero) return false;
  const int64_t vectors = (a.head_dim * size + 7) / 8;  // a thread takes 8 bytes or more
  if (a.rotary_dim == 0 || vectors > rope_vector_threads) return false;
  if (a.heads[0] > 65535 / 2 || a.heads[1] > 65535 / 2 || a.tokens > INT32_MAX / 2 || a.batches > 65535 ||
      a.table_rows > INT32_MAX) {
    return false;
  }
  const int64_t rows = a.positions.data != nullptr ? a.table_rows : a.tokens;
  uintptr_t data = 0;
  int64_t elements = 0, head = 0, element = 0;
  AllWithin strides(short_stride), batches(int64_t{INT32_MAX} + 1);
  for (const Table* table : {&a.cos, &a.sin}) {
    data |= reinterpret_cast<uintptr_t>(table->data);
    elements |= table->batch | (rows > 1 ? table->token : 0);
    head |= table->head;
    element |= table->element ^ 1;
    strides.add(table->token), strides.add(table->batch);
  }
  for (const auto* x : {&a.in, &a.out}) {
    for (const Heads& of : *x) {
      strides.add(of.token), strides.add(of.head);
      batches.add(of.batch * size / batch_unit);
    }
  }
  strides.add(a.positions.batch), strides.add(a.positions.token);
  return (head | element) == 0 && is_multiple(static_cast<int64_t>(data) | elements * table_size, bytes) &&
         strides.hold() && batches.hold();
}

// Vectors of a head's tail, which stays where it is in place.
inline int64_t tail_vectors(const RopeArgs& a, int64_t elements) {
  auto moves = [&](int which) { return a.heads[which] > 0 && a.in[which].data != a.out[which].data; };
  return moves(0) || moves(1) ? ceil_div(a.head_dim - a.rotary_dim, elements) : 0;
}

// What a head has for the form of lanes, a lane each. Heads of 2^n are aligned: they fill warps whole. Others are packed:
// as many of them in a warp as it holds.
inline int64_t lane_vectors(const RopeArgs& a, int64_t elements) {
  return a.rotary_dim / elements + tail_vectors(a, elements);
}
constexpr bool are_packed(int64_t vectors) { return (vectors & (vectors - 1)) != 0; }

// The stride of the heads of q and of k: of one head it is never walked. Negative where they have two.
inline int64_t head_stride(const RopeArgs& a, const Heads (&x)[2]) {
  if (a.heads[0] <= 1) return x[1].head;
  return a.heads[1] <= 1 || x[1].head == x[0].head ? x[0].head : -1;
}

// Does a head fit in a warp, are heads numbered in 32 bits, and places in a tensor too, as bytes, with the same
// strides of heads and of tables? (Without branches where it can be: a call has them all to pass.)
inline bool lanes_fit(const RopeArgs& a, int64_t bytes) {
  const int64_t size = size_of(a.dtype), heads = a.heads[0] + a.heads[1];
  if (!is_multiple(a.head_dim * size, bytes) || a.head_dim * size > rope_lanes * bytes) return false;
  if (heads * a.tokens > most_divided / rope_lanes ||
      heads * a.tokens * a.batches > most_divided / rope_lanes)
    return false;
  int64_t signs = 0, last = 0;  // of all strides; the farthest place of a token
  for (const auto* x : {&a.in, &a.out}) {
    const int64_t inner = heads * head_stride(a, *x);
    signs |= inner;
    for (const Heads& of : *x) {
      signs |= of.batch | of.token;
      last = std::max(last, (a.batches - 1) * of.batch + (a.tokens - 1) * of.token + inner);
    }
  }
  const int64_t rows = a.positions.data != nullptr ? a.table_rows : a.tokens,
                last_row = (a.batches - 1) * a.cos.batch + (rows - 1) * a.cos.token;
  constexpr int64_t most = int64_t{1} << 32;
  return (signs | a.cos.batch | a.cos.token | (rows - 1)) >= 0 && a.cos.batch == a.sin.batch &&
         a.cos.token == a.sin.token && (last + a.head_dim) * size <= most &&
         (last_row + a.rotary_dim) * size_of(a.table_dtype) <= most;
}

inline bool fits(const RopeArgs& a, RopeVariant variant) {
  if (variant == RopeVariant::scalar) return true;
  const int64_t size = size_of(a.dtype), table_size = size_of(a.table_dtype);
  const int64_t bytes = vector_bytes(size, table_size, a.pairing_in, variant);
  const bool narrow = variant == RopeVariant::vec8_table, lanes = variant == RopeVariant::vec16_lanes;
  if ((narrow || lanes) && a.pairing_in != Pairing::half) return false;
  if (narrow && (size != 2 || table_size != 2)) return false;
  if (!vectors_fit(a, bytes)) return false;
  if (variant == RopeVariant::vec16) return true;
  return table_vectors_fit(a, narrow ? 8 : 16) && (!lanes || lanes_fit(a, bytes));
}

// Of both tables, what a call reads at most.
inline int64_t table_bytes(const RopeArgs& a) {
  const int64_t width = a.full_table ? a.rotary_dim : a.rotary_dim / 2;
  const int64_t rows = a.cos.batch == 0 ? a.tokens : a.batches * a.tokens;
  return 2 * rows * width * size_of(a.table_dtype);
}

inline bool is_heads_first(const RopeArgs& a) {
  const Heads& x = a.in[a.heads[0] > 0 ? 0 : 1];
  return a.tokens > 1 && x.head > x.token;
}

// Of a warp, when it holds as many heads of so many vectors as it can.
constexpr int64_t busy_lanes(int64_t vectors) { return rope_lanes / vectors * vectors; }

// A lane a vector is the fastest for few tokens, and of many where each head's entries are at hand: of the size of its
// elements, in tables that stay in the cache, for the head and those beside it; and where few lanes are idle, or the
// vectors of all heads not too many for those that are not. Measured.
inline bool prefers_lanes(const RopeArgs& a) {
  const int64_t tokens = a.batches * a.tokens;
  if (tokens < rope_few_tokens) return true;
  if (size_of(a.table_dtype) > size_of(a.dtype) || table_bytes(a) > rope_kept_bytes || is_heads_first(a))
    return false;
  const int64_t vectors = a.head_dim * size_of(a.dtype) / 16;
  if (!are_packed(vectors)) return true;
  const int64_t busy = busy_lanes(vectors), all = tokens * (a.heads[0] + a.heads[1]) * vectors;
  return busy >= 28 || all <= (busy >= 24 ? int64_t{1} << 20 : int64_t{1} << 18);
}

inline RopeVariant choose_variant(const RopeArgs& a) {
  if (prefers_lanes(a) && fits(a, RopeVariant::vec16_lanes)) return RopeVariant::vec16_lanes;
  // Of few tokens a thread takes fewer pairs, as above.
  if (a.batches * a.tokens < rope_few_tokens && fits(a, RopeVariant::vec8_table))
    return RopeVariant::vec8_table;
  for (const RopeVariant variant : {RopeVariant::vec16_table, RopeVariant::vec8_table, RopeVariant::vec16}) {
    if (fits(a, variant)) return variant;
  }
  return RopeVariant::scalar;
}

}  // namespace bitexact
