// What a check needs to know about an operation: how to cut a call into slices, how to point its outputs
// at scratch memory, and how to read them.
#pragma once

#include <algorithm>
#include <cstdint>

#include "args.h"
#include "bitexact.h"

namespace bitexact {

// One part of a call, and the flat index at which each of its outputs starts in the whole one.
template <class Args>
struct Slice {
  Args args;
  int64_t first[2];
};

constexpr int64_t scratch_alignment = 16;  // bytes, so that every variant fits scratch memory

inline int64_t padded(int64_t elements, Dtype dtype) {
  const int64_t unit = scratch_alignment / size_of(dtype);
  return (elements + unit - 1) / unit * unit;
}

// -------------------------------------------------------------------------------- silu_mul --

inline bool in_place(const SiluMulArgs& a) { return a.out.data == a.gate.data || a.out.data == a.up.data; }
inline int64_t output_elements(const SiluMulArgs& a, int which) {
  return which == 0 ? a.batches * a.rows * a.cols : 0;
}
inline View output_view(const SiluMulArgs& a, int, int64_t first) {
  return {a.out.data, {1, a.batches, a.rows, a.cols}, {0, a.out.batch, a.out.row}, first};
}
inline int64_t scratch_bytes(const SiluMulArgs& a) {
  return a.batches * a.rows * padded(a.cols, a.dtype) * size_of(a.dtype);
}

// The same call, its output in scratch memory.
inline SiluMulArgs redirected(SiluMulArgs a, void* scratch) {
  const int64_t row = padded(a.cols, a.dtype);
  a.out = {scratch, a.rows * row, row};
  return a;
}

// Calls `each` for slices that together are the call; each needs at most `limit` bytes of scratch.
template <class Each>
int32_t for_slices(const SiluMulArgs& a, int64_t limit, Each&& each) {
  const int64_t size = size_of(a.dtype), row_bytes = padded(a.cols, a.dtype) * size;
  const int64_t rows_at_once = std::max<int64_t>(limit / row_bytes, 1);
  // Pieces of a long row start at whole vectors.
  const int64_t cols_at_once =
      row_bytes <= limit ? a.cols : limit / scratch_alignment * scratch_alignment / size;
  auto moved = [&](const Rows& x, int64_t b, int64_t r, int64_t c) {
    return Rows{static_cast<char*>(x.data) + (b * x.batch + r * x.row + c) * size, x.batch, x.row};
  };
  for (int64_t b = 0; b < a.batches; ++b) {
    for (int64_t r = 0; r < a.rows; r += rows_at_once) {
      for (int64_t c = 0; c < a.cols; c += cols_at_once) {
        Slice<SiluMulArgs> slice{a, {(b * a.rows + r) * a.cols + c, 0}};
        slice.args.batches = 1;
        slice.args.rows = std::min(rows_at_once, a.rows - r);
        slice.args.cols = std::min(cols_at_once, a.cols - c);
        slice.args.gate = moved(a.gate, b, r, c);
        slice.args.up = moved(a.up, b, r, c);
        slice.args.out = moved(a.out, b, r, c);
        const int32_t status = each(slice);
        if (status != BITEXACT_STATUS_OK) return status;
      }
    }
  }
  return BITEXACT_STATUS_OK;
}

// ------------------------------------------------------------------------------------ rope --

inline bool in_place(const RopeArgs& a) {
  return (a.heads[0] > 0 && a.out[0].data == a.in[0].data) ||
         (a.heads[1] > 0 && a.out[1].data == a.in[1].data);
}
inline int64_t output_elements(const RopeArgs& a, int which) {
  return a.batches * a.tokens * a.heads[which] * a.head_dim;
}
inline View output_view(const RopeArgs& a, int which, int64_t first) {
  const Heads& out = a.out[which];
  return {
      out.data, {a.batches, a.tokens, a.heads[which], a.head_dim}, {out.batch, out.token, out.head}, first};
}
inline int64_t token_bytes(const RopeArgs& a) {
  return (a.heads[0] + a.heads[1]) * padded(a.head_dim, a.dtype) * size_of(a.dtype);
}
inline int64_t scratch_bytes(const RopeArgs& a) { return a.batches * a.tokens * token_bytes(a); }

inline RopeArgs redirected(RopeArgs a, void* scratch) {
  const int64_t head = padded(a.head_dim, a.dtype);
  char* to = static_cast<char*>(scratch);
  for (int which = 0; which < 2; ++which) {
    const int64_t token = a.heads[which] * head;
    a.out[which] = {to, a.tokens * token, token, head};
    to += a.batches * a.tokens * token * size_of(a.dtype);
  }
  return a;
}

template <class Each>
int32_t for_slices(const RopeArgs& a, int64_t limit, Each&& each) {
  const int64_t tokens_at_once = std::max<int64_t>(limit / token_bytes(a), 1);
  auto moved = [&](const void* data, Dtype dtype, int64_t elements) {
    return const_cast<char*>(static_cast<const char*>(data)) + elements * size_of(dtype);
  };
  for (int64_t b = 0; b < a.batches; ++b) {
    for (int64_t t = 0; t < a.tokens; t += tokens_at_once) {
      Slice<RopeArgs> slice{a, {}};
      RopeArgs& s = slice.args;
      s.batches = 1;
      s.tokens = std::min(tokens_at_once, a.tokens - t);
      for (int which = 0; which < 2; ++which) {
        slice.first[which] = (b * a.tokens + t) * a.heads[which] * a.head_dim;
        if (a.heads[which] == 0) continue;
        s.in[which].data = moved(a.in[which].data, a.dtype, b * a.in[which].batch + t * a.in[which].token);
        s.out[which].data =
            moved(a.out[which].data, a.dtype, b * a.out[which].batch + t * a.out[which].token);
      }
      const bool by_position = a.positions.data != nullptr;
      if (a.rotary_dim > 0) {
        const int64_t row = by_position ? 0 : t;  // positions name rows themselves
        s.cos.data = moved(a.cos.data, a.table_dtype, b * a.cos.batch + row * a.cos.token);
        s.sin.data = moved(a.sin.data, a.table_dtype, b * a.sin.batch + row * a.sin.token);
      }
      if (by_position) {
        s.positions.data =
            moved(a.positions.data, a.positions.dtype, b * a.positions.batch + t * a.positions.token);
      }
      const int32_t status = each(slice);
      if (status != BITEXACT_STATUS_OK) return status;
    }
  }
  return BITEXACT_STATUS_OK;
}

}  // namespace bitexact
