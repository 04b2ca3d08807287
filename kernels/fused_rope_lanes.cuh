// The form of fused_rope for half pairing whose thread takes one vector of one head, as that of a copy does, and has
// the other members of its pairs from another lane of its warp.
#pragma once

#include "fused_rope_lanes.h"
#include "fused_rope_pair.cuh"
#include "fused_rope_place.cuh"
#include "fused_rope_registers.cuh"

namespace bitexact {

// Where a thread's vector stands: of a head, in bytes of its tensors, and in a row of tables.
struct Lane {
  uint32_t thread, unit, b, t, h;
  bool of_k;
  uint32_t out_at, table_at;
};

// What comes after a thread has asked for its vector. N: elements that it takes. Written so that it has no jump where
// tokens are in order.
template <class X, class T, class C, bool Full, bool Fused, int N, bool InOrder>
__device__ __forceinline__ void rotate_lane(const RopeLanesArgs& a, const Lane& l, const Vector<X, N>& own) {
  using A = Arithmetic<C>;
  constexpr int M = N / A::lanes, words = Vector<X, N>::bytes / 4;
  int row;
  const bool outside = !table_row(a.positions, !InOrder, l.b, l.t, row);
  if (outside) row = 0;  // there is one, and others of the warp need not wait
  const bool tail = l.unit >= a.rotated, second = l.unit >= a.half;
  const uint32_t entry = tail ? 0 : Full ? l.unit : chosen(second, l.unit, l.unit - a.half);
  const uint32_t at = l.table_at + row * a.table_token + entry * Vector<T, N>::bytes;
  Vector<T, N> cos_entries, sin_entries;
  const By load = kept();
  load(cos_entries, a.cos + at);
  load(sin_entries, a.sin + at);

  const uint32_t other_lane = chosen(second, l.thread + a.half, l.thread - a.half);
  const bool negative = l.unit - a.first_negated < a.half;
  Vector<X, N> other, out;
#pragma unroll
  for (int w = 0; w < words; ++w) other.word[w] = __shfl_sync(0xffffffff, own.word[w], other_lane);
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
  if (outside) {
#pragma unroll
    for (int i = 0; i < N; ++i) out.at[i] = round_to<X>(__int_as_float(0x7fffffff));
    if (l.unit == 0 && l.h == 0) count_outside(a.positions);
  }
#pragma unroll
  for (int w = 0; w < words; ++w) out.word[w] = tail ? own.word[w] : out.word[w];
  // Here, not ahead of the first load, which would wait for the second line of arguments.
  uint32_t h = l.h;
  asm volatile("" : "+r"(h));
  auto place = [&](char* data, uint32_t token_stride) {
    return data + (l.out_at + h * a.out_head + l.t * token_stride);
  };
  out.store(reinterpret_cast<X*>(
      global(chosen(l.of_k, place(a.q_out, a.q_out_token), place(a.k_out, a.k_out_token)))));
}

template <class X, class T, class C, bool Full, bool Fused, int N, bool Packed>
__global__ void __maxnreg__(32) fused_rope_lanes(const __grid_constant__ RopeLanesArgs a) {
  Lane l;
  l.thread = blockIdx.x * lanes_threads + threadIdx.x;
  uint32_t head, divided;
  if constexpr (Packed) {
    const uint32_t lane = l.thread % rope_lanes, of_warp = lane * a.lane_factor >> 16;
    head = l.thread / rope_lanes * a.heads_a_warp + of_warp;
    if (of_warp >= a.heads_a_warp || head >= a.count) return;
    l.unit = lane - of_warp * a.vectors;
    divided = 2 * head;
  } else {
    if (l.thread >= a.count) return;
    l.unit = l.thread & a.lane_mask;
    head = l.thread >> a.log_vectors;
    divided = l.thread;
  }
  l.b = 0;
  l.t = __umulhi(divided, a.token_factor) >> a.token_shift;
  l.h = head - l.t * a.heads;
  l.of_k = l.h >= a.q_heads;
  uint32_t in_at = l.unit * Vector<X, N>::bytes;
  l.out_at = in_at;
  l.table_at = 0;
  if (a.batched) {  // else the line of arguments that has these strides is not waited for
    l.b = __umulhi(divided, a.of_batch.factor) >> a.of_batch.shift;
    l.t -= l.b * a.tokens;
    in_at += l.b * (l.of_k ? a.k_batch : a.q_batch);
    l.out_at += l.b * (l.of_k ? a.k_out_batch : a.q_out_batch);
    l.table_at += l.b * a.table_batch;
  }
  in_at += l.h * a.head;
  Vector<X, N> own;
  load_now(own, chosen(l.of_k, a.q + (in_at + l.t * a.q_token), a.k + (in_at + l.t * a.k_token)));
  if (a.in_order) return rotate_lane<X, T, C, Full, Fused, N, true>(a, l, own);
  rotate_lane<X, T, C, Full, Fused, N, false>(a, l, own);
}

}  // namespace bitexact
