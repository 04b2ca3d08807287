// How a thread of fused_rope reads and writes its pairs and its table entries.
#pragma once

#include "args.h"
#include "common/numeric.cuh"
#include "common/vector.cuh"

namespace bitexact {

enum class Layout { scalar, half, interleaved, interleaved_to_half };

template <class X, Layout L>
constexpr int pairs_a_thread = L == Layout::scalar ? 1
                               : L == Layout::half ? 16 / static_cast<int>(sizeof(X))
                                                   : 8 / static_cast<int>(sizeof(X));

// Where the members of pair j stand.
struct Pair {
  int64_t first, second;
};
__device__ inline Pair pair_at(Pairing pairing, int64_t j, int64_t half) {
  return pairing == Pairing::half ? Pair{j, j + half} : Pair{2 * j, 2 * j + 1};
}

// P pairs from pair j of a head.
template <class X, Layout L, int P>
__device__ void load_pairs(const X* head, int64_t j, int64_t half, Pairing pairing, X (&x1)[P], X (&x2)[P]) {
  if constexpr (L == Layout::scalar) {
    const Pair at = pair_at(pairing, j, half);
    x1[0] = head[at.first];
    x2[0] = head[at.second];
  } else if constexpr (L == Layout::half) {
    const auto v1 = Vector<X, P>::load(head + j), v2 = Vector<X, P>::load(head + j + half);
#pragma unroll
    for (int i = 0; i < P; ++i) x1[i] = v1.at[i], x2[i] = v2.at[i];
  } else {
    const auto v = Vector<X, 2 * P>::load(head + 2 * j);
#pragma unroll
    for (int i = 0; i < P; ++i) x1[i] = v.at[2 * i], x2[i] = v.at[2 * i + 1];
  }
}

template <class X, Layout L, int P>
__device__ void store_pairs(X* head, int64_t j, int64_t half, Pairing pairing, const X (&x1)[P],
                            const X (&x2)[P]) {
  if constexpr (L == Layout::scalar) {
    const Pair at = pair_at(pairing, j, half);
    head[at.first] = x1[0];
    head[at.second] = x2[0];
  } else if constexpr (L == Layout::interleaved) {
    Vector<X, 2 * P> v;
#pragma unroll
    for (int i = 0; i < P; ++i) v.at[2 * i] = x1[i], v.at[2 * i + 1] = x2[i];
    v.store(head + 2 * j);
  } else {
    Vector<X, P> v1, v2;
#pragma unroll
    for (int i = 0; i < P; ++i) v1.at[i] = x1[i], v2.at[i] = x2[i];
    v1.store(head + j);
    v2.store(head + j + half);
  }
}

// N table entries from entry e on. Tables may have any alignment and element stride.
template <class T, int N>
__device__ void load_entries(const T* row, int64_t e, int64_t stride, T (&to)[N]) {
  if constexpr (N > 1) {
    const T* from = row + e;
    constexpr int bytes = N * static_cast<int>(sizeof(T)), access = bytes < 16 ? bytes : 16;
    if (stride == 1 && reinterpret_cast<uintptr_t>(from) % access == 0) {
      const auto v = Vector<T, N>::load(from);
#pragma unroll
      for (int i = 0; i < N; ++i) to[i] = v.at[i];
      return;
    }
  }
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] = row[(e + i) * stride];
}

// The entries of one table at the first and the second member of P pairs from pair j on.
template <class C, class T, Layout L, int P, int M = (P + Arithmetic<C>::lanes - 1) / Arithmetic<C>::lanes>
__device__ void load_table(const Table& table, const T* row, int64_t j, int64_t half, Pairing pairing,
                           bool full, typename Arithmetic<C>::Value (&first)[M],
                           typename Arithmetic<C>::Value (&second)[M]) {
  T t1[P], t2[P];
  if (!full) {
    load_entries<T, P>(row, j, table.element, t1);
#pragma unroll
    for (int i = 0; i < P; ++i) t2[i] = t1[i];
  } else if (L == Layout::scalar) {
    const Pair at = pair_at(pairing, j, half);
    t1[0] = row[at.first * table.element];
    t2[0] = row[at.second * table.element];
  } else if (L == Layout::half) {
    load_entries<T, P>(row, j, table.element, t1);
    load_entries<T, P>(row, j + half, table.element, t2);
  } else {
    T both[2 * P];
    load_entries<T, 2 * P>(row, 2 * j, table.element, both);
#pragma unroll
    for (int i = 0; i < P; ++i) t1[i] = both[2 * i], t2[i] = both[2 * i + 1];
  }
  constexpr int lanes = Arithmetic<C>::lanes;
#pragma unroll
  for (int m = 0; m < M; ++m) {
    const int lo = m * lanes, hi = lo + lanes - 1 < P ? lo + lanes - 1 : P - 1;
    first[m] = Arithmetic<C>::load(t1[lo], t1[hi]);
    second[m] = Arithmetic<C>::load(t2[lo], t2[hi]);
  }
}

}  // namespace bitexact
