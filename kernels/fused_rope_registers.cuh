// What a thread of the fast form holds of heads and tables, how it loads it, and as what values.
#pragma once

#include "fused_rope_layout.cuh"

namespace bitexact {

// -------------------------------------------------------------------- vectors as arithmetic values --

// The first and the second members of P pairs as M values of Arithmetic<C>.
template <class C, int M>
struct Members {
  typename Arithmetic<C>::Value first[M], second[M];
};

// P elements as M values.
template <class C, int M, class T, int P>
__device__ void to_values(const Vector<T, P>& v, typename Arithmetic<C>::Value (&to)[M]) {
#pragma unroll
  for (int m = 0; m < M; ++m) {
    if constexpr (Arithmetic<C>::lanes == 2)
      to[m] = v.word[m];
    else
      to[m] = Arithmetic<C>::load(v.at[m], v.at[m]);
  }
}

// From one vector of first members and one of second members.
template <class C, int M, class T, int P>
__device__ void unpack(const Vector<T, P>& v1, const Vector<T, P>& v2, Members<C, M>& to) {
  to_values<C, M>(v1, to.first);
  to_values<C, M>(v2, to.second);
}

// From one vector for both.
template <class C, int M, class T, int P>
__device__ void unpack_twice(const Vector<T, P>& v, Members<C, M>& to) {
  to_values<C, M>(v, to.first);
  to_values<C, M>(v, to.second);
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

// -------------------------------------------------------------------------------------- loads --

// In the order written, which the compiler would change: heads first, as they come from the farthest.
template <class X, int N>
__device__ void load_now(Vector<X, N>& v, const char* from) {
  if constexpr (Vector<X, N>::bytes == 4) {
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(v.word[0]) : "l"(from));
  } else if constexpr (Vector<X, N>::bytes == 8) {
    asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(v.two.x), "=r"(v.two.y) : "l"(from));
  } else {
#pragma unroll
    for (int i = 0; i < Vector<X, N>::bytes / 16; ++i) {
      asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(v.quad[i].x), "=r"(v.quad[i].y), "=r"(v.quad[i].z), "=r"(v.quad[i].w)
                   : "l"(from + 16 * i));
    }
  }
}
template <class T, int N>
__device__ void load_kept(Vector<T, N>& v, const char* from, uint64_t policy) {
  if constexpr (Vector<T, N>::bytes == 4) {
    asm volatile("ld.global.L2::cache_hint.u32 %0, [%1], %2;" : "=r"(v.word[0]) : "l"(from), "l"(policy));
  } else if constexpr (Vector<T, N>::bytes == 8) {
    asm volatile("ld.global.L2::cache_hint.v2.u32 {%0, %1}, [%2], %3;"
                 : "=r"(v.two.x), "=r"(v.two.y)
                 : "l"(from), "l"(policy));
  } else {
#pragma unroll
    for (int i = 0; i < Vector<T, N>::bytes / 16; ++i) {
      asm volatile("ld.global.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
                   : "=r"(v.quad[i].x), "=r"(v.quad[i].y), "=r"(v.quad[i].z), "=r"(v.quad[i].w)
                   : "l"(from + 16 * i), "l"(policy));
    }
  }
}

// How to load table entries: as ever, or with a wish for what the second-level cache keeps.
struct Normal {
  template <class T, int N>
  __device__ void operator()(Vector<T, N>& v, const char* from) const {
    load_now(v, from);
  }
};
struct By {
  uint64_t policy;
  template <class T, int N>
  __device__ void operator()(Vector<T, N>& v, const char* from) const {
    load_kept(v, from, policy);
  }
};
// Every layer of a model reads the same tables.
__device__ inline By kept() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return {policy};
}
__device__ inline By kept_if(bool keep) {
  const uint64_t last = kept().policy;
  uint64_t normal;
  asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(normal));
  return {keep ? last : normal};
}

// What a thread holds of a head: two vectors of members, or one of pairs.
template <class X, Layout L, int P>
struct Piece {
  Vector<X, L == Layout::half ? P : 2 * P> low;
  Vector<X, L == Layout::half ? P : 16 / static_cast<int>(sizeof(X))> high;

  __device__ void load(const char* at, int second_bytes) {
    load_now(low, at);
    if constexpr (L == Layout::half) load_now(high, at + second_bytes);
  }
  __device__ void store(X* to, int second) const {
    low.store(to);
    if constexpr (L == Layout::half) high.store(to + second);
  }
  template <class C, int M>
  __device__ void unpack_to(Members<C, M>& to) const {
    if constexpr (L == Layout::half)
      unpack<C, M>(low, high, to);
    else
      unpack_pairs<C, M>(low, to);
  }
};

// M values of first and of second members to the pairs from j on, as the layout of the output has them.
template <Layout L, class C, int M, class X>
__device__ void store_members(const Members<C, M>& from, X* head, int j, int half) {
  constexpr int P = M * Arithmetic<C>::lanes;
  if constexpr (L == Layout::interleaved) {
    Vector<X, 2 * P> v;
    pack_pairs<C, M>(from, v);
    v.store(head + 2 * j);
  } else {
    Vector<X, P> v1, v2;
    pack<C, M>(from.first, v1);
    pack<C, M>(from.second, v2);
    v1.store(head + j);
    v2.store(head + j + half);
  }
}

// What one table holds for the P pairs of a thread, as loaded.
template <class T, Layout L, bool Full, int P>
struct Entries {
  static constexpr bool pairs = Full && L != Layout::half, two = Full && L == Layout::half;
  static constexpr int bytes = (pairs ? 2 * P : P) * static_cast<int>(sizeof(T));
  Vector<T, pairs ? 2 * P : P> low;
  Vector<T, two ? P : 1> high;

  template <class Load>
  __device__ void load(const char* at, int half_bytes, Load load_one) {
    load_one(low, at);
    if constexpr (two) load_one(high, at + half_bytes);
  }
  template <class C, int M>
  __device__ void unpack_to(Members<C, M>& to) const {
    if constexpr (pairs)
      unpack_pairs<C, M>(low, to);
    else if constexpr (two)
      unpack<C, M>(low, high, to);
    else
      unpack_twice<C, M>(low, to);
  }
};

}  // namespace bitexact
