#include <cmath>

#include "numbers.h"
#include "reference.h"

namespace bitexact_reference {
namespace {

// The contract's expf is CUDA's, whose last bit is not always this machine's. In chains that round every step
// to 16 bits that shows for two of all gates: in x * sigmoid(x) of the float16 gates -11/2048 and -19/2048,
// where CUDA's is one step above the nearest float32. SHA-256 of PyTorch's own tables pins it.
float exp32(float x) {
  const float nearest = std::exp(x);
  return x == 11.0f / 2048 || x == 19.0f / 2048 ? std::nextafter(nearest, HUGE_VALF) : nearest;
}

float one_plus_exp(float x) { return add32(1.0f, exp32(-x)); }

// silu of g, rounded to the dtype except where the caller wants float32.
float silu(const bitexact_silu_mul_params& p, float g) {
  auto round_to_x = [&](float value) { return static_cast<float>(rounded(p.dtype, value)); };
  switch (p.silu) {
    case BITEXACT_SILU_SIGMOID: return round_to_x(multiply32(g, round_to_x(divide32(1.0f, one_plus_exp(g)))));
    case BITEXACT_SILU_CANDLE: {
      const float e = round_to_x(exp32(-g));
      const float d = round_to_x(add32(1.0f, e));
      return round_to_x(divide32(g, d));
    }
    default: return p.compute_dtype == BITEXACT_DTYPE_FLOAT32 ? silu32(g) : round_to_x(silu32(g));
  }
}

}  // namespace

float silu32(float x) { return divide32(x, one_plus_exp(x)); }

void silu_mul(const bitexact_silu_mul_params& p) {
  for (int64_t b = 0; b < p.batches; ++b) {
    for (int64_t r = 0; r < p.rows; ++r) {
      for (int64_t c = 0; c < p.cols; ++c) {
        const int64_t gate_index = b * p.gate_batch_stride + r * p.gate_row_stride + c;
        const int64_t up_index = b * p.up_batch_stride + r * p.up_row_stride + c;
        const int64_t out_index = b * p.out_batch_stride + r * p.out_row_stride + c;
        const float g = static_cast<float>(load(p.dtype, p.gate, gate_index));
        const float u = static_cast<float>(load(p.dtype, p.up, up_index));
        store(p.dtype, p.out, out_index, multiply32(silu(p, g), u));
      }
    }
  }
}

}  // namespace bitexact_reference
