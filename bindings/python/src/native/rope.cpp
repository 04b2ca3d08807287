#include "rope.h"

#include <algorithm>
#include <utility>

namespace libbitexact {

namespace {

struct Axes {
  int batch, token, head;  // -1: absent
};

// Axes of a tensor of this many dimensions; its last one is the head's.
bool axes_of(int ndim, bool heads_first, Axes& axes) {
  if (ndim < 2 || ndim > 4) return false;
  axes.batch = ndim == 4 ? 0 : -1;
  const int first = ndim == 4 ? 1 : 0;
  axes.token = ndim == 2 ? 0 : heads_first ? first + 1 : first;
  axes.head = ndim == 2 ? -1 : heads_first ? first : first + 1;
  return true;
}

int64_t size_at(const View& view, int axis) { return axis < 0 ? 1 : view.shape[axis]; }
int64_t stride_at(const View& view, int axis) {
  return axis < 0 || view.shape[axis] == 1 ? 0 : view.strides[axis];
}
int64_t last_stride(const View& view) {
  return view.shape[view.ndim - 1] <= 1 ? 1 : view.strides[view.ndim - 1];
}

struct Strides {
  int64_t batch, token, head;
};

Strides strides_of(const View& view, const Axes& axes) {
  return {stride_at(view, axes.batch), stride_at(view, axes.token), stride_at(view, axes.head)};
}

// The axes of a table: those of the tensor if it has as many, else [batch,] row, width.
bool table_axes(const View& table, const View& q, const Axes& of_q, bool gathered, Axes& axes) {
  if (table.ndim == q.ndim && !gathered) {
    axes = of_q;
    return true;
  }
  if (table.ndim == 2) {
    axes = {-1, 0, -1};
    return true;
  }
  if (table.ndim == 3 && q.ndim == 4 && !gathered) {
    axes = {0, 1, -1};
    return true;
  }
  return false;
}

bool broadcasts(int64_t size, int64_t to) { return size == to || size == 1; }

int set_k(const View& k, const View& k_out, const View& q, const Axes& axes, bitexact_rope_params& p) {
  if (const int code = same_kind(k, k_out)) return code;
  if (k.device != q.device) return bad_device;
  if (k.dtype != q.dtype) return bad_dtype;
  if (k.ndim != q.ndim || size_at(k, axes.batch) != p.batches || size_at(k, axes.token) != p.tokens ||
      k.shape[k.ndim - 1] != p.head_dim)
    return bad_shape;
  p.k_heads = size_at(k, axes.head);
  Strides s = strides_of(k, axes);
  p.k_in = k.data, p.k_in_batch_stride = s.batch, p.k_in_token_stride = s.token, p.k_in_head_stride = s.head;
  s = strides_of(k_out, axes);
  p.k_out = k_out.data, p.k_out_batch_stride = s.batch, p.k_out_token_stride = s.token;
  p.k_out_head_stride = s.head;
  return 0;
}

// Two real tables; the parts of a complex one have become such.
int set_tables(const RopeSpec& spec, const View& q, const Axes& axes, const View& cos, const View& sin,
               bool gathered, bitexact_rope_params& p) {
  if (cos.device != q.device || sin.device != q.device) return bad_device;
  if (cos.dtype != sin.dtype || cos.dtype >= BITEXACT_DTYPE_INT32) return bad_dtype;
  Axes of_cos, of_sin;
  if (!table_axes(cos, q, axes, gathered, of_cos) || !table_axes(sin, q, axes, gathered, of_sin))
    return bad_shape;
  const int64_t given = cos.shape[cos.ndim - 1], width = spec.first_half ? given / 2 : given,
                rows = size_at(cos, of_cos.token);
  if (sin.shape[sin.ndim - 1] != given || size_at(sin, of_sin.token) != rows) return bad_shape;
  for (const auto& [table, of] : {std::pair{&cos, &of_cos}, std::pair{&sin, &of_sin}}) {
    if (!broadcasts(size_at(*table, of->batch), p.batches)) return bad_shape;
    if (!gathered && !broadcasts(size_at(*table, of->token), p.tokens)) return bad_shape;
    const int64_t heads = size_at(*table, of->head);
    if (!broadcasts(heads, p.q_heads) || (p.k_heads > 0 && !broadcasts(heads, p.k_heads))) return bad_shape;
  }
  p.table_dtype = cos.dtype;
  p.rotary_dim = rotary_dim_of(spec, cos);
  p.table_width = width;
  // One row for all tokens: stride 0 makes it as many as are needed.
  p.table_rows = !gathered && rows == 1 ? std::max<int64_t>(p.tokens, 1) : rows;
  Strides s = strides_of(cos, of_cos);
  p.cos = cos.data, p.cos_batch_stride = s.batch, p.cos_token_stride = s.token, p.cos_head_stride = s.head;
  p.cos_element_stride = cos.is_complex || width > 1 ? cos.strides[cos.ndim - 1] : 1;
  s = strides_of(sin, of_sin);
  p.sin = sin.data, p.sin_batch_stride = s.batch, p.sin_token_stride = s.token, p.sin_head_stride = s.head;
  p.sin_element_stride = cos.is_complex || width > 1 ? sin.strides[sin.ndim - 1] : 1;
  return 0;
}

int set_positions(const View& positions, const View& q, bitexact_rope_params& p) {
  const int last = positions.ndim - 1;
  if (positions.device != q.device) return bad_device;
  if (positions.dtype != BITEXACT_DTYPE_INT32 && positions.dtype != BITEXACT_DTYPE_INT64) return bad_dtype;
  if (positions.ndim < 1 || positions.ndim > 2 || positions.shape[last] != p.tokens) return bad_shape;
  if (positions.ndim == 2 && !broadcasts(positions.shape[0], p.batches)) return bad_shape;
  p.positions = positions.data;
  p.positions_dtype = positions.dtype;
  p.positions_token_stride = stride_at(positions, last);
  p.positions_batch_stride = positions.ndim == 2 ? stride_at(positions, 0) : 0;
  return 0;
}

}  // namespace

int64_t rotary_dim_of(const RopeSpec& spec, const View& cos) {
  const int64_t width = cos.ndim > 0 ? cos.shape[cos.ndim - 1] : 0;
  if (spec.rotary_dim >= 0) return spec.rotary_dim;
  return cos.is_complex || spec.rotary_dim == -2 ? 2 * width : width;
}

int make_params(const RopeSpec& spec, const View& q, const View* k, const View& cos, const View* sin,
                const View* positions, const View& q_out, const View* k_out, bitexact_rope_params& p) {
  if (!is_floating(q)) return bad_dtype;
  Axes axes;
  if (!axes_of(q.ndim, spec.heads_first, axes)) return bad_shape;
  if (const int code = same_kind(q, q_out)) return code;
  for (const View* view : {&q, &q_out, k, k_out})
    if (view != nullptr && last_stride(*view) != 1) return bad_layout;

  p = BITEXACT_ROPE_PARAMS_INIT;
  p.flags = spec.flags;
  p.dtype = q.dtype;
  p.compute_dtype = spec.compute;
  p.combine = spec.combine;
  p.pairing_in = spec.pairing_in;
  p.pairing_out = spec.pairing_out;
  p.batches = size_at(q, axes.batch);
  p.tokens = size_at(q, axes.token);
  p.q_heads = size_at(q, axes.head);
  p.head_dim = q.shape[q.ndim - 1];
  Strides s = strides_of(q, axes);
  p.q_in = q.data, p.q_in_batch_stride = s.batch, p.q_in_token_stride = s.token, p.q_in_head_stride = s.head;
  s = strides_of(q_out, axes);
  p.q_out = q_out.data, p.q_out_batch_stride = s.batch, p.q_out_token_stride = s.token;
  p.q_out_head_stride = s.head;

  if (k != nullptr)
    if (const int code = set_k(*k, *k_out, q, axes, p)) return code;
  if (cos.is_complex == (sin != nullptr) || (sin != nullptr && sin->is_complex)) return bad_dtype;
  View second = sin != nullptr ? *sin : cos;
  if (cos.is_complex) second.data += cos.size;
  if (const int code = set_tables(spec, q, axes, cos, second, positions != nullptr, p)) return code;
  return positions != nullptr ? set_positions(*positions, q, p) : 0;
}

}  // namespace libbitexact
