// The arithmetic of fused_rope: one pair. The formulas stand in fused_rope.cuh.
#pragma once

#include "args.h"
#include "common/numeric.cuh"

namespace bitexact {

// One member of a pair, with the table entries c and s of its place. `other` is -x2 for the first member, x1 for the
// second one. Where fused, `combine` says which of a member's two products goes into the fma unrounded.
template <class A, bool Fused>
__device__ typename A::Value rotated(typename A::Value own, typename A::Value other, typename A::Value c,
                                     typename A::Value s, bool second, Combine combine) {
  if constexpr (!Fused) return A::add(A::mul(own, c), A::mul(other, s));
  const bool own_in_first = combine == Combine::complex || combine == Combine::complex_alt;
  const bool own_in_second = combine == Combine::complex_alt || combine == Combine::addcmul_x1;
  const bool own_fused = second ? own_in_second : own_in_first;
  return A::fma(own_fused ? own : other, own_fused ? c : s, own_fused ? A::mul(other, s) : A::mul(own, c));
}

// Both members; one value of each (two packed pairs in the 16-bit types). Not fused it subtracts, since to turn the
// sign of a packed value is an instruction.
template <class A, bool Fused>
__device__ void rotate(typename A::Value x1, typename A::Value x2, typename A::Value c1, typename A::Value s1,
                       typename A::Value c2, typename A::Value s2, Combine combine, typename A::Value& o1,
                       typename A::Value& o2) {
  if constexpr (!Fused) {
    o1 = A::sub(A::mul(x1, c1), A::mul(x2, s1));
    o2 = A::add(A::mul(x2, c2), A::mul(x1, s2));
  } else {
    o1 = rotated<A, true>(x1, A::neg(x2), c1, s1, false, combine);
    o2 = rotated<A, true>(x2, x1, c2, s2, true, combine);
  }
}

}  // namespace bitexact
