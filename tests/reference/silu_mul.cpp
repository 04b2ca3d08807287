#include <cmath>
#include <cstring>

#include "numbers.h"
#include "reference.h"

namespace bitexact_reference {
namespace {

// The contract's expf is CUDA's, whose last bit is not always this machine's. In chains that round every step
// to 16 bits that shows for three of all gates: in x * sigmoid(x) of the float16 gates -11/2048 and -19/2048,
// where CUDA's is one step above the nearest float32, and in the sigmoid of -21/2048, where it is one below.
// SHA-256 of PyTorch's own tables pins it.
float exp32(float x) {
  const float nearest = std::exp(x);
  if (x == 11.0f / 2048 || x == 19.0f / 2048) return std::nextafter(nearest, HUGE_VALF);
  return x == 21.0f / 2048 ? std::nextafter(nearest, 0.0f) : nearest;
}

float one_plus_exp(float x) { return add32(1.0f, exp32(-x)); }

float lesser(float a, float b) { return std::isnan(a) ? a : std::fmin(a, b); }
float greater(float a, float b) { return std::isnan(a) ? a : std::fmax(a, b); }

// The limit that the clamp's operators see.
float limit(const bitexact_silu_mul_params& p) {
  float given;
  std::memcpy(&given, &p.limit_bits, sizeof(given));
  return p.compute_dtype == BITEXACT_DTYPE_FLOAT32 ? given : static_cast<float>(rounded(p.dtype, given));
}

// silu of g, rounded to the dtype except where the caller wants float32.
float silu(const bitexact_silu_mul_params& p, float g) {
  const bool keeps_float32 = p.compute_dtype == BITEXACT_DTYPE_FLOAT32;
  auto round_to_x = [&](float value) { return static_cast<float>(rounded(p.dtype, value)); };
  switch (p.silu) {
    case BITEXACT_SILU_GLU: {
      const float sigmoid = divide32(1.0f, one_plus_exp(g));
      return keeps_float32 ? sigmoid : round_to_x(sigmoid);
    }
    case BITEXACT_SILU_SIGMOID: return round_to_x(multiply32(g, round_to_x(divide32(1.0f, one_plus_exp(g)))));
    case BITEXACT_SILU_CANDLE: {
      const float e = round_to_x(exp32(-g));
      const float d = round_to_x(add32(1.0f, e));
      return round_to_x(divide32(g, d));
    }
    default: return keeps_float32 ? silu32(g) : round_to_x(silu32(g));
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
        float g = static_cast<float>(load(p.dtype, p.gate, gate_index));
        float u = static_cast<float>(load(p.dtype, p.up, up_index));
        if (p.clamp == BITEXACT_CLAMP_BEFORE) g = lesser(g, limit(p));
        if (p.clamp != BITEXACT_CLAMP_NONE) u = greater(lesser(u, limit(p)), -limit(p));
        float s = silu(p, g);
        if (p.clamp == BITEXACT_CLAMP_AFTER) s = lesser(s, limit(p));
        store(p.dtype, p.out, out_index, multiply32(s, u));
      }
    }
  }
}

}  // namespace bitexact_reference
