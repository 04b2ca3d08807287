// Arguments of the form of vectors of fused_rope. Plain C++.
#pragma once

#include "fused_rope_fast.h"

namespace bitexact {

// How many pairs a thread takes of a head: as many as its accesses hold members of one kind, or whole pairs.
constexpr int vector_pairs(int64_t size, int64_t table_size, Pairing pairing_in, RopeVariant variant) {
  const int64_t bytes = vector_bytes(size, table_size, pairing_in, variant);
  return static_cast<int>(bytes / size / (pairing_in == Pairing::half ? 1 : 2));
}
// And of how many heads: entries that are many for the elements they serve are to serve several heads. Measured.
constexpr int vector_heads(int64_t size, int64_t table_size, Pairing pairing_in, bool many_heads) {
  const bool wide = size < table_size;
  if (wide && many_heads) return 4;
  return wide || pairing_in != Pairing::half ? 2 : 1;
}
inline bool has_many_heads(const RopeArgs& a) { return a.heads[0] + a.heads[1] > rope_many_heads; }

struct RopeVectorArgs {
  RopeTensors tensors;
  int32_t tokens;
  uint16_t groups, q_groups;  // of both, and of q: a thread takes each `groups`-th head of q or of k
  uint16_t q_heads, k_heads;
  uint16_t head_dim, half, rotary_units;
  bool inverse, keep_tables, by_position;
  bool heads_on_x;  // blocks run through the heads of a token before they come to the next
  RopeSome some;
};
static_assert(offsetof(RopeVectorArgs, some) == sizeof(RopeTensors) + rope_form_bytes,
              "no more than its line holds");

inline RopeVectorArgs vector_args(const RopeArgs& a, RopeVariant variant) {
  const int64_t size = size_of(a.dtype), table_size = size_of(a.table_dtype);
  const int64_t each = vector_heads(size, table_size, a.pairing_in, has_many_heads(a));
  auto groups = [&](int64_t heads) { return (heads + each - 1) / each; };
  auto v = rope_form_args<RopeVectorArgs>(a, groups(a.heads[0]));
  v.tokens = static_cast<int32_t>(a.tokens);
  v.q_groups = static_cast<uint16_t>(groups(a.heads[0]));
  v.groups = static_cast<uint16_t>(v.q_groups + groups(a.heads[1]));
  v.q_heads = static_cast<uint16_t>(a.heads[0]);
  v.k_heads = static_cast<uint16_t>(a.heads[1]);
  v.head_dim = static_cast<uint16_t>(a.head_dim);
  v.half = static_cast<uint16_t>(a.rotary_dim / 2);
  v.rotary_units = static_cast<uint16_t>(v.half / vector_pairs(size, table_size, a.pairing_in, variant));
  return v;
}

}  // namespace bitexact
