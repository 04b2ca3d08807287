#include "silu_mul.h"

#include <algorithm>

namespace libbitexact {

namespace {

// The axes of gate, up and out (and of what is expected, for a check) as batches, rows and columns; the same axes
// in the same order for all.
int fold(const View& gate, const View& up, const View& out, const View& expected, bitexact_silu_mul_params& p,
         bitexact_silu_mul_reference& r) {
  using Strides = std::array<int64_t, 4>;
  struct Axis {
    int64_t size;
    Strides strides;
  };
  std::array<Axis, max_dims + 1> axes;
  int count = 0;
  for (int d = 0; d < out.ndim; ++d) {
    if (out.shape[d] == 0) return 0;  // all sizes stay zero
    if (out.shape[d] == 1) continue;
    axes[count++] = {out.shape[d], {gate.strides[d], up.strides[d], out.strides[d], expected.strides[d]}};
  }
  std::stable_sort(axes.begin(), axes.begin() + count,
                   [](const Axis& a, const Axis& b) { return a.strides[2] > b.strides[2]; });
  int kept = 0;
  for (int d = 0; d < count; ++d) {
    const Axis inner = axes[d];
    bool joins = kept > 0;
    for (size_t t = 0; joins && t < inner.strides.size(); ++t)
      joins = axes[kept - 1].strides[t] == inner.strides[t] * inner.size;
    if (joins) {
      axes[kept - 1] = {axes[kept - 1].size * inner.size, inner.strides};
    } else {
      axes[kept++] = inner;
    }
  }
  const Strides dense = {1, 1, 1, 1};
  if (kept == 0 || axes[kept - 1].strides != dense) {
    if (kept > 2) return bad_layout;
    axes[kept++] = {1, dense};
  }
  if (kept > 3) return bad_layout;
  p.cols = axes[kept - 1].size;
  p.rows = p.batches = 1;
  if (kept > 1) {
    const auto& [size, s] = axes[kept - 2];
    p.rows = size, p.gate_row_stride = s[0], p.up_row_stride = s[1], p.out_row_stride = s[2];
    r.out_row_stride = s[3];
  }
  if (kept > 2) {
    const auto& [size, s] = axes[kept - 3];
    p.batches = size, p.gate_batch_stride = s[0], p.up_batch_stride = s[1], p.out_batch_stride = s[2];
    r.out_batch_stride = s[3];
  }
  return 0;
}

}  // namespace

int make_params(const View& gate, const View& up, const View& out, const View& expected, const SiluSpec& spec,
                bitexact_silu_mul_params& p, bitexact_silu_mul_reference& r) {
  if (!is_floating(gate)) return bad_dtype;
  for (const View* other : {&up, &out, &expected})
    if (const int code = same_kind(gate, *other)) return code;
  p = BITEXACT_SILU_MUL_PARAMS_INIT;
  p.dtype = gate.dtype;
  p.silu = spec.silu;
  p.compute_dtype = spec.compute;
  p.clamp = spec.clamp;
  p.limit_bits = spec.limit_bits;
  p.gate = gate.data;
  p.up = up.data;
  p.out = out.data;
  r = BITEXACT_SILU_MUL_REFERENCE_INIT;
  r.out = expected.data;
  return fold(gate, up, out, expected, p, r);
}

}  // namespace libbitexact
