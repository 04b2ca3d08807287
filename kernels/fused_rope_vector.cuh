// The fast form of fused_rope: vectors for the tensors and for the tables, a block for one token. All loads of
// a thread are in flight before it waits for any, and those of its next head before it finishes this one.
#pragma once

#include "fused_rope_layout.cuh"
#include "fused_rope_pair.cuh"

namespace bitexact {

// -------------------------------------------------------------------- vectors as arithmetic values --

// The first and the second members of P pairs as M values of Arithmetic<C>.
template <class C, int M>
struct Members {
  typename Arithmetic<C>::Value first[M], second[M];
};

// From one vector of first members and one of second members.
template <class C, int M, class T, int P>
__device__ void unpack(const Vector<T, P>& v1, const Vector<T, P>& v2, Members<C, M>& to) {
#pragma unroll
  for (int m = 0; m < M; ++m) {
    if constexpr (Arithmetic<C>::lanes == 2) {
      to.first[m] = v1.word[m];
      to.second[m] = v2.word[m];
    } else {
      to.first[m] = Arithmetic<C>::load(v1.at[m], v1.at[m]);
      to.second[m] = Arithmetic<C>::load(v2.at[m], v2.at[m]);
    }
  }
}

// From one vector of whole pairs.
template <class C, int M, class T, int N>
__device__ void unpack_pairs(const Vector<T, N>& v, Members<C, M>& to) {
#pragma unroll
  for (int m = 0; m < M; ++m) {
    if constexpr (Arithmetic<C>::lanes == 2) {
      to.first[m] = __byte_perm(v.word[2 * m], v.word[2 * m + 1], 0x5410);
      to.second[m] = __byte_perm(v.word[2 * m], v.word[2 * m + 1], 0x7632);
    } else {
      to.first[m] = Arithmetic<C>::load(v.at[2 * m], v.at[2 * m]);
      to.second[m] = Arithmetic<C>::load(v.at[2 * m + 1], v.at[2 * m + 1]);
    }
  }
}

// M values to one vector of M elements (lanes 1) or 2 M elements (lanes 2).
template <class C, int M, class X, int P>
__device__ void pack(const typename Arithmetic<C>::Value (&from)[M], Vector<X, P>& to) {
#pragma unroll
  for (int m = 0; m < M; ++m) {
    if constexpr (Arithmetic<C>::lanes == 2) {
      to.word[m] = from[m];
    } else if constexpr (sizeof(X) == 4) {
      to.at[m] = from[m];
    } else if (m % 2 == 0) {
      to.word[m / 2] = round_two_to<X>(from[m], from[m + 1]);
    }
  }
}

template <class C, int M, class X, int N>
__device__ void pack_pairs(const Members<C, M>& from, Vector<X, N>& to) {
#pragma unroll
  for (int m = 0; m < M; ++m) {
    if constexpr (Arithmetic<C>::lanes == 2) {
      to.word[2 * m] = __byte_perm(from.first[m], from.second[m], 0x5410);
      to.word[2 * m + 1] = __byte_perm(from.first[m], from.second[m], 0x7632);
    } else if constexpr (sizeof(X) == 4) {
      to.at[2 * m] = from.first[m];
      to.at[2 * m + 1] = from.second[m];
    } else {
      to.word[m] = round_two_to<X>(from.first[m], from.second[m]);
    }
  }
}

// What a thread holds of a head: two vectors of members, or one of pairs.
template <class X, Layout L, int P>
struct Piece {
  Vector<X, L == Layout::half ? P : 2 * P> low;
  Vector<X, L == Layout::half ? P : 1> high;

  __device__ void load(const X* at, int64_t half) {
    low = low.load(at);
    if constexpr (L == Layout::half) high = high.load(at + half);
  }
  template <class C, int M>
  __device__ void unpack_to(Members<C, M>& to) const {
    if constexpr (L == Layout::half)
      unpack<C, M>(low, high, to);
    else
      unpack_pairs<C, M>(low, to);
  }
};

// Asks the second-level cache to keep what is loaded: every layer of a model reads the same tables.
__device__ inline uint64_t keep_policy() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
template <class T, int N>
__device__ Vector<T, N> load_kept(const T* from, uint64_t policy) {
  Vector<T, N> v;
  if constexpr (Vector<T, N>::bytes < 16) {
    v = v.load(from);
  } else {
#pragma unroll
    for (int i = 0; i < Vector<T, N>::bytes / 16; ++i) {
      asm volatile("ld.global.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                   : "=r"(v.quad[i].x), "=r"(v.quad[i].y), "=r"(v.quad[i].z), "=r"(v.quad[i].w)
                   : "l"(reinterpret_cast<const uint4*>(from) + i), "l"(policy));
    }
  }
  return v;
}

// What one table holds for the P pairs of a thread, as loaded.
template <class T, Layout L, bool Full, int P>
struct Entries {
  static constexpr bool pairs = Full && L != Layout::half, two = Full && L == Layout::half;
  Vector<T, pairs ? 2 * P : P> low;
  Vector<T, two ? P : 1> high;

  __device__ void load(const T* row, int64_t j, int64_t half, uint64_t policy) {
    low = load_kept < T, pairs ? 2 * P : P > (row + (pairs ? 2 * j : j), policy);
    if constexpr (two) high = load_kept<T, P>(row + half + j, policy);
  }
  template <class C, int M>
  __device__ void unpack_to(Members<C, M>& to) const {
    if constexpr (pairs)
      unpack_pairs<C, M>(low, to);
    else if constexpr (two)
      unpack<C, M>(low, high, to);
    else
      unpack<C, M>(low, low, to);
  }
};

// ---------------------------------------------------------------------------------- kernel --

template <class X, class T, class C, Layout L, bool Full, bool Fused>
__global__ void __launch_bounds__(rope_max_threads) fused_rope_vector(const __grid_constant__ RopeArgs a) {
  using A = Arithmetic<C>;
  constexpr int P = pairs_a_thread<X, L>, M = P / A::lanes, tail = 16 / static_cast<int>(sizeof(X));
  const int64_t t = blockIdx.x, b = blockIdx.z, half = a.rotary_dim / 2;
  const int q_heads = static_cast<int>(a.heads[0]), heads = q_heads + static_cast<int>(a.heads[1]);
  const int rotary_units = static_cast<int>(half) / P, unit = threadIdx.x, step = gridDim.y * blockDim.y;
  int h = blockIdx.y * blockDim.y + threadIdx.y;
  if (h >= heads) return;

  int64_t row = t;
  bool outside = false;
  if (a.positions.data != nullptr) {
    const int64_t at = b * a.positions.batch + t * a.positions.token;
    row = a.positions.dtype == Dtype::int32 ? static_cast<const int32_t*>(a.positions.data)[at]
                                            : static_cast<const int64_t*>(a.positions.data)[at];
    outside = row < 0 || row >= a.table_rows;
    if (outside && unit == 0 && h == 0 && a.position_errors != nullptr) atomicAdd(a.position_errors, 1ull);
  }
  const X* in = static_cast<const X*>(a.in[0].data) + b * a.in[0].batch + t * a.in[0].token;
  X* out = static_cast<X*>(a.out[0].data) + b * a.out[0].batch + t * a.out[0].token;
  const X* const k_in = static_cast<const X*>(a.in[1].data) + b * a.in[1].batch + t * a.in[1].token;
  X* const k_out = static_cast<X*>(a.out[1].data) + b * a.out[1].batch + t * a.out[1].token;
  // From head h of q and k to h + step; a thread passes from q to k once.
  auto enter_k = [&] {
    in = k_in + (h - q_heads) * a.in[1].head;
    out = k_out + (h - q_heads) * a.out[1].head;
  };
  auto advance = [&] {
    const bool was_q = h < q_heads;
    h += step;
    if (was_q && h >= q_heads) return enter_k();
    in += step * (was_q ? a.in[0].head : a.in[1].head);
    out += step * (was_q ? a.out[0].head : a.out[1].head);
  };
  if (h < q_heads) {
    in += h * a.in[0].head;
    out += h * a.out[0].head;
  } else {
    enter_k();
  }

  if (unit >= rotary_units) {
    const int64_t d = a.rotary_dim + (unit - rotary_units) * tail;
    for (; h < heads; advance()) {
      if (in == out) continue;
      if (d + tail <= a.head_dim) {
        Vector<X, tail>::load(in + d).store(out + d);
      } else {
        for (int64_t i = d; i < a.head_dim; ++i) out[i] = in[i];
      }
    }
    return;
  }

  const int64_t j = int64_t{unit} * P, first = L == Layout::half ? j : 2 * j;
  Entries<T, L, Full, P> cos_entries, sin_entries;
  if (!outside) {
    const uint64_t policy = keep_policy();
    cos_entries.load(static_cast<const T*>(a.cos.data) + b * a.cos.batch + row * a.cos.token, j, half,
                     policy);
    sin_entries.load(static_cast<const T*>(a.sin.data) + b * a.sin.batch + row * a.sin.token, j, half,
                     policy);
  }
  Piece<X, L, P> piece;
  piece.load(in + first, half);
  Members<C, M> cos, sin;
  cos_entries.template unpack_to<C, M>(cos);
  sin_entries.template unpack_to<C, M>(sin);
  if (a.inverse) {
#pragma unroll
    for (int m = 0; m < M; ++m) sin.first[m] = A::neg(sin.first[m]), sin.second[m] = A::neg(sin.second[m]);
  }
  if (outside) {
#pragma unroll
    for (int m = 0; m < M; ++m) cos.first[m] = cos.second[m] = sin.first[m] = sin.second[m] = A::nan();
  }
  for (;;) {
    X* const to = out;
    advance();
    Piece<X, L, P> next;
    if (h < heads) next.load(in + first, half);
    Members<C, M> x, o;
    piece.template unpack_to<C, M>(x);
#pragma unroll
    for (int m = 0; m < M; ++m) {
      rotate<A, Fused>(x.first[m], x.second[m], cos.first[m], sin.first[m], cos.second[m], sin.second[m],
                       a.combine, o.first[m], o.second[m]);
    }
    if constexpr (L == Layout::interleaved) {
      Vector<X, 2 * P> v;
      pack_pairs<C, M>(o, v);
      v.store(to + 2 * j);
    } else {
      Vector<X, P> v1, v2;
      pack<C, M>(o.first, v1);
      pack<C, M>(o.second, v2);
      v1.store(to + j);
      v2.store(to + j + half);
    }
    if (h >= heads) return;
    piece = next;
  }
}

}  // namespace bitexact
