// Arguments of the form of lanes of fused_rope. Plain C++.
#pragma once

#include <cstddef>

#include "args.h"
#include "common/launch.h"
#include "fused_rope_fast.h"
#include "reciprocal.h"
#include "variants.h"

namespace bitexact {

// Of a block: small ones, which follow each other as those of a copy do. Measured.
constexpr int lanes_threads = 128;

// A thread takes one vector of one head; heads follow each other through the tokens, those of k behind those of q, and
// tokens through the batches. Threads of aligned heads are numbered without gaps, and so divided; of packed ones the
// heads are. Strides are numbers of bytes without a sign, in 32 bits, and so are all places in a tensor.
//
// What a thread needs before it asks for its vector fills the first line of arguments, what it needs while it waits
// the next one, and what most calls need not stands behind them (see fused_rope_fast.h).
struct RopeLanesArgs {
  const char *q, *k;
  uint32_t q_token, k_token, head;
  uint32_t count;  // threads; or heads, of packed ones
  // With token_shift the reciprocal of those of a token; or of twice as many, of packed ones, since 1 has none.
  uint32_t token_factor;
  uint16_t heads, q_heads;
  uint8_t token_shift;
  bool batched, in_order;  // in_order: token t has row t of the tables
  union {
    uint8_t lane_mask;  // a head's vectors less one
    uint8_t vectors;    // of a packed head
  };
  union {
    uint8_t log_vectors;
    uint8_t heads_a_warp;  // of packed ones
  };
  uint16_t lane_factor;  // of packed heads: lane / vectors = lane * lane_factor >> 16

  char *q_out, *k_out;
  const char *cos, *sin;
  uint32_t q_out_token, k_out_token, out_head, table_token;
  uint8_t rotated, half;  // of a head's vectors those that turn, and half of these
  uint8_t first_negated;  // of the half whose partners change their sign
  Combine combine;

  uint32_t q_batch, k_batch, q_out_batch, k_out_batch, table_batch;
  uint32_t tokens;      // of a batch
  Reciprocal of_batch;  // as of a token
  RopePositions positions;
};
static_assert(offsetof(RopeLanesArgs, q_out) <= rope_first_line, "no more than this line holds");
static_assert(offsetof(RopeLanesArgs, q_batch) <= rope_first_line + rope_line,
              "no more than this line holds");

inline RopeLanesArgs lanes_args(const RopeArgs& a, int64_t vector_elements) {
  const int64_t size = size_of(a.dtype), table_size = size_of(a.table_dtype), heads = a.heads[0] + a.heads[1];
  auto bytes = [](int64_t elements, int64_t element) { return static_cast<uint32_t>(elements * element); };
  RopeLanesArgs v;  // each member is set below: to clear them first takes as long
  v.head = bytes(head_stride(a, a.in), size);
  v.out_head = bytes(head_stride(a, a.out), size);
  v.q = static_cast<const char*>(a.in[0].data);
  v.q_out = static_cast<char*>(a.out[0].data);
  v.q_token = bytes(a.in[0].token, size);
  v.q_batch = bytes(a.in[0].batch, size);
  v.q_out_token = bytes(a.out[0].token, size);
  v.q_out_batch = bytes(a.out[0].batch, size);
  const int64_t before_k = a.heads[1] > 0 ? a.heads[0] : 0;
  v.k = static_cast<const char*>(a.in[1].data) - before_k * v.head;
  v.k_out = static_cast<char*>(a.out[1].data) - before_k * v.out_head;
  v.k_token = bytes(a.in[1].token, size);
  v.k_batch = bytes(a.in[1].batch, size);
  v.k_out_token = bytes(a.out[1].token, size);
  v.k_out_batch = bytes(a.out[1].batch, size);
  v.cos = static_cast<const char*>(a.cos.data);
  v.sin = static_cast<const char*>(a.sin.data);
  v.table_token = bytes(a.cos.token, table_size);
  v.table_batch = bytes(a.cos.batch, table_size);

  v.half = static_cast<uint8_t>(a.rotary_dim / 2 / vector_elements);
  v.rotated = static_cast<uint8_t>(2 * v.half);
  v.first_negated = a.inverse ? v.half : uint8_t{0};
  v.heads = static_cast<uint16_t>(heads);
  v.q_heads = static_cast<uint16_t>(a.heads[0]);
  const int64_t vectors = lane_vectors(a, vector_elements), all_heads = a.batches * a.tokens * heads;
  int64_t of_token;
  if (are_packed(vectors)) {
    v.vectors = static_cast<uint8_t>(vectors);
    v.heads_a_warp = static_cast<uint8_t>(rope_lanes / vectors);
    v.lane_factor = static_cast<uint16_t>(ceil_div(int64_t{1} << 16, vectors));
    v.count = static_cast<uint32_t>(all_heads);
    of_token = 2 * heads;
  } else {
    v.lane_mask = static_cast<uint8_t>(vectors - 1);
    v.log_vectors = 0;
    while (1 << v.log_vectors < vectors) ++v.log_vectors;
    v.lane_factor = 0;
    v.count = static_cast<uint32_t>(all_heads * vectors);
    of_token = vectors * heads;
  }
  const Reciprocal token = reciprocal(of_token);
  v.token_factor = token.factor;
  v.token_shift = token.shift;
  v.batched = a.batches > 1;
  v.of_batch = v.batched ? reciprocal(a.tokens * of_token) : Reciprocal{};
  v.tokens = static_cast<uint32_t>(a.tokens);
  v.in_order = a.positions.data == nullptr;
  v.combine = a.combine;
  v.positions = rope_positions(a);
  return v;
}

inline int64_t lanes_warps(const RopeLanesArgs& v) {
  return v.lane_factor == 0 ? ceil_div(v.count, rope_lanes) : ceil_div(v.count, v.heads_a_warp);
}

}  // namespace bitexact
