// Sums over the threads of a warp, all of which have to call.
#pragma once

namespace bitexact {

__device__ inline unsigned long long warp_sum(unsigned long long x) {
  for (int offset = 16; offset > 0; offset /= 2) x += __shfl_xor_sync(0xffffffffu, x, offset);
  return x;
}

}  // namespace bitexact
