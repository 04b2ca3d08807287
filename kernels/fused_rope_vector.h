// Arguments of the fast form of fused_rope, as short as can be: what a kernel must read of them delays the few
// tokens of a decoding step. Plain C++.
#pragma once

#include "args.h"
#include "variants.h"

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

// Strides in bytes, but those of positions, and of batches of heads in units of batch_unit.
struct RopeVectorArgs {
  struct Side {  // q, k
    const char* in;
    char* out;
    int32_t in_batch, in_token, in_head, out_batch, out_token, out_head;
    int32_t heads, groups;  // a thread takes each `groups`-th head
  } side[2];
  struct {
    const char* data;
    int32_t batch, token;
  } cos, sin;
  const void* positions;
  int64_t table_rows;
  unsigned long long* position_errors;
  int32_t positions_batch, positions_token, positions_wide;
  int32_t tokens, groups, head_dim, rotary_units, half, table_half_bytes;
  int32_t inverse, keep_tables;
  int32_t heads_on_x;  // blocks run through the heads of a token before they come to the next
  int32_t vectors;     // in the form of lanes: of a head
  Combine combine;
};

inline RopeVectorArgs vector_args(const RopeArgs& a, RopeVariant variant) {
  const int64_t size = size_of(a.dtype), table_size = size_of(a.table_dtype);
  const auto bytes = [](int64_t stride, int64_t each) { return static_cast<int32_t>(stride * each); };
  const bool lanes = variant == RopeVariant::vec16_lanes;
  const int32_t each = lanes ? 1 : vector_heads(size, table_size, a.pairing_in, has_many_heads(a));
  RopeVectorArgs v = {};
  for (int s = 0; s < 2; ++s) {
    if (a.heads[s] == 0) continue;
    const Heads &in = a.in[s], &out = a.out[s];
    const int32_t heads = static_cast<int32_t>(a.heads[s]);
    v.side[s] = {static_cast<const char*>(in.data),
                 static_cast<char*>(out.data),
                 static_cast<int32_t>(in.batch * size / batch_unit),
                 bytes(in.token, size),
                 bytes(in.head, size),
                 static_cast<int32_t>(out.batch * size / batch_unit),
                 bytes(out.token, size),
                 bytes(out.head, size),
                 heads,
                 (heads + each - 1) / each};
  }
  v.groups = v.side[0].groups + v.side[1].groups;
  v.cos = {static_cast<const char*>(a.cos.data), bytes(a.cos.batch, table_size),
           bytes(a.cos.token, table_size)};
  v.sin = {static_cast<const char*>(a.sin.data), bytes(a.sin.batch, table_size),
           bytes(a.sin.token, table_size)};
  v.positions = a.positions.data;
  v.positions_batch = static_cast<int32_t>(a.positions.batch);
  v.positions_token = static_cast<int32_t>(a.positions.token);
  v.positions_wide = a.positions.dtype == Dtype::int64;
  v.table_rows = a.table_rows;
  v.position_errors = a.position_errors;
  v.tokens = static_cast<int32_t>(a.tokens);
  v.head_dim = static_cast<int32_t>(a.head_dim);
  v.half = static_cast<int32_t>(a.rotary_dim / 2);
  v.rotary_units = v.half / vector_pairs(size, table_size, a.pairing_in, variant);
  v.table_half_bytes = bytes(a.rotary_dim / 2, table_size);
  v.inverse = a.inverse;
  v.keep_tables = table_bytes(a) <= rope_kept_bytes;
  v.combine = a.combine;
  return v;
}

}  // namespace bitexact
