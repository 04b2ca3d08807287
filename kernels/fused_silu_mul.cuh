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
#include "common/vector.cuh"

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

// How silu is computed: as the formulas say, or by approximate instructions that, rounded to bfloat16, come to the
// same for every gate. That they do is for the first-use check to show, on each device.
enum class Steps { ieee, fast };

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
template <Form F>
__device__ float clamped_gate(float gate, float limit) {
  return clamp_of(F) == Clamp::before ? at_most<Arithmetic<float>>(gate, limit) : gate;
}

// -------------------------------------------------------------------------- silu, unrounded --

// It is numerator / denominator.
template <Form F>
__device__ float numerator(float gate) {
  return F == Form::sigmoid || F == Form::glu || F == Form::glu_float32 ? 1.0f : gate;
}
template <class X, Form F>
__device__ float denominator(float e) {  // e = exp(-gate)
  if constexpr (F == Form::candle) return widen(round_to<X>(__fadd_rn(1.0f, widen(round_to<X>(e)))));
  return __fadd_rn(1.0f, e);
}

__device__ inline float approximate_reciprocal(float d) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(d));
  return r;
}
// n / d rounded to nearest even, without the checks and the slow path of a general division: Newton steps
// and a last correction by the exact remainder. Right where 1 <= d < 2^126 and n is finite, which tests
// show for every gate there is. The remainder is taken as d * q - n, so that q = -0 stays -0.
__device__ inline float divide_in_range(float n, float d) {
  float r = approximate_reciprocal(d);
  r = __fmaf_rn(__fmaf_rn(-d, r, 1.0f), r, r);
  const float q = __fmul_rn(n, r);
  return __fmaf_rn(-__fmaf_rn(d, q, -n), r, q);
}

// Where 1 + exp(-g), and candle's rounding of it, stay far below 2^126, and approximations close enough.
template <class X, Form F>
constexpr float quick_below = (F == Form::candle && std::is_same<X, f16>::value) ? 8.0f : 64.0f;

// Right for |gate| < quick_below.
template <class X, Form F, Steps S>
__device__ float quick_silu(float gate) {
  const float n = numerator<F>(gate);
  if constexpr (S == Steps::fast) {
    // -log2(e), and a unit more: with the nearest float a gate of candle's form comes out wrong.
    constexpr float scale = -0x1.715478p+0f;
    float e;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(__fmul_rn(gate, scale)));
    return __fmul_rn(n, approximate_reciprocal(denominator<X, F>(e)));
  }
  return divide_in_range(n, denominator<X, F>(expf(-gate)));
}
// Right for any.
template <class X, Form F>
__device__ float silu(float gate) {
  return __fdiv_rn(numerator<F>(gate), denominator<X, F>(expf(-gate)));
}

// ---------------------------------------------------------------------------------- a word --

template <class X>
using Word = typename Arithmetic<X>::Value;  // two elements, or one of float32

template <class X>
__device__ void widen_lanes(Word<X> v, float* to) {
  X lanes[2];
  Arithmetic<X>::store(v, lanes[0], lanes[1]);
  for (int i = 0; i < Arithmetic<X>::lanes; ++i) to[i] = widen(lanes[i]);
}
template <class X>
__device__ Word<X> round_lanes(const float* from) {
  if constexpr (Arithmetic<X>::lanes == 2)
    return round_two_to<X>(from[0], from[1]);
  else
    return from[0];
}

// The greatest magnitude of each lane so far; NaN once there was one.
template <class X>
__device__ Word<X> greatest(Word<X> so_far, Word<X> v) {
  using A = Arithmetic<X>;
  if constexpr (A::lanes == 2) {
    return A::bits(__hmax2_nan(A::two(so_far), A::two(v & 0x7fff7fff)));
  } else {
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(so_far) : "f"(so_far), "f"(fabsf(v)));
    return so_far;
  }
}
template <class X, Form F>
__device__ bool is_quick(X gate) {
  return fabsf(widen(gate)) < quick_below<X, F>;
}
template <class X, Form F>
__device__ bool all_quick(Word<X> greatest) {
  constexpr float limit = quick_below<X, F>;
  float lanes[2] = {};
  widen_lanes<X>(greatest, lanes);
  return lanes[0] < limit && lanes[Arithmetic<X>::lanes - 1] < limit;
}

// `silu_of` computes silu of one gate, unrounded.
template <class X, Form F, class SiluOf>
__device__ Word<X> silu_mul(Word<X> gate, Word<X> up, float limit, SiluOf silu_of) {
  using A = Arithmetic<X>;
  constexpr bool clamps = clamp_of(F) != Clamp::none;
  float s[2], u[2];
  widen_lanes<X>(gate, s);
  for (int i = 0; i < A::lanes; ++i) s[i] = silu_of(clamped_gate<F>(s[i], limit));
  if constexpr (one_rounding(F)) {
    widen_lanes<X>(up, u);
    for (int i = 0; i < A::lanes; ++i)
      s[i] = __fmul_rn(s[i], clamps ? within<Arithmetic<float>>(u[i], limit) : u[i]);
    return round_lanes<X>(s);
  } else {
    const float limits[2] = {limit, limit};
    Word<X> rounded = round_lanes<X>(s);
    if constexpr (F == Form::sigmoid) rounded = A::mul(gate, rounded);
    if constexpr (clamp_of(F) == Clamp::after) rounded = at_most<A>(rounded, round_lanes<X>(limits));
    if constexpr (clamps) up = within<A>(up, round_lanes<X>(limits));
    return A::mul(rounded, up);
  }
}

// One element, any gate.
template <class X, Form F, Steps S>
__device__ X silu_mul(X gate, X up, float limit) {
  using A = Arithmetic<X>;
  const float g = clamped_gate<F>(widen(gate), limit);
  const float s = is_quick<X, F>(gate) ? quick_silu<X, F, S>(g) : silu<X, F>(g);
  X out[2];  // a packed value holds it twice
  A::store(silu_mul<X, F>(A::load(gate, gate), A::load(up, up), limit, [s](float) { return s; }), out[0],
           out[1]);
  return out[0];
}

// N elements without a branch. False, and `out` not to be used, where a gate is too large for that.
template <class X, Form F, Steps S, int N>
__device__ bool quick_silu_mul(const Vector<X, N>& gate, const Vector<X, N>& up, Vector<X, N>& out,
                               float limit) {
  auto word = [](auto& v, int i) -> auto& {
    if constexpr (Arithmetic<X>::lanes == 2)
      return v.word[i];
    else
      return v.at[i];
  };
  Word<X> most{};
#pragma unroll
  for (int i = 0; i < N / Arithmetic<X>::lanes; ++i) {
    word(out, i) = silu_mul<X, F>(word(gate, i), word(up, i), limit, quick_silu<X, F, S>);
    most = greatest<X>(most, word(gate, i));
  }
  return all_quick<X, F>(most);
}

}  // namespace
}  // namespace bitexact
