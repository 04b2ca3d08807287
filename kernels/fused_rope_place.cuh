// Where a thread of the fast forms of fused_rope finds its row of the tables and its heads.
#pragma once

#include "fused_rope_vector.h"

namespace bitexact {

// Row of the tables for token t of batch b; false if there is none, which is counted where `counts`.
__device__ inline bool table_row(const RopeVectorArgs& a, int b, int t, bool counts, int& row) {
  row = t;
  if (a.positions == nullptr) return true;
  const int64_t at = int64_t{b} * a.positions_batch + int64_t{t} * a.positions_token;
  const int64_t position = a.positions_wide ? static_cast<const int64_t*>(a.positions)[at]
                                            : static_cast<const int32_t*>(a.positions)[at];
  row = static_cast<int>(position);
  if (position >= 0 && position < a.table_rows) return true;
  if (counts && a.position_errors != nullptr) atomicAdd(a.position_errors, 1ull);
  return false;
}

// Head h of q or of k, then every `groups`-th after it.
struct Place {
  const RopeVectorArgs::Side& side;
  int h, heads, groups;
  const char* in;
  char* out;

  __device__ Place(const RopeVectorArgs& a, int b, int t, int head) : side(a.side[head >= a.side[0].groups]) {
    h = head >= a.side[0].groups ? head - a.side[0].groups : head;
    heads = side.heads, groups = side.groups;
    in = side.in +
         (int64_t{t} * side.in_token + int64_t{b * batch_unit} * side.in_batch + int64_t{h} * side.in_head);
    out = side.out + (int64_t{t} * side.out_token + int64_t{b * batch_unit} * side.out_batch +
                      int64_t{h} * side.out_head);
  }
  __device__ bool is_there(int i) const { return i == 0 || h + i * groups < heads; }
  __device__ const char* input(int i) const { return in + int64_t{i * groups} * side.in_head; }
  template <class X>
  __device__ X* output(int i) const {
    return reinterpret_cast<X*>(out + int64_t{i * groups} * side.out_head);
  }
};

}  // namespace bitexact
