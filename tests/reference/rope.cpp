#include <cmath>
#include <vector>

#include "numbers.h"
#include "reference.h"

namespace bitexact_reference {
namespace {

// q or k: what differs between the two.
struct Tensor {
  int64_t heads;
  const void* in;
  int64_t in_batch, in_token, in_head;
  void* out;
  int64_t out_batch, out_token, out_head;
};

struct Pair {
  double first = 0, second = 0;
};

int32_t or_else(int32_t dtype, int32_t fallback) {
  return dtype == BITEXACT_DTYPE_DEFAULT ? fallback : dtype;
}

// PyTorch's promotion: the wider of the two dtypes.
int32_t promoted(int32_t dtype, int32_t table_dtype) {
  for (int32_t wide : {BITEXACT_DTYPE_FLOAT64, BITEXACT_DTYPE_FLOAT32}) {
    if (dtype == wide || table_dtype == wide) return wide;
  }
  return dtype;
}

// Where member 0 or 1 of pair j lies in a head.
int64_t place(int32_t pairing, int64_t rotary_dim, int64_t j, int member) {
  return pairing == BITEXACT_PAIRING_INTERLEAVED ? 2 * j + member : j + member * (rotary_dim / 2);
}

// (x1, x2) turned by (c1, s1) for the first result and (c2, s2) for the second, in the compute dtype.
Pair combined(const bitexact_rope_params& p, int32_t compute, Pair x, Pair c, Pair s) {
  const double x1 = x.first, x2 = x.second, c1 = c.first, c2 = c.second, s1 = s.first, s2 = s.second;
  const bool from_zero = (p.flags & BITEXACT_ROPE_SUM_FROM_ZERO) != 0;
  auto times = [&](double a, double b) { return multiply(compute, a, b); };
  auto plus = [&](double a, double b) { return add(compute, a, b, from_zero); };
  auto fma = [&](double a, double b, double addend) {
    return multiply_add(compute, a, b, addend, from_zero);
  };
  switch (p.combine) {
    case BITEXACT_COMBINE_COMPLEX: return {fma(x1, c1, -times(x2, s1)), fma(x1, s2, times(x2, c2))};
    case BITEXACT_COMBINE_COMPLEX_ALT: return {fma(x1, c1, -times(x2, s1)), fma(x2, c2, times(x1, s2))};
    case BITEXACT_COMBINE_ADDCMUL_COS: return {fma(-x2, s1, times(x1, c1)), fma(x1, s2, times(x2, c2))};
    case BITEXACT_COMBINE_ADDCMUL_X1: return {fma(-x2, s1, times(x1, c1)), fma(x2, c2, times(x1, s2))};
    default: return {plus(times(x1, c1), -times(x2, s1)), plus(times(x2, c2), times(x1, s2))};
  }
}

int64_t table_row(const bitexact_rope_params& p, int64_t b, int64_t t) {
  if (p.positions == nullptr) return t;
  const int64_t index = b * p.positions_batch_stride + t * p.positions_token_stride;
  return p.positions_dtype == BITEXACT_DTYPE_INT32 ? static_cast<const int32_t*>(p.positions)[index]
                                                   : static_cast<const int64_t*>(p.positions)[index];
}

void rotate_head(const bitexact_rope_params& p, const Tensor& tensor, int64_t b, int64_t t, int64_t h,
                 int64_t row, bool row_exists) {
  const int32_t table_dtype = or_else(p.table_dtype, p.dtype);
  const int32_t compute = or_else(p.compute_dtype, promoted(p.dtype, table_dtype));
  const int64_t in = b * tensor.in_batch + t * tensor.in_token + h * tensor.in_head;
  const int64_t out = b * tensor.out_batch + t * tensor.out_token + h * tensor.out_head;
  // Strides of a table that is not read may be anything.
  const bool reads = row_exists && p.rotary_dim > 0;
  const int64_t cos = reads ? b * p.cos_batch_stride + row * p.cos_token_stride + h * p.cos_head_stride : 0;
  const int64_t sin = reads ? b * p.sin_batch_stride + row * p.sin_token_stride + h * p.sin_head_stride : 0;
  const bool entry_per_element = p.table_width == p.rotary_dim;

  // Computed as a whole before anything is written, so that in place needs no thought.
  std::vector<Pair> results;
  for (int64_t j = 0; j < p.rotary_dim / 2; ++j) {
    if (!row_exists) {
      results.push_back({NAN, NAN});
      continue;
    }
    Pair x, c, s;
    for (int member : {0, 1}) {
      const int64_t d = place(p.pairing_in, p.rotary_dim, j, member);
      const int64_t entry = entry_per_element ? d : j;
      const double sine = load(table_dtype, p.sin, sin + entry * p.sin_element_stride);
      (member == 0 ? x.first : x.second) = load(p.dtype, tensor.in, in + d);
      (member == 0 ? c.first : c.second) = load(table_dtype, p.cos, cos + entry * p.cos_element_stride);
      (member == 0 ? s.first : s.second) = (p.flags & BITEXACT_ROPE_INVERSE) != 0 ? -sine : sine;
    }
    results.push_back(combined(p, compute, x, c, s));
  }
  for (int64_t j = 0; j < p.rotary_dim / 2; ++j) {
    const Pair result = results[static_cast<size_t>(j)];
    store(p.dtype, tensor.out, out + place(p.pairing_out, p.rotary_dim, j, 0), result.first);
    store(p.dtype, tensor.out, out + place(p.pairing_out, p.rotary_dim, j, 1), result.second);
  }
  for (int64_t d = p.rotary_dim; d < p.head_dim; ++d) copy(p.dtype, tensor.in, in + d, tensor.out, out + d);
}

}  // namespace

void rope(const bitexact_rope_params& p, int64_t* position_errors) {
  const Tensor q{p.q_heads,          p.q_in,  p.q_in_batch_stride,  p.q_in_token_stride,
                 p.q_in_head_stride, p.q_out, p.q_out_batch_stride, p.q_out_token_stride,
                 p.q_out_head_stride};
  const Tensor k{p.k_heads,          p.k_in,  p.k_in_batch_stride,  p.k_in_token_stride,
                 p.k_in_head_stride, p.k_out, p.k_out_batch_stride, p.k_out_token_stride,
                 p.k_out_head_stride};
  const bool rotates = p.rotary_dim > 0;
  for (int64_t b = 0; b < p.batches; ++b) {
    for (int64_t t = 0; t < p.tokens; ++t) {
      // Without a rotated element no table row is asked for, so none can be missing.
      const bool writes = rotates && q.heads + k.heads > 0;
      const int64_t row = writes ? table_row(p, b, t) : 0;
      const bool row_exists = p.positions == nullptr || (row >= 0 && row < p.table_rows);
      if (writes && !row_exists && position_errors != nullptr) ++*position_errors;
      for (const Tensor& tensor : {q, k}) {
        for (int64_t h = 0; h < tensor.heads; ++h) {
          rotate_head(p, tensor, b, t, h, row_exists ? row : 0, row_exists);
        }
      }
    }
  }
}

}  // namespace bitexact_reference
