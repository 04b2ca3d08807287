// Small kernels under the names of real ones. tools/sass_check must complain about those of the first part, each
// for the one thing that its comment says, and about none of the second.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace bitexact {

struct bf16 {};
struct f16 {};
struct RopeArgs {
  float* f;
  double* d;
  __nv_bfloat162* b;
  __half2* h;
  int64_t* i;
};
using SiluMulArgs = RopeArgs;
using CompareArgs = RopeArgs;
struct Comparison;
enum class Layout { scalar, half };
enum class Form { aten, aten_float32, sigmoid, candle };
enum class Steps { ieee, fast };

template <class X, class T, class C, Layout L, bool Fused>
__global__ void fused_rope(RopeArgs a);
template <class X, Form F, int N, Steps S>
__global__ void fused_silu_mul_scalar(SiluMulArgs a);

// What silu is made of, by Newton steps and by the formula.
__device__ float divide(float n, float d) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(d));
  r = __fmaf_rn(__fmaf_rn(-d, r, 1.0f), r, r);
  const float q = __fmul_rn(n, r);
  return __fmaf_rn(-__fmaf_rn(d, q, -n), r, q);
}
__device__ float quick(float g) { return divide(g, __fadd_rn(1.0f, expf(-g))); }
__device__ float formula(float g) { return __fdiv_rn(g, __fadd_rn(1.0f, expf(-g))); }

// What fast steps are allowed, once an element.
__device__ float approximate(float g) {
  float e, r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(__fmul_rn(g, -1.442695f)));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(__fadd_rn(1.0f, e)));
  return __fmul_rn(g, r);
}

// ------------------------------------------------------------------------------------ defects --

// Contractions that a compiler makes of operators.
template <>
__global__ void fused_rope<float, float, float, Layout::scalar, false>(RopeArgs a) {
  a.f[0] = a.f[1] * a.f[2] + a.f[3];
}
template <>
__global__ void fused_rope<float, double, double, Layout::scalar, false>(RopeArgs a) {
  a.d[0] = a.d[1] * a.d[2] - a.d[3];
}
// Operators on 16-bit types, which no flag protects in PTX.
template <>
__global__ void fused_rope<bf16, bf16, bf16, Layout::scalar, false>(RopeArgs a) {
  a.b[0] = __hsub2(__hmul2(a.b[1], a.b[2]), a.b[3]);
}
template <>
__global__ void fused_rope<f16, f16, f16, Layout::scalar, false>(RopeArgs a) {
  a.h[0] = __hadd2(__hmul2(a.h[1], a.h[2]), a.h[3]);
}
// An fma more, and one less, than the combine names.
template <>
__global__ void fused_rope<float, float, float, Layout::scalar, true>(RopeArgs a) {
  for (int i = 0; i < 3; ++i) a.f[i] = __fmaf_rn(a.f[i + 3], a.f[i + 6], a.f[i + 9]);
}
template <>
__global__ void fused_rope<f16, float, float, Layout::scalar, true>(RopeArgs a) {
  a.f[0] = __fmaf_rn(a.f[1], a.f[2], a.f[3]);
}
// float32 multiply-adds where float64 ones are named.
template <>
__global__ void fused_rope<float, float, double, Layout::scalar, true>(RopeArgs a) {
  for (int i = 0; i < 2; ++i) a.f[i] = __fmaf_rn(a.f[i + 3], a.f[i + 6], a.f[i + 9]);
}
// Subnormals flushed; a product rounded towards zero; a result cut; a sum kept within [0, 1].
template <>
__global__ void fused_rope<bf16, float, float, Layout::scalar, false>(RopeArgs a) {
  asm("mul.rn.ftz.f32 %0, %0, %0;" : "+f"(a.f[0]));
}
template <>
__global__ void fused_rope<f16, float, float, Layout::scalar, false>(RopeArgs a) {
  a.f[0] = __fmul_rz(a.f[1], a.f[2]);
}
template <>
__global__ void fused_rope<bf16, bf16, float, Layout::scalar, false>(RopeArgs a) {
  a.b[0].x = __float2bfloat16_rz(a.f[1]);
}
template <>
__global__ void fused_rope<f16, f16, float, Layout::scalar, false>(RopeArgs a) {
  asm("add.rn.sat.f32 %0, %0, %0;" : "+f"(a.f[0]));
}
// Approximations: a reciprocal where none is named, a tangent, an exponential without its range reduction, and
// a division by another way.
template <>
__global__ void fused_rope<bf16, bf16, double, Layout::scalar, false>(RopeArgs a) {
  asm("rcp.approx.ftz.f32 %0, %0;" : "+f"(a.f[0]));
}
template <>
__global__ void fused_rope<f16, f16, double, Layout::scalar, false>(RopeArgs a) {
  asm("tanh.approx.f32 %0, %0;" : "+f"(a.f[0]));
}
template <>
__global__ void fused_silu_mul_scalar<bf16, Form::aten, 1, Steps::ieee>(SiluMulArgs a) {
  float e = a.f[0];
  asm("ex2.approx.ftz.f32 %0, %0;" : "+f"(e));
  a.f[0] = divide(a.f[1], __fadd_rn(1.0f, e));
  a.f[4] = formula(a.f[2]);
}
template <>
__global__ void fused_silu_mul_scalar<f16, Form::aten, 1, Steps::ieee>(SiluMulArgs a) {
  a.f[0] = quick(a.f[1]);
  a.f[4] = formula(a.f[2]);
  asm("div.full.f32 %0, %1, %2;" : "=f"(a.f[5]) : "f"(a.f[1]), "f"(a.f[2]));
}
// A contraction beside a right silu; another one of its products.
template <>
__global__ void fused_silu_mul_scalar<float, Form::aten, 1, Steps::ieee>(SiluMulArgs a) {
  a.f[0] = __fmaf_rn(quick(a.f[1]), a.f[2], a.f[3]);
  a.f[4] = formula(a.f[2]);
}
// -0 lost: nobody asked this form to add +0.
template <>
__global__ void fused_silu_mul_scalar<bf16, Form::sigmoid, 1, Steps::ieee>(SiluMulArgs a) {
  a.f[0] = quick(a.f[1]);
  a.f[4] = formula(a.f[2]);
  a.b[0] = __hfma2(a.b[1], __float2bfloat162_rn(1.0f), __float2bfloat162_rn(0.0f));
}
// Fast steps where IEEE ones are named, and of an element more than there is.
template <>
__global__ void fused_silu_mul_scalar<float, Form::sigmoid, 1, Steps::ieee>(SiluMulArgs a) {
  a.f[0] = __fmul_rn(quick(a.f[1]), approximate(a.f[3]));
  a.f[4] = formula(a.f[2]);
}
template <>
__global__ void fused_silu_mul_scalar<bf16, Form::aten, 1, Steps::fast>(SiluMulArgs a) {
  a.f[0] = __fmul_rn(approximate(a.f[1]), approximate(a.f[3]));
  a.f[4] = formula(a.f[2]);
}
// Nobody knows it.
__global__ void extra(RopeArgs a) { a.f[0] = __fadd_rn(a.f[1], a.f[2]); }

// ----------------------------------------------------------------------------------- harmless --

// Single operations, which the assembler writes as multiply-adds by 1, by -1 or with -0, and constants.
template <>
__global__ void fused_rope<bf16, bf16, bf16, Layout::half, false>(RopeArgs a) {
  a.b[0] = __hsub2_rn(__hmul2_rn(a.b[1], a.b[2]), __hmul2_rn(a.b[3], a.b[4]));
  a.b[1] = __hadd2_rn(__hmul2_rn(a.b[1], a.b[4]), __hmul2_rn(a.b[3], a.b[2]));
  a.b[2] = __hadd2_rn(a.b[0], __float2bfloat162_rn(0.0f));
  a.b[3] = __float2bfloat162_rn(1.0f);
}
template <>
__global__ void fused_rope<f16, f16, f16, Layout::half, false>(RopeArgs a) {
  a.h[0] = __hsub2_rn(__hmul2_rn(a.h[1], a.h[2]), __hmul2_rn(a.h[3], a.h[4]));
  a.h[1] = __hadd2_rn(a.h[0], __float2half2_rn(0.0f));
}
template <>
__global__ void fused_rope<float, float, float, Layout::half, false>(RopeArgs a) {
  a.f[0] = __fsub_rn(__fmul_rn(a.f[1], a.f[2]), __fmul_rn(a.f[3], a.f[4]));
}
// The multiply-adds that the combine names.
template <>
__global__ void fused_rope<bf16, float, float, Layout::scalar, true>(RopeArgs a) {
  for (int i = 0; i < 2; ++i) a.f[i] = __fmaf_rn(a.f[i + 3], a.f[i + 6], a.f[i + 9]);
}
template <>
__global__ void fused_rope<bf16, float, double, Layout::scalar, true>(RopeArgs a) {
  for (int i = 0; i < 2; ++i) a.d[i] = __fma_rn(a.d[i + 3], a.d[i + 6], a.d[i + 9]);
}
// expf and an IEEE division, with the code for its rare operands.
template <>
__global__ void fused_silu_mul_scalar<f16, Form::sigmoid, 1, Steps::ieee>(SiluMulArgs a) {
  a.f[0] = quick(a.f[1]);
  a.f[4] = formula(a.f[2]);
}
template <>
__global__ void fused_silu_mul_scalar<f16, Form::candle, 1, Steps::ieee>(SiluMulArgs a) {
  a.f[0] = quick(a.f[1]);
  a.f[4] = formula(a.f[2]);
}
template <>
__global__ void fused_silu_mul_scalar<bf16, Form::candle, 1, Steps::fast>(SiluMulArgs a) {
  a.f[0] = approximate(a.f[1]);
  a.f[4] = formula(a.f[2]);
}
// Index arithmetic: integer quotients are estimated in float32.
__global__ void compare(CompareArgs a, Comparison*) { a.i[0] = a.i[1] / a.i[2] % a.i[3]; }

}  // namespace bitexact
