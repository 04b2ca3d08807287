// What the fast forms of fused_rope get in common. Plain C++.
//
// A kernel waits for each 64 bytes of arguments that it comes to, which the few tokens of a decoding step feel. CUDA
// puts them 16 bytes behind the begin of such a line (on sm_90): what every thread needs stands in the first 48 bytes
// and the next 64, and behind them what some calls need.
#pragma once

#include <cstddef>

#include "args.h"

namespace bitexact {

constexpr size_t rope_first_line = 48, rope_line = 64;

// Strides in elements.
struct RopePositions {
  const void* data;
  int64_t table_rows;
  unsigned long long* errors;
  int32_t batch, token;
  bool wide;
};

inline RopePositions rope_positions(const RopeArgs& a) {
  return {a.positions.data,
          a.table_rows,
          a.position_errors,
          static_cast<int32_t>(a.positions.batch),
          static_cast<int32_t>(a.positions.token),
          a.positions.dtype == Dtype::int64};
}

}  // namespace bitexact
