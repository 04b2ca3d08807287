// The arithmetic of fused_rope: one pair. The formulas stand in fused_rope.cuh.
#pragma once

#include "args.h"
#include "common/numeric.cuh"

namespace bitexact {

// One value of each (two packed pairs in the 16-bit types).
template <class A, bool Fused>
__device__ void rotate(typename A::Value x1, typename A::Value x2, typename A::Value c1, typename A::Value s1,
                       typename A::Value c2, typename A::Value s2, Combine combine, typename A::Value& o1,
                       typename A::Value& o2) {
  if constexpr (!Fused) {
    o1 = A::sub(A::mul(x1, c1), A::mul(x2, s1));
    o2 = A::add(A::mul(x2, c2), A::mul(x1, s2));
  } else {
    // Which product of each output goes into the fma unrounded.
    const bool cos1 = combine == Combine::complex || combine == Combine::complex_alt;
    const bool sin2 = combine == Combine::complex || combine == Combine::addcmul_cos;
    const auto negative_x2 = A::neg(x2);
    o1 = A::fma(cos1 ? x1 : negative_x2, cos1 ? c1 : s1, cos1 ? A::mul(negative_x2, s1) : A::mul(x1, c1));
    o2 = A::fma(sin2 ? x1 : x2, sin2 ? s2 : c2, sin2 ? A::mul(x2, c2) : A::mul(x1, s2));
  }
}

}  // namespace bitexact
