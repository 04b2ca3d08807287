// The fast form of fused_rope: vectors for the tensors and for the tables, a block for the heads of one token
// (or of a few). A thread asks for all it needs before it waits for any of it.
#pragma once

#include "fused_rope_pair.cuh"
#include "fused_rope_registers.cuh"
#include "fused_rope_vector.h"

namespace bitexact {

// ---------------------------------------------------------------------------------- kernel --

template <class X, class T, Layout L>
constexpr int pairs_of = vector_pairs(sizeof(X), sizeof(T),
                                      L == Layout::half ? Pairing::half : Pairing::interleaved);

// Registers are capped, so that enough threads share a multiprocessor to keep its memory pipes full.
// H: heads a thread.
template <class X, class T, class C, Layout L, bool Full, bool Fused, int H>
__global__ void __maxnreg__(rope_vector_registers)
    fused_rope_vector(const __grid_constant__ RopeVectorArgs a) {
  using A = Arithmetic<C>;
  constexpr int P = pairs_of<X, T, L>;
  constexpr int M = P / A::lanes;
  constexpr int vector = P * static_cast<int>(sizeof(X)) * (L == Layout::half ? 1 : 2);
  using E = Entries<T, L, Full, P>;
  const int unit = threadIdx.x, t = blockIdx.x * blockDim.z + threadIdx.z, b = blockIdx.z;
  int h = blockIdx.y * blockDim.y + threadIdx.y;
  if (h >= a.groups || t >= a.tokens) return;

  int row = t;
  bool outside = false;
  if (a.positions != nullptr) {
    const int64_t at = int64_t{b} * a.positions_batch + int64_t{t} * a.positions_token;
    const int64_t position = a.positions_wide ? static_cast<const int64_t*>(a.positions)[at]
                                              : static_cast<const int32_t*>(a.positions)[at];
    outside = position < 0 || position >= a.table_rows;
    row = static_cast<int>(position);
    if (outside && unit == 0 && h == 0 && a.position_errors != nullptr) atomicAdd(a.position_errors, 1ull);
  }
  // Head h of q or of k, then every `groups`-th after it.
  const bool is_k = h >= a.side[0].groups;
  const RopeVectorArgs::Side& side = a.side[is_k];
  if (is_k) h -= a.side[0].groups;
  const char* const in =
      side.in + (int64_t{t} * side.in_token + int64_t{b} * side.in_batch + int64_t{h} * side.in_head);
  char* const out =
      side.out + (int64_t{t} * side.out_token + int64_t{b} * side.out_batch + int64_t{h} * side.out_head);
  const int heads = side.heads, groups = side.groups;
  auto input = [&](int i) { return in + int64_t{i * groups} * side.in_head; };
  auto output = [&](int i) { return reinterpret_cast<X*>(out + int64_t{i * groups} * side.out_head); };
  auto store = [&](int i, const Members<C, M>& o) {
    if constexpr (L == Layout::interleaved) {
      Vector<X, 2 * P> v;
      pack_pairs<C, M>(o, v);
      v.store(output(i) + unit * 2 * P);
    } else {
      Vector<X, P> v1, v2;
      pack<C, M>(o.first, v1);
      pack<C, M>(o.second, v2);
      v1.store(output(i) + unit * P);
      v2.store(output(i) + unit * P + a.half_bytes / static_cast<int>(sizeof(X)));
    }
  };

  if (unit < a.rotary_units && !outside) {
    Piece<X, L, P> piece[H];
    piece[0].load(in + unit * vector, a.half_bytes);
#pragma unroll
    for (int i = 1; i < H; ++i) {
      if (h + i * groups < heads) piece[i].load(input(i) + unit * vector, a.half_bytes);
    }
    const uint64_t policy = keep_policy();
    E cos_entries, sin_entries;
    cos_entries.load(a.cos.data + (int64_t{b} * a.cos.batch + int64_t{row} * a.cos.token + unit * E::bytes),
                     a.table_half_bytes, policy);
    sin_entries.load(a.sin.data + (int64_t{b} * a.sin.batch + int64_t{row} * a.sin.token + unit * E::bytes),
                     a.table_half_bytes, policy);
    Members<C, M> cos, sin;
    cos_entries.template unpack_to<C, M>(cos);
    sin_entries.template unpack_to<C, M>(sin);
    if (a.inverse) {
#pragma unroll
      for (int m = 0; m < M; ++m) sin.first[m] = A::neg(sin.first[m]), sin.second[m] = A::neg(sin.second[m]);
    }
#pragma unroll
    for (int i = 0; i < H; ++i) {
      if (i > 0 && h + i * groups >= heads) return;
      Members<C, M> x, o;
      piece[i].template unpack_to<C, M>(x);
#pragma unroll
      for (int m = 0; m < M; ++m) {
        rotate<A, Fused>(x.first[m], x.second[m], cos.first[m], sin.first[m], cos.second[m], sin.second[m],
                         a.combine, o.first[m], o.second[m]);
      }
      store(i, o);
    }
    return;
  }

  if (unit < a.rotary_units) {  // a row that no table has
    Members<C, M> o;
#pragma unroll
    for (int m = 0; m < M; ++m) o.first[m] = o.second[m] = A::nan();
#pragma unroll 1
    for (int i = 0; h + i * groups < heads; ++i) store(i, o);
    return;
  }

  // The tail beyond rotary_dim, 16 bytes a thread.
  constexpr int tail = 16 / static_cast<int>(sizeof(X));
  const int first = a.rotary_dim + (unit - a.rotary_units) * tail, count = min(a.head_dim - first, tail);
#pragma unroll 1
  for (int i = 0; h + i * groups < heads; ++i) {
    const X* const from = reinterpret_cast<const X*>(input(i)) + first;
    X* const to = output(i) + first;
    if (from == to) return;
    if (count == tail) {
      Vector<X, tail>::load(from).store(to);
    } else {
      for (int n = 0; n < count; ++n) to[n] = from[n];
    }
  }
}

}  // namespace bitexact
