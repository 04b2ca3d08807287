// Rotary embedding of q and k in one pass, with every rounding of the eager chain.
//
// For a pair (x1, x2) with table entries (c1, s1), (c2, s2), x the dtype, C the compute dtype, rX and rC
// rounding to them (to nearest even, subnormals kept):
//   separate      o1 = rX(rC(rC(x1*c1) - rC(x2*s1)))    o2 = rX(rC(rC(x2*c2) + rC(x1*s2)))
//   complex       o1 = rX(fmaC(x1, c1, -rC(x2*s1)))     o2 = rX(fmaC(x1, s2, rC(x2*c2)))
//   complex_alt   o1 as complex                         o2 = rX(fmaC(x2, c2, rC(x1*s2)))
//   addcmul_cos   o1 = rX(fmaC(-x2, s1, rC(x1*c1)))     o2 as complex
//   addcmul_x1    o1 as addcmul_cos                     o2 as complex_alt
// `separate` is q * cos + rotate_half(q) * sin, and every other chain of separate operators. 16-bit C
// sums in float32 first; C = float64 reaches x through float32.
//
// Layout: head_dim contiguous, all other strides free. A thread keeps its table entries in registers
// while it walks over the heads of one token. vec16: half pairing takes one vector of each half,
// interleaved pairing one vector of whole pairs. The tail beyond rotary_dim is copied, bits untouched.
//
// Included by one file for each dtype, which instantiates its kernels.
#pragma once

#include <type_traits>

#include "fused_rope.h"
#include "fused_rope_lanes.cuh"
#include "fused_rope_layout.cuh"
#include "fused_rope_pair.cuh"
#include "fused_rope_vector.cuh"
#include "fused_rope_vector.h"

namespace bitexact {

// ---------------------------------------------------------------------------------- kernel --

template <class X, class T, class C, Layout L, bool Fused>
__global__ void __launch_bounds__(rope_max_threads) fused_rope(const __grid_constant__ RopeArgs a) {
  using A = Arithmetic<C>;
  using Value = typename A::Value;
  constexpr int P = pairs_a_thread<X, L>, M = (P + A::lanes - 1) / A::lanes;
  constexpr int tail = L == Layout::scalar ? 1 : 16 / static_cast<int>(sizeof(X));
  const int64_t half = a.rotary_dim / 2, rotary_units = half / P;
  const int64_t units = rotary_units + (a.head_dim - a.rotary_dim + tail - 1) / tail;
  const int64_t heads = a.heads[0] + a.heads[1];
  const int64_t first_head = int64_t{blockIdx.y} * blockDim.y + threadIdx.y;
  const int64_t head_step = int64_t{gridDim.y} * blockDim.y;
  const bool table_per_head = a.cos.head != 0 || a.sin.head != 0;

  for (int64_t b = blockIdx.z; b < a.batches; b += gridDim.z) {
    for (int64_t t = int64_t{blockIdx.x} * blockDim.z + threadIdx.z; t < a.tokens;
         t += int64_t{gridDim.x} * blockDim.z) {
      int64_t row = t;
      if (a.positions.data != nullptr) {
        const int64_t at = b * a.positions.batch + t * a.positions.token;
        row = a.positions.dtype == Dtype::int32 ? static_cast<const int32_t*>(a.positions.data)[at]
                                                : static_cast<const int64_t*>(a.positions.data)[at];
      }
      const bool outside = a.positions.data != nullptr && (row < 0 || row >= a.table_rows);
      if (outside && threadIdx.x == 0 && first_head == 0 && a.position_errors != nullptr) {
        atomicAdd(a.position_errors, 1ull);
      }
      const T* cos_row = static_cast<const T*>(a.cos.data) + b * a.cos.batch + row * a.cos.token;
      const T* sin_row = static_cast<const T*>(a.sin.data) + b * a.sin.batch + row * a.sin.token;

      for (int64_t unit = threadIdx.x; unit < units; unit += blockDim.x) {
        if (unit >= rotary_units) {
          const int64_t d = a.rotary_dim + (unit - rotary_units) * tail;
          for (int64_t h = first_head; h < heads; h += head_step) {
            const bool is_k = h >= a.heads[0];
            const Heads &in = a.in[is_k], &out = a.out[is_k];
            const int64_t n = is_k ? h - a.heads[0] : h;
            const X* from = static_cast<const X*>(in.data) + b * in.batch + t * in.token + n * in.head + d;
            X* to = static_cast<X*>(out.data) + b * out.batch + t * out.token + n * out.head + d;
            if (from == to) continue;
            if (d + tail <= a.head_dim) {
              Vector<X, tail>::load(from).store(to);
            } else {
              for (int64_t i = 0; i < a.head_dim - d; ++i) to[i] = from[i];
            }
          }
          continue;
        }
        const int64_t j = unit * P;
        Value c1[M], s1[M], c2[M], s2[M];
        auto load_tables = [&](int64_t n) {
          if (outside) {
            for (int m = 0; m < M; ++m) c1[m] = s1[m] = c2[m] = s2[m] = A::nan();
            return;
          }
          load_table<C, T, L, P>(a.cos, cos_row + n * a.cos.head, j, half, a.pairing_in, a.full_table, c1,
                                 c2);
          load_table<C, T, L, P>(a.sin, sin_row + n * a.sin.head, j, half, a.pairing_in, a.full_table, s1,
                                 s2);
          if (a.inverse) {
#pragma unroll
            for (int m = 0; m < M; ++m) s1[m] = A::neg(s1[m]), s2[m] = A::neg(s2[m]);
          }
        };
        if (!table_per_head) load_tables(0);
        for (int64_t h = first_head; h < heads; h += head_step) {
          const bool is_k = h >= a.heads[0];
          const Heads &in = a.in[is_k], &out = a.out[is_k];
          const int64_t n = is_k ? h - a.heads[0] : h;
          if (table_per_head) load_tables(n);
          X x1[P], x2[P];
          load_pairs<X, L, P>(static_cast<const X*>(in.data) + b * in.batch + t * in.token + n * in.head, j,
                              half, a.pairing_in, x1, x2);
#pragma unroll
          for (int m = 0; m < M; ++m) {
            const int lo = m * A::lanes, hi = lo + A::lanes - 1 < P ? lo + A::lanes - 1 : P - 1;
            Value o1, o2;
            rotate<A, Fused>(A::load(x1[lo], x1[hi]), A::load(x2[lo], x2[hi]), c1[m], s1[m], c2[m], s2[m],
                             a.combine, o1, o2);
            if (a.sum_from_zero) o1 = A::add(o1, A::zero()), o2 = A::add(o2, A::zero());
            A::store(o1, x1[lo], x1[hi]);
            A::store(o2, x2[lo], x2[hi]);
          }
          store_pairs<X, L, P>(static_cast<X*>(out.data) + b * out.batch + t * out.token + n * out.head, j,
                               half, a.pairing_out, x1, x2);
        }
      }
    }
  }
}

// ------------------------------------------------------------------------------- instances --

template <class X, class T, class C, Layout L, bool Fused, RopeVariant V>
const void* rope_vector_entry(const RopeArgs& a) {
  constexpr int P = pairs_of<X, T, L, V>, H = heads_of<X, T, L>;
  return reinterpret_cast<const void*>(a.full_table ? fused_rope_vector<X, T, C, L, true, Fused, P, H>
                                                    : fused_rope_vector<X, T, C, L, false, Fused, P, H>);
}

template <class X, class T, class C, bool Fused, bool Packed>
const void* rope_lanes_entry(const RopeArgs& a) {
  constexpr int N = pairs_of<X, T, Layout::half, RopeVariant::vec16_lanes>;
  if constexpr (!Packed) {
    if (are_packed(lane_vectors(a, N))) return rope_lanes_entry<X, T, C, Fused, true>(a);
  }
  return reinterpret_cast<const void*>(a.full_table ? fused_rope_lanes<X, T, C, true, Fused, N, Packed>
                                                    : fused_rope_lanes<X, T, C, false, Fused, N, Packed>);
}

template <class X, class T, class C, Layout L, bool Fused>
const void* rope_entry(const RopeArgs& a, RopeVariant variant) {
  if constexpr (L != Layout::scalar && !std::is_same<C, double>::value) {
    constexpr RopeVariant wide = RopeVariant::vec16_table, narrow = RopeVariant::vec8_table;
    if (variant == wide) return rope_vector_entry<X, T, C, L, Fused, wide>(a);
    if constexpr (L == Layout::half) {
      if (variant == RopeVariant::vec16_lanes) return rope_lanes_entry<X, T, C, Fused, false>(a);
    }
    if constexpr (L == Layout::half && sizeof(X) == 2 && sizeof(T) == 2) {
      if (variant == narrow) return rope_vector_entry<X, T, C, L, Fused, narrow>(a);
    }
  }
  return reinterpret_cast<const void*>(fused_rope<X, T, C, L, Fused>);
}

template <class X, class T, class C, Layout L>
const void* rope_entry(const RopeArgs& a, RopeVariant variant) {
  return a.combine != Combine::separate ? rope_entry<X, T, C, L, true>(a, variant)
                                        : rope_entry<X, T, C, L, false>(a, variant);
}

template <class X, class T, class C>
const void* rope_entry(const RopeArgs& a, RopeVariant variant) {
  if (variant == RopeVariant::scalar) return rope_entry<X, T, C, Layout::scalar>(a, variant);
  if (a.pairing_in == Pairing::half) return rope_entry<X, T, C, Layout::half>(a, variant);
  if (a.pairing_out == Pairing::half) return rope_entry<X, T, C, Layout::interleaved_to_half>(a, variant);
  return rope_entry<X, T, C, Layout::interleaved>(a, variant);
}

// The kernel for a table of X's own type, of float32 or of float64.
template <class X>
const void* rope_entry_of(const RopeArgs& a, RopeVariant variant) {
  if (a.table_dtype == Dtype::float64) return rope_entry<X, double, double>(a, variant);
  if (a.table_dtype == Dtype::float32) {
    return a.compute_dtype == Dtype::float64 ? rope_entry<X, float, double>(a, variant)
                                             : rope_entry<X, float, float>(a, variant);
  }
  if (a.compute_dtype == Dtype::float64) return rope_entry<X, X, double>(a, variant);
  if (a.compute_dtype == Dtype::float32) return rope_entry<X, X, float>(a, variant);
  return rope_entry<X, X, X>(a, variant);
}

extern template const void* rope_entry_of<bf16>(const RopeArgs&, RopeVariant);
extern template const void* rope_entry_of<f16>(const RopeArgs&, RopeVariant);
extern template const void* rope_entry_of<float>(const RopeArgs&, RopeVariant);

}  // namespace bitexact
