// The form of fused_rope for half pairing whose thread takes one vector of one head, as that of a copy does, and has
// the other members of its pairs from another lane of its warp.
#pragma once

#include "fused_rope_pair.cuh"
#include "fused_rope_place.cuh"
#include "fused_rope_registers.cuh"
#include "fused_rope_vector.h"

namespace bitexact {

// N: elements that a thread takes. A block is as wide as the next power of two to the vectors of a head, so that a
// warp has whole heads.
template <class X, class T, class C, bool Full, bool Fused, int N>
__global__ void __maxnreg__(32) fused_rope_lanes(const __grid_constant__ RopeVectorArgs a) {
  using A = Arithmetic<C>;
  constexpr int M = N / A::lanes, bytes = N * static_cast<int>(sizeof(X)), words = bytes / 4;
  const unsigned token_block = a.heads_on_x ? blockIdx.y : blockIdx.x,
                 head_block = a.heads_on_x ? blockIdx.x : blockIdx.y;
  const int unit = threadIdx.x, t = token_block * blockDim.z + threadIdx.z, b = blockIdx.z,
            h = head_block * blockDim.y + threadIdx.y;
  if (unit >= a.vectors || h >= a.groups || t >= a.tokens) return;

  const Place at(a, b, t, h);
  Vector<X, N> own, other, out;
  load_now(own, at.input(0) + unit * bytes);  // before the row is known, which may have to be read too
  int row;
  const bool outside = !table_row(a, b, t, unit == 0 && h == 0, row);
  // The tail's threads read entries too, so that the others of their warp need not wait for them.
  const bool tail = unit >= 2 * a.rotary_units, second = unit >= a.rotary_units;
  const int entry = tail ? 0 : Full || !second ? unit : unit - a.rotary_units;
  Vector<T, N> cos_entries, sin_entries;
  if (outside) {
#pragma unroll
    for (int i = 0; i < N; ++i)
      cos_entries.at[i] = sin_entries.at[i] = round_to<T>(__int_as_float(0x7fffffff));
  } else {
    const uint64_t policy = table_policy(a.keep_tables != 0);
    const int of_entry = entry * Vector<T, N>::bytes;
    load_kept(cos_entries, a.cos.data + (int64_t{b} * a.cos.batch + int64_t{row} * a.cos.token + of_entry),
              policy);
    load_kept(sin_entries, a.sin.data + (int64_t{b} * a.sin.batch + int64_t{row} * a.sin.token + of_entry),
              policy);
  }
  const int other_unit = tail ? unit : second ? unit - a.rotary_units : unit + a.rotary_units;
#pragma unroll
  for (int w = 0; w < words; ++w) {
    other.word[w] = __shfl_sync(0xffffffff, own.word[w], other_unit, blockDim.x);
  }
  X* const to = at.template output<X>(0) + unit * N;
  if (tail) {
    own.store(to);
    return;
  }
  const bool negative = second == (a.inverse != 0);
  typename A::Value x[M], y[M], c[M], s[M], o[M];
  to_values<C, M>(own, x);
  to_values<C, M>(other, y);
  to_values<C, M>(cos_entries, c);
  to_values<C, M>(sin_entries, s);
#pragma unroll
  for (int m = 0; m < M; ++m) {
    o[m] = rotated<A, Fused>(x[m], negative ? A::neg(y[m]) : y[m], c[m], s[m], second, a.combine);
  }
  pack<C, M>(o, out);
  out.store(to);
}

}  // namespace bitexact
