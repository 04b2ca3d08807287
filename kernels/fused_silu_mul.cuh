// The arithmetic of out = silu(gate) * up, with every rounding of the eager chain.
//
// With x the dtype, rX rounding to x, r32 to float32 (to nearest even, subnormals kept):
//   aten          s = rX(r32(g / r32(1 + expf(-g))))                out = rX(s * u)
//   aten_float32  s = r32(g / r32(1 + expf(-g)))                    out = rX(r32(s * u))
//   sigmoid       s = rX(g * rX(r32(1 / r32(1 + expf(-g)))))        out = rX(s * u)
//   candle        s = rX(r32(g / rX(r32(1 + rX(expf(-g))))))        out = rX(s * u)
//   glu           s = rX(r32(1 / r32(1 + expf(-g))))                out = rX(s * u)
//   glu_float32   s = r32(1 / r32(1 + expf(-g)))                    out = rX(r32(s * u))
// expf is CUDA's accurate one, the division IEEE. `aten` is torch.nn.functional.silu, then a multiply.
// With L the limit, rounded to x, or in aten_float32 as it is, and min and max that give a NaN back:
//   before   min(g, L) stands for g, max(min(u, L), -L) for u
//   after    min(s, L) stands for s, max(min(u, L), -L) for u
#pragma once

#include <type_traits>

#include "args.h"
#include "common/numeric.cuh"

namespace bitexact {
namespace {

enum class Form {
  aten,
  aten_float32,
  sigmoid,
  candle,
  glu,
  glu_float32,
  aten_before,
  aten_float32_before,
  aten_after
};

constexpr bool one_rounding(Form f) {
  return f == Form::aten_float32 || f == Form::glu_float32 || f == Form::aten_float32_before;
}
constexpr Clamp clamp_of(Form f) {
  if (f == Form::aten_before || f == Form::aten_float32_before) return Clamp::before;
  return f == Form::aten_after ? Clamp::after : Clamp::none;
}

// ---------------------------------------------------------------------------------- clamp --

// A NaN stays, as in torch.clamp.
template <class A>
__device__ typename A::Value at_most(typename A::Value v, typename A::Value limit) {
  if constexpr (A::lanes == 2) {
    return A::bits(__hmin2_nan(A::two(v), A::two(limit)));
  } else {
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(v) : "f"(v), "f"(limit));
    return v;
  }
}
template <class A>
__device__ typename A::Value within(typename A::Value v, typename A::Value limit) {
  v = at_most<A>(v, limit);
  if constexpr (A::lanes == 2) {
    return A::bits(__hmax2_nan(A::two(v), A::two(A::neg(limit))));
  } else {
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(v) : "f"(v), "f"(-limit));
    return v;
  }
}

// The limit as the operator takes it.
template <class X, Form F>
__device__ float limit_of(float limit) {
  return one_rounding(F) ? limit : widen(round_to<X>(limit));
}
template <Form F, class X>
__device__ float clamped_gate(X gate, float limit) {
  const float g = widen(gate);
  return clamp_of(F) == Clamp::before ? at_most<Arithmetic<float>>(g, limit) : g;
}

// ------------------------------------------------------------------------------- scalar op --

// silu before its last rounding is numerator / denominator.
template <Form F, class X>
__device__ float numerator(X gate, float limit) {
  if (F == Form::sigmoid || F == Form::glu || F == Form::glu_float32) return 1.0f;
  return clamped_gate<F>(gate, limit);
}
template <Form F, class X>
__device__ float denominator(X gate, float limit) {
  const float e = expf(-clamped_gate<F>(gate, limit));
  if constexpr (F == Form::candle) return widen(round_to<X>(__fadd_rn(1.0f, widen(round_to<X>(e)))));
  return __fadd_rn(1.0f, e);
}

// n / d rounded to nearest even, without the checks and the slow path of a general division: Newton steps
// and a last correction by the exact remainder. Right where 1 <= d < 2^126 and n is finite, which tests
// show for every gate there is. The remainder is taken as d * q - n, so that q = -0 stays -0.
__device__ inline float divide_in_range(float n, float d) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(d));
  r = __fmaf_rn(__fmaf_rn(-d, r, 1.0f), r, r);
  const float q = __fmul_rn(n, r);
  return __fmaf_rn(-__fmaf_rn(d, q, -n), r, q);
}
// The gates for which that holds: 1 + exp(-g), and candle's rounding of it, stay below 2^126. (NaN needs no
// care: it comes out of the Newton steps as it went in.)
template <class X, Form F>
__device__ bool in_range(float greatest_gate) {
  return greatest_gate < (F == Form::candle && std::is_same<X, f16>::value ? 11.0f : 87.0f);
}

// From the quotient to the result, for two elements, or for one of float32: as many as Arithmetic<X> packs.
template <class X, Form F>
__device__ void finish(const float* quotient, const X* gate, const X* up, X* out, float limit) {
  using A = Arithmetic<X>;
  constexpr int last = A::lanes - 1;
  constexpr bool clamps = clamp_of(F) != Clamp::none;
  if constexpr (one_rounding(F)) {
    for (int i = 0; i <= last; ++i) {
      const float u = widen(up[i]);
      out[i] = round_to<X>(__fmul_rn(quotient[i], clamps ? within<Arithmetic<float>>(u, limit) : u));
    }
  } else {
    const auto rounded = [](float lo, float hi) {
      if constexpr (last == 1)
        return round_two_to<X>(lo, hi);
      else
        return lo;
    };
    auto s = rounded(quotient[0], quotient[last]);
    if constexpr (F == Form::sigmoid) s = A::mul(A::load(gate[0], gate[last]), s);
    if constexpr (clamp_of(F) == Clamp::after) s = at_most<A>(s, rounded(limit, limit));
    auto u = A::load(up[0], up[last]);
    if constexpr (clamps) u = within<A>(u, rounded(limit, limit));
    A::store(A::mul(s, u), out[0], out[last]);
  }
}

// One element, any gate (NaN is in no range). The second lane of a packed value repeats it.
template <class X, Form F>
__device__ X silu_mul(X gate, X up, float limit) {
  const float n = numerator<F>(gate, limit), d = denominator<F>(gate, limit);
  const bool quick = in_range<X, F>(fabsf(clamped_gate<F>(gate, limit)));
  const float q = quick ? divide_in_range(n, d) : __fdiv_rn(n, d);
  const float quotient[2] = {q, q};
  const X g[2] = {gate, gate}, u[2] = {up, up};
  X o[2];
  finish<X, F>(quotient, g, u, o, limit);
  return o[0];
}

// Two elements without a branch; right if in_range() holds for `greatest_gate` afterwards, as it nearly
// always does.
template <class X, Form F>
__device__ void quick_silu_mul(const X* gate, const X* up, X* out, float limit, float& greatest_gate) {
  float quotient[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    quotient[i] = divide_in_range(numerator<F>(gate[i], limit), denominator<F>(gate[i], limit));
    greatest_gate = fmaxf(greatest_gate, fabsf(clamped_gate<F>(gate[i], limit)));
  }
#pragma unroll
  for (int i = 0; i < 2; i += Arithmetic<X>::lanes) {
    finish<X, F>(quotient + i, gate + i, up + i, out + i, limit);
  }
}

}  // namespace
}  // namespace bitexact
