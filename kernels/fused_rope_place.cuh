// Where a thread of the fast forms of fused_rope finds its row of the tables and its heads.
#pragma once

#include "fused_rope_vector.h"

namespace bitexact {

// Row of the tables for token t of batch b; false if there is none.
__device__ inline bool table_row(const RopePositions& a, bool by_position, int b, int t, int& row) {
  row = t;
  if (!by_position) return true;
  const int64_t at = int64_t{b} * a.batch + int64_t{t} * a.token;
  const int64_t position =
      a.wide ? static_cast<const int64_t*>(a.data)[at] : static_cast<const int32_t*>(a.data)[at];
  row = static_cast<int>(position);
  return position >= 0 && position < a.table_rows;
}
__device__ inline void count_outside(const RopePositions& a) {
  if (a.errors != nullptr) atomicAdd(a.errors, 1ull);
}

// One of both, when both are there: arguments that a condition chooses come by a slower way.
template <class V>
__device__ V chosen(bool second, V one, V other) {
  if constexpr (sizeof(V) == 8)
    asm volatile("" : "+l"(one), "+l"(other));
  else
    asm volatile("" : "+r"(one), "+r"(other));
  return second ? other : one;
}

// What the compiler no longer sees of a chosen pointer.
template <class Byte>
__device__ Byte* global(Byte* pointer) {
  __builtin_assume(__isGlobal(pointer));
  return pointer;
}

// Head h of token t of batch b, and the rows of its tables; in a head from byte `inner` on.
struct Place {
  int t, h;
  bool of_k;
  int64_t q_at, k_at, q_out_at, k_out_at, cos_at, sin_at;

  __device__ Place(const RopeVectorArgs& a, int b, int token, int head, bool is_of_k, int inner)
      : t(token), h(head), of_k(is_of_k) {
    q_at = k_at = q_out_at = k_out_at = inner;
    cos_at = sin_at = 0;
    if (b > 0) {  // else the line of arguments that has these strides is not waited for
      auto add = [b](int64_t& at, int32_t batch) { at += int64_t{b * batch_unit} * batch; };
      add(q_at, a.q_batch), add(k_at, a.k_batch);
      add(q_out_at, a.q_out_batch), add(k_out_at, a.k_out_batch);
      cos_at = int64_t{b} * a.cos_batch, sin_at = int64_t{b} * a.sin_batch;
    }
  }
  __device__ const char* input(const RopeVectorArgs& a) const {
    return global(chosen(of_k, at(a.q, q_at, a.q_token, a.q_head), at(a.k, k_at, a.k_token, a.k_head)));
  }
  __device__ char* output(const RopeVectorArgs& a) const {
    return global(chosen(of_k, at(a.q_out, q_out_at, a.q_out_token, a.q_out_head),
                         at(a.k_out, k_out_at, a.k_out_token, a.k_out_head)));
  }
  __device__ const char* cos(const RopeVectorArgs& a, int row, int entry) const {
    return a.cos + (cos_at + entry + int64_t{row} * a.cos_token);
  }
  __device__ const char* sin(const RopeVectorArgs& a, int row, int entry) const {
    return a.sin + (sin_at + entry + int64_t{row} * a.sin_token);
  }

 private:
  template <class Byte>
  __device__ Byte* at(Byte* data, int64_t before, int32_t token_stride, int32_t head_stride) const {
    return data + (before + int64_t{t} * token_stride + int64_t{h} * head_stride);
  }
};

}  // namespace bitexact
