// How a thread of the fast forms of fused_rope finds its row of the tables, and takes one of two places.
#pragma once

#include "fused_rope_fast.h"

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

}  // namespace bitexact
