#include "check.h"
#include "check_common.h"
#include "params.h"

namespace bitexact {
namespace {

int32_t check_heads(const char* name, const RopeArgs& a, int which, const Heads& heads, NamedRegion& to) {
  return check_tensor(name, heads.data, size_of(a.dtype), a.head_dim,
                      {{a.heads[which], heads.head}, {a.tokens, heads.token}, {a.batches, heads.batch}}, to);
}

int32_t check_table(const char* name, const RopeArgs& a, int64_t width, const Table& table, NamedRegion& to) {
  const int64_t heads = a.heads[0] > a.heads[1] ? a.heads[0] : a.heads[1];
  const int64_t rows = a.positions.data != nullptr ? a.table_rows : a.tokens;
  return check_tensor(
      name, table.data, size_of(a.table_dtype), 1,
      {{width, table.element}, {heads, table.head}, {rows, table.token}, {a.batches, table.batch}}, to);
}

int32_t check_positions(const RopeArgs& a, NamedRegion& to) {
  return check_tensor("positions", a.positions.data, size_of(a.positions.dtype), 1,
                      {{a.tokens, a.positions.token}, {a.batches, a.positions.batch}}, to);
}

bool in_place(const RopeArgs& a, int which) {
  const Heads &in = a.in[which], &out = a.out[which];
  return a.pairing_in == a.pairing_out && out.data == in.data &&
         (a.heads[which] <= 1 || out.head == in.head) && (a.tokens <= 1 || out.token == in.token) &&
         (a.batches <= 1 || out.batch == in.batch);
}

// PyTorch's promotion of x and the table, or what was named instead, where that is no narrower.
int32_t resolve_compute_dtype(const bitexact_rope_params& p, RopeArgs& a) {
  a.compute_dtype = a.table_dtype;
  if (p.compute_dtype == 0) return BITEXACT_STATUS_OK;
  if (p.compute_dtype != BITEXACT_DTYPE_FLOAT32 && p.compute_dtype != BITEXACT_DTYPE_FLOAT64) {
    return fail(BITEXACT_STATUS_INVALID_VALUE, "compute_dtype is %d; accepted: 0, FLOAT32 (1), FLOAT64 (4)",
                p.compute_dtype);
  }
  const auto named = static_cast<Dtype>(p.compute_dtype);
  if (size_of(named) < size_of(a.table_dtype)) {
    return fail(
        BITEXACT_STATUS_INVALID_VALUE,
        "compute_dtype is FLOAT32 with FLOAT64 tables; accepted: 0, FLOAT64 (tables are never converted)");
  }
  a.compute_dtype = named;
  return BITEXACT_STATUS_OK;
}

int32_t check_numerics(const bitexact_rope_params& p, RopeArgs& a) {
  BITEXACT_TRY(check_flags(p.flags, BITEXACT_ROPE_INVERSE | BITEXACT_ROPE_SUM_FROM_ZERO));
  BITEXACT_TRY(check_zero(p.reserved, "reserved"));
  BITEXACT_TRY(check_tensor_dtype(p.dtype));
  if (p.table_dtype != 0 && p.table_dtype != p.dtype && p.table_dtype != BITEXACT_DTYPE_FLOAT32 &&
      p.table_dtype != BITEXACT_DTYPE_FLOAT64) {
    return fail(BITEXACT_STATUS_INVALID_VALUE,
                "table_dtype is %d with dtype %d; accepted: 0, dtype itself, FLOAT32 (1), FLOAT64 (4)",
                p.table_dtype, p.dtype);
  }
  BITEXACT_TRY(check_range(p.combine, BITEXACT_COMBINE_ADDCMUL_X1, "combine"));
  BITEXACT_TRY(check_range(p.pairing_in, BITEXACT_PAIRING_INTERLEAVED, "pairing_in"));
  BITEXACT_TRY(check_range(p.pairing_out, BITEXACT_PAIRING_INTERLEAVED, "pairing_out"));
  if ((p.flags & BITEXACT_ROPE_SUM_FROM_ZERO) != 0 && p.combine != BITEXACT_COMBINE_SEPARATE) {
    return fail(BITEXACT_STATUS_UNSUPPORTED,
                "flag SUM_FROM_ZERO with combine %d; accepted: combine SEPARATE (0)", p.combine);
  }
  a.dtype = static_cast<Dtype>(p.dtype);
  a.table_dtype = static_cast<Dtype>(p.table_dtype != 0 ? p.table_dtype : p.dtype);
  a.combine = static_cast<Combine>(p.combine);
  a.pairing_in = static_cast<Pairing>(p.pairing_in);
  a.pairing_out = static_cast<Pairing>(p.pairing_out);
  a.inverse = (p.flags & BITEXACT_ROPE_INVERSE) != 0;
  a.sum_from_zero = (p.flags & BITEXACT_ROPE_SUM_FROM_ZERO) != 0;
  return resolve_compute_dtype(p, a);
}

int32_t check_shape(const bitexact_rope_params& p, RopeArgs& a, bool& empty) {
  BITEXACT_TRY(check_size(p.batches, "batches"));
  BITEXACT_TRY(check_size(p.tokens, "tokens"));
  BITEXACT_TRY(check_size(p.q_heads, "q_heads"));
  BITEXACT_TRY(check_size(p.k_heads, "k_heads"));
  BITEXACT_TRY(check_size(p.head_dim, "head_dim"));
  BITEXACT_TRY(check_size(p.table_rows, "table_rows"));
  if (p.rotary_dim < 0 || p.rotary_dim > p.head_dim || p.rotary_dim % 2 != 0) {
    return fail(BITEXACT_STATUS_INVALID_SHAPE,
                "rotary_dim is %" PRId64 "; accepted: even, 0 to head_dim (%" PRId64 ")", p.rotary_dim,
                p.head_dim);
  }
  if (p.table_width != p.rotary_dim && p.table_width != p.rotary_dim / 2) {
    return fail(BITEXACT_STATUS_INVALID_SHAPE,
                "table_width is %" PRId64 "; accepted: rotary_dim (%" PRId64 ") or its half", p.table_width,
                p.rotary_dim);
  }
  if (p.q_heads > INT64_MAX - p.k_heads) {
    return fail(BITEXACT_STATUS_TOO_LARGE, "q_heads + k_heads is beyond 63 bits; accepted: less");
  }
  empty = p.batches == 0 || p.tokens == 0 || p.head_dim == 0 || p.q_heads + p.k_heads == 0;
  if (!empty && p.positions == nullptr && p.rotary_dim > 0 && p.table_rows < p.tokens) {
    return fail(BITEXACT_STATUS_INVALID_SHAPE,
                "table_rows is %" PRId64 "; accepted without positions: >= tokens (%" PRId64 ")",
                p.table_rows, p.tokens);
  }
  a.batches = p.batches;
  a.tokens = p.tokens;
  a.heads[0] = p.q_heads;
  a.heads[1] = p.k_heads;
  a.head_dim = p.head_dim;
  a.rotary_dim = p.rotary_dim;
  a.table_rows = p.table_rows;
  a.full_table = p.table_width == p.rotary_dim;
  return BITEXACT_STATUS_OK;
}

int32_t check_positions_dtype(const bitexact_rope_params& p) {
  if (p.positions == nullptr) {
    if (p.positions_dtype == 0) return BITEXACT_STATUS_OK;
    return fail(BITEXACT_STATUS_INVALID_VALUE, "positions_dtype is %d without positions; accepted: 0",
                p.positions_dtype);
  }
  if (p.positions_dtype == BITEXACT_DTYPE_INT32 || p.positions_dtype == BITEXACT_DTYPE_INT64) {
    return BITEXACT_STATUS_OK;
  }
  return fail(BITEXACT_STATUS_INVALID_VALUE, "positions_dtype is %d; accepted: INT32 (5), INT64 (6)",
              p.positions_dtype);
}

// Where everything lies; outputs may meet nothing else.
int32_t check_memory(const RopeArgs& a, int64_t table_width) {
  static const char* const in_names[] = {"q_in", "k_in"};
  static const char* const out_names[] = {"q_out", "k_out"};
  NamedRegion in[2], out[2], cos, sin, positions;
  bool same[2] = {false, false};  // in place
  const bool rotates = a.rotary_dim > 0;
  for (int i = 0; i < 2; ++i) {
    if (a.heads[i] == 0) continue;
    BITEXACT_TRY(check_heads(in_names[i], a, i, a.in[i], in[i]));
    same[i] = in_place(a, i);
    if (same[i])
      out[i] = {out_names[i], in[i].region};
    else
      BITEXACT_TRY(check_heads(out_names[i], a, i, a.out[i], out[i]));
    BITEXACT_TRY(check_output(out[i]));
  }
  if (rotates) {
    BITEXACT_TRY(check_table("cos", a, table_width, a.cos, cos));
    BITEXACT_TRY(check_table("sin", a, table_width, a.sin, sin));
    if (a.positions.data != nullptr) BITEXACT_TRY(check_positions(a, positions));
  }
  // Each pair of tensors once: an output in place is an input too.
  for (int i = 0; i < 2; ++i) {
    if (a.heads[i] == 0) continue;
    for (int k = 0; k < 2; ++k) {
      if (a.heads[k] == 0 || (k == i && same[i]) || (k < i && same[0] && same[1])) continue;
      BITEXACT_TRY(check_disjoint(out[i], in[k]));
    }
    if (!rotates) continue;
    BITEXACT_TRY(check_disjoint(out[i], cos));
    BITEXACT_TRY(check_disjoint(out[i], sin));
    if (a.positions.data != nullptr) BITEXACT_TRY(check_disjoint(out[i], positions));
  }
  if (a.heads[0] > 0 && a.heads[1] > 0 && !same[0] && !same[1]) BITEXACT_TRY(check_disjoint(out[0], out[1]));
  return BITEXACT_STATUS_OK;
}

int32_t check_fields(const bitexact_rope_params& p, RopeArgs& a, bool& empty) {
  BITEXACT_TRY(check_numerics(p, a));
  BITEXACT_TRY(check_positions_dtype(p));
  BITEXACT_TRY(check_shape(p, a, empty));
  // The kernels do not write to what they only read.
  a.in[0] = {const_cast<void*>(p.q_in), p.q_in_batch_stride, p.q_in_token_stride, p.q_in_head_stride};
  a.in[1] = {const_cast<void*>(p.k_in), p.k_in_batch_stride, p.k_in_token_stride, p.k_in_head_stride};
  a.out[0] = {p.q_out, p.q_out_batch_stride, p.q_out_token_stride, p.q_out_head_stride};
  a.out[1] = {p.k_out, p.k_out_batch_stride, p.k_out_token_stride, p.k_out_head_stride};
  // What a call does not read is not checked either, and so must not reach the dispatcher.
  a.cos = a.sin = {};
  a.positions = {};
  if (p.rotary_dim > 0) {
    a.cos = {p.cos, p.cos_batch_stride, p.cos_token_stride, p.cos_head_stride, p.cos_element_stride};
    a.sin = {p.sin, p.sin_batch_stride, p.sin_token_stride, p.sin_head_stride, p.sin_element_stride};
    a.positions = {p.positions, p.positions_batch_stride, p.positions_token_stride,
                   static_cast<Dtype>(p.positions_dtype)};
  }
  a.position_errors = nullptr;
  return BITEXACT_STATUS_OK;
}

}  // namespace

int32_t check(const bitexact_rope_params* params, RopeArgs& a, bool& empty) {
  bitexact_rope_params space;
  const bitexact_rope_params* p;
  BITEXACT_TRY(read_in(params, "params", space, p));
  BITEXACT_TRY(check_fields(*p, a, empty));
  if (empty) return BITEXACT_STATUS_OK;
  BITEXACT_TRY(check_memory(a, p->table_width));
  collapse(a);
  return BITEXACT_STATUS_OK;
}

int32_t check(const bitexact_rope_reference* reference, const bitexact_rope_params* params, RopeArgs& to) {
  bitexact_rope_reference r;
  BITEXACT_TRY(copy_in(reference, "reference", r));
  BITEXACT_TRY(check_flags(r.flags, 0));
  bitexact_rope_params p;
  BITEXACT_TRY(copy_in(params, "params", p));
  bool empty = false;
  BITEXACT_TRY(check_fields(p, to, empty));
  to.out[0] = {const_cast<void*>(r.q), r.q_batch_stride, r.q_token_stride, r.q_head_stride};
  to.out[1] = {const_cast<void*>(r.k), r.k_batch_stride, r.k_token_stride, r.k_head_stride};
  static const char* const names[] = {"reference->q", "reference->k"};
  for (int i = 0; i < 2; ++i) {
    NamedRegion region;
    if (to.heads[i] > 0) BITEXACT_TRY(check_heads(names[i], to, i, to.out[i], region));
  }
  return BITEXACT_STATUS_OK;
}

}  // namespace bitexact
