// Number types and the arithmetic on them. Every operation names its rounding: the `_rn` intrinsics are
// never contracted, by nvcc, by ptxas or by the driver's JIT, which plain operators are.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

namespace bitexact {

struct bf16 {
  uint16_t bits;
};
struct f16 {
  uint16_t bits;
};

__device__ inline float widen(bf16 x) { return __uint_as_float(uint32_t{x.bits} << 16); }
__device__ inline float widen(f16 x) { return __half2float(__ushort_as_half(x.bits)); }
__device__ inline float widen(float x) { return x; }
__device__ inline double widen(double x) { return x; }

// To nearest even; subnormals kept; every NaN becomes 0x7fff or 0x7fffffff.
template <class X>
__device__ X round_to(float x);
template <>
__device__ inline bf16 round_to<bf16>(float x) {
  return {__bfloat16_as_ushort(__float2bfloat16_rn(x))};
}
template <>
__device__ inline f16 round_to<f16>(float x) {
  return {__half_as_ushort(__float2half_rn(x))};
}
template <>
__device__ inline float round_to<float>(float x) {
  return x;
}

// Two at once, as one word.
template <class X>
__device__ uint32_t round_two_to(float lo, float hi) {
  const auto two = [&] {
    if constexpr (std::is_same<X, bf16>::value)
      return __floats2bfloat162_rn(lo, hi);
    else
      return __floats2half2_rn(lo, hi);
  }();
  return *reinterpret_cast<const uint32_t*>(&two);
}

// -------------------------------------------------------------------------------- arithmetic --

// A value of compute dtype C: one number, or two packed 16-bit ones, whose packed multiply and add equal the
// float32 operation rounded to 16 bits on all 2^32 pairs of inputs.
template <class C>
struct Arithmetic;

template <>
struct Arithmetic<float> {
  using Value = float;
  static constexpr int lanes = 1;
  template <class X>
  static __device__ Value load(X x, X) {
    return widen(x);
  }
  template <class X>
  static __device__ void store(Value v, X& x, X&) {
    x = round_to<X>(v);
  }
  static __device__ Value mul(Value a, Value b) { return __fmul_rn(a, b); }
  static __device__ Value add(Value a, Value b) { return __fadd_rn(a, b); }
  static __device__ Value sub(Value a, Value b) { return __fsub_rn(a, b); }
  static __device__ Value fma(Value a, Value b, Value c) { return __fmaf_rn(a, b, c); }
  static __device__ Value neg(Value a) { return -a; }
  static __device__ Value zero() { return 0.0f; }
  static __device__ Value nan() { return __int_as_float(0x7fffffff); }
};

template <>
struct Arithmetic<double> {
  using Value = double;
  static constexpr int lanes = 1;
  template <class X>
  static __device__ Value load(X x, X) {
    return widen(x);
  }
  template <class X>  // through float32, as PyTorch's cast does; float64 NaNs keep a payload until here
  static __device__ void store(Value v, X& x, X&) {
    x = round_to<X>(isnan(v) ? __int_as_float(0x7fffffff) : __double2float_rn(v));
  }
  static __device__ Value mul(Value a, Value b) { return __dmul_rn(a, b); }
  static __device__ Value add(Value a, Value b) { return __dadd_rn(a, b); }
  static __device__ Value sub(Value a, Value b) { return __dsub_rn(a, b); }
  static __device__ Value fma(Value a, Value b, Value c) { return __fma_rn(a, b, c); }
  static __device__ Value neg(Value a) { return -a; }
  static __device__ Value zero() { return 0.0; }
  static __device__ Value nan() { return __longlong_as_double(0x7fffffffffffffffll); }
};

// `Two` is CUDA's packed type. fma rounds to float32, then to 16 bits.
template <class C, class Two>
struct Packed {
  using Value = uint32_t;
  static constexpr int lanes = 2;
  static __device__ Value load(C lo, C hi) { return lo.bits | uint32_t{hi.bits} << 16; }
  static __device__ void store(Value v, C& lo, C& hi) {
    lo.bits = static_cast<uint16_t>(v);
    hi.bits = static_cast<uint16_t>(v >> 16);
  }
  static __device__ Two two(Value v) { return *reinterpret_cast<Two*>(&v); }
  static __device__ Value bits(Two t) { return *reinterpret_cast<Value*>(&t); }
  static __device__ Value mul(Value a, Value b) { return bits(__hmul2_rn(two(a), two(b))); }
  static __device__ Value add(Value a, Value b) { return bits(__hadd2_rn(two(a), two(b))); }
  static __device__ Value sub(Value a, Value b) { return bits(__hsub2_rn(two(a), two(b))); }
  static __device__ Value fma(Value a, Value b, Value c) {
    C x[2], y[2], z[2];
    store(a, x[0], x[1]);
    store(b, y[0], y[1]);
    store(c, z[0], z[1]);
    for (int i = 0; i < 2; ++i) x[i] = round_to<C>(__fmaf_rn(widen(x[i]), widen(y[i]), widen(z[i])));
    return load(x[0], x[1]);
  }
  static __device__ Value neg(Value a) { return a ^ 0x80008000u; }
  static __device__ Value zero() { return 0; }
  static __device__ Value nan() { return 0x7fff7fff; }
};
template <>
struct Arithmetic<bf16> : Packed<bf16, __nv_bfloat162> {};
template <>
struct Arithmetic<f16> : Packed<f16, __half2> {};

}  // namespace bitexact
