// The fast form of fused_rope: vectors for the tensors and for the tables, a block for the heads of one token
// (or of a few). A thread asks for all it needs before it waits for any of it.
#pragma once

#include "fused_rope_pair.cuh"
#include "fused_rope_place.cuh"
#include "fused_rope_registers.cuh"
#include "fused_rope_vector.h"

namespace bitexact {

// ---------------------------------------------------------------------------------- places --

// Head h of token t of batch b, and the rows of its tables.
struct Place {
  int t, h;
  bool of_k;
  int64_t q_at, k_at, q_out_at, k_out_at, cos_at, sin_at;

  __device__ Place(const RopeVectorArgs& a, int b, int token, int head, bool is_of_k)
      : t(token), h(head), of_k(is_of_k) {
    q_at = k_at = q_out_at = k_out_at = cos_at = sin_at = 0;
    if (b > 0) {  // else the line of arguments that has these strides is not waited for
      auto add = [b](int64_t& at, int32_t batch) { at += int64_t{b * batch_unit} * batch; };
      add(q_at, a.q_batch), add(k_at, a.k_batch);
      add(q_out_at, a.q_out_batch), add(k_out_at, a.k_out_batch);
      cos_at = int64_t{b} * a.cos_batch, sin_at = int64_t{b} * a.sin_batch;
    }
  }
  __device__ const char* input(const RopeVectorArgs& a) const {
    return global(chosen(of_k, at(a.q, q_at, a.q_token, a.q_head), at(a.k, k_at, a.k_token, a.k_head)));
  }
  __device__ char* output(const RopeVectorArgs& a) const {
    return global(chosen(of_k, at(a.q_out, q_out_at, a.q_out_token, a.q_out_head),
                         at(a.k_out, k_out_at, a.k_out_token, a.k_out_head)));
  }
  __device__ const char* cos(const RopeVectorArgs& a, int row, int entry) const {
    return a.cos + (cos_at + entry + int64_t{row} * a.cos_token);
  }
  __device__ const char* sin(const RopeVectorArgs& a, int row, int entry) const {
    return a.sin + (sin_at + entry + int64_t{row} * a.sin_token);
  }

 private:
  template <class Byte>
  __device__ Byte* at(Byte* data, int64_t before, int32_t token_stride, int32_t head_stride) const {
    return data + (before + int64_t{t} * token_stride + int64_t{h} * head_stride);
  }
};

// ---------------------------------------------------------------------------------- kernel --

template <Layout L>
constexpr Pairing pairing_of = L == Layout::half ? Pairing::half : Pairing::interleaved;
template <class X, class T, Layout L, RopeVariant V>
constexpr int pairs_of = vector_pairs(sizeof(X), sizeof(T), pairing_of<L>, V);
template <class X, class T, Layout L>
constexpr int heads_of = vector_heads(sizeof(X), sizeof(T), pairing_of<L>);

// Registers are capped, so that enough threads share a multiprocessor to keep its memory pipes full.
// P: pairs a thread takes of a head, H: heads a thread.
template <class X, class T, class C, Layout L, bool Full, bool Fused, int P, int H>
__global__ void __maxnreg__(40) fused_rope_vector(const __grid_constant__ RopeVectorArgs a) {
  using A = Arithmetic<C>;
  constexpr int M = P / A::lanes;
  using E = Entries<T, L, Full, P>;
  const unsigned token_block = blockIdx.x >> a.log_head_blocks,
                 head_block = (blockIdx.x & a.head_mask) + blockIdx.y;
  const int unit = threadIdx.x, t = token_block * blockDim.z + threadIdx.z, b = blockIdx.z;
  const int h = head_block * blockDim.y + threadIdx.y;
  if (h >= a.groups || t >= a.tokens) return;

  int row;
  const bool outside = !table_row(a.positions, a.by_position, b, t, row);
  const bool of_k = h >= a.q_groups;
  const Place at(a, b, t, h, of_k);
  const char* const in = at.input(a);
  char* const out = at.output(a);
  // Of the thread's heads, each `groups`-th of q or of k.
  const int groups = of_k ? a.groups - a.q_groups : a.q_groups, first_head = of_k ? h - a.q_groups : h;
  auto is_there = [&](int i) { return i == 0 || first_head + i * groups < (of_k ? a.k_heads : a.q_heads); };
  auto input = [&](int i) { return in + int64_t{i * groups} * (of_k ? a.k_head : a.q_head); };
  auto output = [&](int i) {
    return reinterpret_cast<X*>(out + int64_t{i * groups} * (of_k ? a.k_out_head : a.q_out_head));
  };
  // A unit is 2 P elements: two vectors of members, `second` elements apart, or one of pairs; beyond the rotated
  // ones the same of the tail, so that side by side threads read and write side by side.
  constexpr int size = static_cast<int>(sizeof(X)), step = L == Layout::half ? P : 2 * P;
  const bool tail = unit >= a.rotary_units;
  const int first = unit * step + (L == Layout::half && tail ? a.rotary_units * P : 0);
  const int second = L != Layout::half ? 0 : tail ? (blockDim.x - a.rotary_units) * P : a.half;

  if (!outside && (!tail || first + second + step <= a.head_dim)) {
    Piece<X, L, P> piece[H];
#pragma unroll
    for (int i = 0; i < H; ++i) {
      if (is_there(i)) piece[i].load(input(i) + first * size, second * size);
    }
    // The tail's threads too, so that the others of their warp need not wait for them.
    const int entry = tail ? 0 : unit * E::bytes, half_bytes = a.half * static_cast<int>(sizeof(T));
    E cos_entries, sin_entries;
    auto load_both = [&](auto load) {
      cos_entries.load(at.cos(a, row, entry), half_bytes, load);
      sin_entries.load(at.sin(a, row, entry), half_bytes, load);
    };
    // Entries of the elements' size come here where they are too many to be kept. Measured.
    if constexpr (L == Layout::half && sizeof(T) <= sizeof(X)) {
      if (a.keep_tables)
        load_both(kept());
      else
        load_both(Normal());
    } else {
      load_both(kept_if(a.keep_tables));
    }
    if (tail) {
#pragma unroll
      for (int i = 0; i < H; ++i) {
        if (!is_there(i)) return;
        piece[i].store(output(i) + first, second);
      }
      return;
    }
    Members<C, M> cos, sin;
    cos_entries.template unpack_to<C, M>(cos);
    sin_entries.template unpack_to<C, M>(sin);
    if (a.inverse) {
#pragma unroll
      for (int m = 0; m < M; ++m) sin.first[m] = A::neg(sin.first[m]), sin.second[m] = A::neg(sin.second[m]);
    }
#pragma unroll
    for (int i = 0; i < H; ++i) {
      if (!is_there(i)) return;
      Members<C, M> x, o;
      piece[i].template unpack_to<C, M>(x);
#pragma unroll
      for (int m = 0; m < M; ++m) {
        rotate<A, Fused>(x.first[m], x.second[m], cos.first[m], sin.first[m], cos.second[m], sin.second[m],
                         a.combine, o.first[m], o.second[m]);
      }
      store_members<L, C, M>(o, output(i), unit * P, a.half);
    }
    return;
  }

  // A row that no table has, whose tail is copied all the same, or the rest of a tail that no whole vectors cover.
  if (outside && unit == 0 && h == 0) count_outside(a.positions);
  Members<C, M> o;
#pragma unroll
  for (int m = 0; m < M; ++m) o.first[m] = o.second[m] = A::nan();
#pragma unroll 1
  for (int i = 0; is_there(i); ++i) {
    if (!tail) {
      store_members<L, C, M>(o, output(i), unit * P, a.half);
    } else {
      const X* const from = reinterpret_cast<const X*>(input(i));
      for (int d = first; d < first + step && d < a.head_dim; ++d) output(i)[d] = from[d];
      for (int d = first + second; second > 0 && d < first + second + step && d < a.head_dim; ++d) {
        output(i)[d] = from[d];
      }
    }
  }
}

}  // namespace bitexact
