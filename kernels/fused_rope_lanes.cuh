// The form of fused_rope for half pairing whose thread takes one vector of one head, as that of a copy does, and has
// the other members of its pairs from another lane of its warp.
#pragma once

#include "fused_rope_lanes.h"
#include "fused_rope_pair.cuh"
#include "fused_rope_place.cuh"
#include "fused_rope_registers.cuh"

namespace bitexact {

// Of a block: small ones, which follow each other as those of a copy do. Measured.
constexpr int lanes_threads = 128;

// N: elements that a thread takes.
template <class X, class T, class C, bool Full, bool Fused, int N>
__global__ void __maxnreg__(32) fused_rope_lanes(const __grid_constant__ RopeLanesArgs a) {
  using A = Arithmetic<C>;
  constexpr int M = N / A::lanes, bytes = N * static_cast<int>(sizeof(X)), words = bytes / 4;
  const int lane = threadIdx.x % rope_lanes, unit = lane & ((1 << a.log_width) - 1);
  const uint32_t n = (blockIdx.x * lanes_threads + threadIdx.x) >> a.log_width;
  if (n >= a.total || unit >= a.vectors) return;
  const int t = __umulhi(n, a.of_heads.factor) >> a.of_heads.shift, h = n - t * a.heads, b = blockIdx.z;
  const Place at(a.some, b, t, h, h >= a.q_heads, unit * bytes);

  Vector<X, N> own, other, out;
  // Before the row is known, which may have to be read too.
  load_now(own, at.input(a.tensors));
  int row;
  const bool outside = !table_row(a.some, a.by_position, b, t, row);
  // The tail's threads read entries too, so that the others of their warp need not wait for them.
  const bool tail = unit >= a.rotated, second = unit >= a.half;
  const int entry = tail ? 0 : Full ? unit : chosen(second, unit, unit - a.half);
  Vector<T, N> cos_entries, sin_entries;
  if (!outside) {
    const uint64_t policy = table_policy(a.keep_tables);
    const int of_entry = entry * Vector<T, N>::bytes;
    load_kept(cos_entries, at.cos(a.tensors, row, of_entry), policy);
    load_kept(sin_entries, at.sin(a.tensors, row, of_entry), policy);
  }
  const int other_lane = tail ? lane : chosen(second, lane + a.half, lane - a.half);
#pragma unroll
  for (int w = 0; w < words; ++w) other.word[w] = __shfl_sync(0xffffffff, own.word[w], other_lane);

  X* const to = reinterpret_cast<X*>(at.output(a.tensors));
  if (outside) {
    if (!tail) {
#pragma unroll
      for (int i = 0; i < N; ++i) own.at[i] = round_to<X>(__int_as_float(0x7fffffff));
    }
    own.store(to);
    if (unit == 0 && h == 0) count_outside(a.some);
    return;
  }
  if (tail) return own.store(to);
  const bool negative = second == a.inverse;
  typename A::Value x[M], y[M], c[M], s[M], o[M];
  to_values<C, M>(own, x);
  to_values<C, M>(other, y);
  to_values<C, M>(cos_entries, c);
  to_values<C, M>(sin_entries, s);
#pragma unroll
  for (int m = 0; m < M; ++m) {
    o[m] = rotated<A, Fused>(x[m], negative ? A::neg(y[m]) : y[m], c[m], s[m], second, a.some.combine);
  }
  pack<C, M>(o, out);
  out.store(to);
}

}  // namespace bitexact
