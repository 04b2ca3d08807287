// What the fast forms of fused_rope get in common. Plain C++.
//
// A kernel waits for each 64 bytes of arguments that it comes to, which the few tokens of a decoding step feel. CUDA
// puts them 16 bytes behind the begin of such a line (on sm_90): in the first 48 bytes and the next 64, of which a form
// has 24 for itself, stands what every thread needs, and behind them what some calls need.
#pragma once

#include <cstddef>

#include "args.h"
#include "variants.h"

namespace bitexact {

// Strides in bytes. Heads of k are numbered behind those of q, also from `k` and `k_out` on.
struct RopeTensors {
  const char *q, *k, *cos, *sin;
  int32_t q_token, k_token, q_head, k_head;
  char *q_out, *k_out;
  int32_t q_out_token, k_out_token, q_out_head, k_out_head;
  int32_t cos_token, sin_token;
};
constexpr size_t rope_form_bytes = 48 + 64 - sizeof(RopeTensors);
static_assert(rope_form_bytes == 24, "without gaps");

// Strides of batches of heads in units of batch_unit, of positions in elements.
struct RopeSome {
  int32_t q_batch, k_batch, q_out_batch, k_out_batch, cos_batch, sin_batch;
  const void* positions;
  int64_t table_rows;
  unsigned long long* position_errors;
  int32_t positions_batch, positions_token;
  bool positions_wide;
  Combine combine;
};

// `first_k`: number of the first head of k.
inline RopeTensors rope_tensors(const RopeArgs& a, int64_t first_k) {
  const int64_t size = size_of(a.dtype), table_size = size_of(a.table_dtype);
  RopeTensors v = {};
  auto place = [&](const Heads& x, int64_t first, int32_t& token, int32_t& head) {
    token = static_cast<int32_t>(x.token * size);
    head = static_cast<int32_t>(x.head * size);
    return static_cast<char*>(x.data) - first * head;
  };
  if (a.heads[0] > 0) {
    v.q = place(a.in[0], 0, v.q_token, v.q_head);
    v.q_out = place(a.out[0], 0, v.q_out_token, v.q_out_head);
  }
  if (a.heads[1] > 0) {
    v.k = place(a.in[1], first_k, v.k_token, v.k_head);
    v.k_out = place(a.out[1], first_k, v.k_out_token, v.k_out_head);
  }
  v.cos = static_cast<const char*>(a.cos.data);
  v.sin = static_cast<const char*>(a.sin.data);
  v.cos_token = static_cast<int32_t>(a.cos.token * table_size);
  v.sin_token = static_cast<int32_t>(a.sin.token * table_size);
  return v;
}

inline RopeSome rope_some(const RopeArgs& a) {
  const int64_t table_size = size_of(a.table_dtype);
  auto batch = [&](const Heads& x) { return static_cast<int32_t>(x.batch * size_of(a.dtype) / batch_unit); };
  RopeSome v = {};
  if (a.heads[0] > 0) v.q_batch = batch(a.in[0]), v.q_out_batch = batch(a.out[0]);
  if (a.heads[1] > 0) v.k_batch = batch(a.in[1]), v.k_out_batch = batch(a.out[1]);
  v.cos_batch = static_cast<int32_t>(a.cos.batch * table_size);
  v.sin_batch = static_cast<int32_t>(a.sin.batch * table_size);
  v.positions = a.positions.data;
  v.table_rows = a.table_rows;
  v.position_errors = a.position_errors;
  v.positions_batch = static_cast<int32_t>(a.positions.batch);
  v.positions_token = static_cast<int32_t>(a.positions.token);
  v.positions_wide = a.positions.dtype == Dtype::int64;
  v.combine = a.combine;
  return v;
}

// What the arguments of every form have, `tensors` to `some`.
template <class FormArgs>
FormArgs rope_form_args(const RopeArgs& a, int64_t first_k) {
  FormArgs v = {};
  v.tensors = rope_tensors(a, first_k);
  v.inverse = a.inverse;
  v.keep_tables = table_bytes(a) <= rope_kept_bytes;
  v.by_position = a.positions.data != nullptr;
  v.some = rope_some(a);
  return v;
}

}  // namespace bitexact
