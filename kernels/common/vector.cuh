// Moving vectors between memory and registers.
#pragma once

#include <cstdint>

namespace bitexact {

// N elements through the widest accesses that N * sizeof(X) allows. Words, not structs of 16-bit
// members: a copy of those compiles to narrow accesses and halves the speed. The address must be
// aligned to min(16, N * sizeof(X)) bytes.
template <class X, int N>
struct Vector {
  static constexpr int bytes = N * static_cast<int>(sizeof(X));
  static_assert(bytes < 16 ? (bytes & (bytes - 1)) == 0 : bytes % 16 == 0, "no such access");
  union {
    X at[N];
    uint4 quad[bytes < 16 ? 1 : bytes / 16];
    uint2 two;
    uint32_t word[bytes < 4 ? 1 : bytes / 4];
  };
  __device__ Vector() {}
  __device__ static Vector load(const X* from) {
    Vector v;
    if constexpr (bytes >= 16) {
      for (int i = 0; i < bytes / 16; ++i) v.quad[i] = reinterpret_cast<const uint4*>(from)[i];
    } else if constexpr (bytes == 8) {
      v.two = *reinterpret_cast<const uint2*>(from);
    } else if constexpr (bytes == 4) {
      v.word[0] = *reinterpret_cast<const uint32_t*>(from);
    } else {
      v.at[0] = *from;
    }
    return v;
  }
  __device__ void store(X* to) const {
    if constexpr (bytes >= 16) {
      for (int i = 0; i < bytes / 16; ++i) reinterpret_cast<uint4*>(to)[i] = quad[i];
    } else if constexpr (bytes == 8) {
      *reinterpret_cast<uint2*>(to) = two;
    } else if constexpr (bytes == 4) {
      *reinterpret_cast<uint32_t*>(to) = word[0];
    } else {
      *to = at[0];
    }
  }
};

}  // namespace bitexact
