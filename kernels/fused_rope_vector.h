// Arguments of the form of vectors of fused_rope. Plain C++.
#pragma once

#include "common/launch.h"
#include "fused_rope_fast.h"
#include "variants.h"

namespace bitexact {

// How many pairs a thread takes of a head: as many as its accesses hold members of one kind, or whole pairs.
constexpr int vector_pairs(int64_t size, int64_t table_size, Pairing pairing_in, RopeVariant variant) {
  const int64_t bytes = vector_bytes(size, table_size, pairing_in, variant);
  return static_cast<int>(bytes / size / (pairing_in == Pairing::half ? 1 : 2));
}
// And of how many heads: entries that are many for the elements they serve are to serve several heads. Measured.
constexpr int vector_heads(int64_t size, int64_t table_size, Pairing pairing_in) {
  return size < table_size || pairing_in != Pairing::half ? 2 : 1;
}

// Strides in bytes, of batches of heads in units of batch_unit. Heads of k are numbered behind those of q, also from
// `k` and `k_out` on.
struct RopeVectorArgs {
  const char *q, *k, *cos, *sin;
  int32_t q_token, k_token, q_head, k_head;

  char *q_out, *k_out;
  int32_t q_out_token, k_out_token, q_out_head, k_out_head;
  int32_t cos_token, sin_token;
  int32_t tokens;
  uint16_t groups, q_groups;  // of both, and of q: a thread takes each `groups`-th head of q or of k
  uint16_t q_heads, k_heads;
  uint16_t head_dim, half, rotary_units;
  bool inverse, keep_tables, by_position;
  uint8_t log_head_blocks, head_mask;  // of the blocks that share a token and follow each other, and less one
  Combine combine;

  int32_t q_batch, k_batch, q_out_batch, k_out_batch, cos_batch, sin_batch;
  RopePositions positions;
};
static_assert(offsetof(RopeVectorArgs, q_out) == rope_first_line, "no more than this line holds");
static_assert(offsetof(RopeVectorArgs, combine) == rope_first_line + rope_line,
              "no more than this line holds");

inline RopeVectorArgs vector_args(const RopeArgs& a, RopeVariant variant) {
  const int64_t size = size_of(a.dtype), table_size = size_of(a.table_dtype);
  const int64_t each = vector_heads(size, table_size, a.pairing_in);
  auto groups = [&](int64_t heads) { return ceil_div(heads, each); };
  RopeVectorArgs v = {};
  v.q_groups = static_cast<uint16_t>(groups(a.heads[0]));
  v.groups = static_cast<uint16_t>(v.q_groups + groups(a.heads[1]));
  auto place = [&](const Heads& x, int64_t first, int32_t& token, int32_t& head, int32_t& batch) {
    token = static_cast<int32_t>(x.token * size);
    head = static_cast<int32_t>(x.head * size);
    batch = static_cast<int32_t>(x.batch * size / batch_unit);
    return static_cast<char*>(x.data) - first * head;
  };
  if (a.heads[0] > 0) {
    v.q = place(a.in[0], 0, v.q_token, v.q_head, v.q_batch);
    v.q_out = place(a.out[0], 0, v.q_out_token, v.q_out_head, v.q_out_batch);
  }
  if (a.heads[1] > 0) {
    v.k = place(a.in[1], v.q_groups, v.k_token, v.k_head, v.k_batch);
    v.k_out = place(a.out[1], v.q_groups, v.k_out_token, v.k_out_head, v.k_out_batch);
  }
  v.cos = static_cast<const char*>(a.cos.data);
  v.sin = static_cast<const char*>(a.sin.data);
  v.cos_token = static_cast<int32_t>(a.cos.token * table_size);
  v.sin_token = static_cast<int32_t>(a.sin.token * table_size);
  v.cos_batch = static_cast<int32_t>(a.cos.batch * table_size);
  v.sin_batch = static_cast<int32_t>(a.sin.batch * table_size);
  v.tokens = static_cast<int32_t>(a.tokens);
  v.q_heads = static_cast<uint16_t>(a.heads[0]);
  v.k_heads = static_cast<uint16_t>(a.heads[1]);
  v.head_dim = static_cast<uint16_t>(a.head_dim);
  v.half = static_cast<uint16_t>(a.rotary_dim / 2);
  v.rotary_units = static_cast<uint16_t>(v.half / vector_pairs(size, table_size, a.pairing_in, variant));
  v.inverse = a.inverse;
  v.keep_tables = table_bytes(a) <= rope_kept_bytes;
  v.by_position = a.positions.data != nullptr;
  v.combine = a.combine;
  v.positions = rope_positions(a);
  return v;
}

}  // namespace bitexact
