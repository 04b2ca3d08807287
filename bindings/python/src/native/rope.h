// Views of q, k, tables and positions as the C interface's params.
#pragma once

#include "view.h"

namespace libbitexact {

// How a rope call reads its tensors; the numerics fields are the library's.
struct RopeSpec {
  int pairing_in, pairing_out, combine, compute;
  uint32_t flags;
  int64_t rotary_dim;  // -1: the width of the table (twice it if complex); -2: twice the width
  bool heads_first;    // (..., heads, tokens, head_dim) instead of (..., tokens, heads, head_dim)
  bool first_half;     // only the first half of each table row is read
};

int64_t rotary_dim_of(const RopeSpec& spec, const View& cos);

// k, sin, positions and k_out may be null. Returns 0 or a code.
int make_params(const RopeSpec& spec, const View& q, const View* k, const View& cos, const View* sin,
                const View* positions, const View& q_out, const View* k_out, bitexact_rope_params& p);

}  // namespace libbitexact
