// Arguments of the form of lanes of fused_rope. Plain C++.
#pragma once

#include "fused_rope_fast.h"
#include "reciprocal.h"

namespace bitexact {

// A thread takes one vector of one head; a head has 2^log_width threads of a warp, heads follow each other through the
// tokens.
struct RopeLanesArgs {
  RopeTensors tensors;
  uint32_t total;                             // heads of all tokens
  Reciprocal of_heads;                        // of those of a token
  uint16_t heads, q_heads;                    // of a token
  uint8_t log_width, vectors, rotated, half;  // vectors of a head; the rotated ones; half of these
  bool inverse, keep_tables, by_position;
  RopeSome some;
};
static_assert(offsetof(RopeLanesArgs, some) == sizeof(RopeTensors) + rope_form_bytes,
              "no more than its line holds");

// `tail`: vectors of a head beyond the rotated ones.
inline RopeLanesArgs lanes_args(const RopeArgs& a, int64_t tail, int64_t vector_elements) {
  const int64_t heads = a.heads[0] + a.heads[1];
  auto v = rope_form_args<RopeLanesArgs>(a, a.heads[0]);
  v.total = static_cast<uint32_t>(a.tokens * heads);
  v.of_heads = reciprocal(heads);
  v.heads = static_cast<uint16_t>(heads);
  v.q_heads = static_cast<uint16_t>(a.heads[0]);
  v.half = static_cast<uint8_t>(a.rotary_dim / 2 / vector_elements);
  v.rotated = static_cast<uint8_t>(2 * v.half);
  v.vectors = static_cast<uint8_t>(v.rotated + tail);
  while (1 << v.log_width < v.vectors) ++v.log_width;
  return v;
}

}  // namespace bitexact
