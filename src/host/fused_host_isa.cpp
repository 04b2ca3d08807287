// The host's fused operations, for one instruction set: compiled once for each, with BITEXACT_HOST_ISA
// naming it. Loops over short arrays that the compiler turns into vector code; the formulas and the order
// of roundings are those of kernels/fused_rope.cuh and kernels/fused_silu_mul.cu.
#include <cmath>
#include <cstring>

#include "fused_host.h"

#ifdef __FAST_MATH__
#error "bitexact cannot be built with fast-math: it changes bits"
#endif

namespace bitexact {
namespace {

// ------------------------------------------------------------------------------ conversions --

template <class To, class From>
To as(From from) {
  To to;
  static_assert(sizeof(to) == sizeof(from), "same width");
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

struct bf16 {
  uint16_t bits;
};
struct f16 {
  uint16_t bits;
};

inline float widen(bf16 x) { return as<float>(uint32_t{x.bits} << 16); }
inline float widen(f16 x) {
  // The exponent is moved by a multiplication, which also makes subnormals normal; exact.
  const uint32_t magnitude = uint32_t{x.bits & 0x7fffu} << 13, sign = uint32_t{x.bits & 0x8000u} << 16;
  const uint32_t finite = as<uint32_t>(as<float>(magnitude) * 0x1p112f);
  return as<float>(sign | (magnitude >= 0x0f800000u ? magnitude | 0x7f800000u : finite));
}
inline float widen(float x) { return x; }
inline double widen(double x) { return x; }

// To nearest even; NaN becomes the one that CUDA writes.
template <class X>
X narrow(float v);
template <>
inline bf16 narrow<bf16>(float v) {
  const uint32_t u = as<uint32_t>(v), rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16;
  return {static_cast<uint16_t>((u & 0x7fffffff) > 0x7f800000 ? 0x7fff : rounded)};
}
template <>
inline f16 narrow<f16>(float v) {
  const uint32_t u = as<uint32_t>(v), sign = u >> 16 & 0x8000, m = u & 0x7fffffff;
  // Normal results round on integers. Subnormal ones let the addition of 0.5, whose last bit is 2^-24, round.
  const uint32_t normal = (m - 0x38000000u + 0xfff + (m >> 13 & 1)) >> 13;
  const uint32_t subnormal = as<uint32_t>(as<float>(m) + 0.5f) - 0x3f000000u;
  const uint32_t finite = m < 0x38800000u ? subnormal : m >= 0x47800000u ? 0x7c00 : normal;
  return {static_cast<uint16_t>(m > 0x7f800000 ? 0x7fff : sign | finite)};
}
template <>
inline float narrow<float>(float v) {
  const uint32_t u = as<uint32_t>(v);
  return as<float>((u & 0x7fffffff) > 0x7f800000 ? 0x7fffffff : u);
}
template <class X>
X narrow(double v) {
  return narrow<X>(static_cast<float>(v));
}

// Rounding to the compute dtype C, kept in a wider number.
template <class C>
struct Compute {
  using Number = float;
  static float round(float v) { return widen(narrow<C>(v)); }
};
template <>
struct Compute<float> {
  using Number = float;
  static float round(float v) { return v; }
};
template <>
struct Compute<double> {
  using Number = double;
  static double round(double v) { return v; }
};

// -------------------------------------------------------------------------------- silu_mul --

inline float at_most(float x, float limit) { return x > limit ? limit : x; }  // a NaN stays
inline float within(float x, float limit) { return x < -limit ? -limit : at_most(x, limit); }

template <class X, Clamp K>
void silu_mul_rows(const SiluMulArgs& a, const SiluTable& table) {
  const float limit = widen(narrow<X>(a.limit));
  const auto element = [&](X gate, X up) {
    if (K == Clamp::before) gate = narrow<X>(at_most(widen(gate), limit));
    const float s = widen(X{table.at[gate.bits]}), u = widen(up);
    return narrow<X>((K == Clamp::after ? at_most(s, limit) : s) * (K == Clamp::none ? u : within(u, limit)));
  };
  for (int64_t b = 0; b < a.batches; ++b) {
    for (int64_t r = 0; r < a.rows; ++r) {
      const X* gate = static_cast<const X*>(a.gate.data) + b * a.gate.batch + r * a.gate.row;
      const X* up = static_cast<const X*>(a.up.data) + b * a.up.batch + r * a.up.row;
      X* out = static_cast<X*>(a.out.data) + b * a.out.batch + r * a.out.row;
      for (int64_t c = 0; c < a.cols; ++c) out[c] = element(gate[c], up[c]);
    }
  }
}

template <class X>
void silu_mul_of(const SiluMulArgs& a, const SiluTable& table) {
  switch (a.clamp) {
    case Clamp::before: return silu_mul_rows<X, Clamp::before>(a, table);
    case Clamp::after: return silu_mul_rows<X, Clamp::after>(a, table);
    default: return silu_mul_rows<X, Clamp::none>(a, table);
  }
}

void silu_mul(const SiluMulArgs& a, const SiluTable& table) {
  a.dtype == Dtype::bfloat16 ? silu_mul_of<bf16>(a, table) : silu_mul_of<f16>(a, table);
}

// ------------------------------------------------------------------------------------ rope --

constexpr int64_t chunk = 128;  // pairs at a time: everything stays in the first cache

template <class Number>
struct Pairs {
  Number first[chunk], second[chunk];
};

template <class X, class Number>
void load(const X* from, Pairing pairing, int64_t j, int64_t n, int64_t half, int64_t stride,
          Pairs<Number>& to) {
  const bool halves = pairing == Pairing::half;
  const X* p = from + (halves ? j : 2 * j) * stride;
  if (stride == 1 && halves) {
    for (int64_t i = 0; i < n; ++i) to.first[i] = widen(p[i]);
    for (int64_t i = 0; i < n; ++i) to.second[i] = widen(p[half + i]);
  } else if (stride == 1) {
    for (int64_t i = 0; i < n; ++i) to.first[i] = widen(p[2 * i]), to.second[i] = widen(p[2 * i + 1]);
  } else {
    const int64_t step = halves ? stride : 2 * stride, other = halves ? half * stride : stride;
    for (int64_t i = 0; i < n; ++i)
      to.first[i] = widen(p[i * step]), to.second[i] = widen(p[i * step + other]);
  }
}

template <class X, class Number>
void store(const Pairs<Number>& from, Pairing pairing, int64_t j, int64_t n, int64_t half, X* to) {
  if (pairing == Pairing::half) {
    X* p = to + j;
    for (int64_t i = 0; i < n; ++i) p[i] = narrow<X>(from.first[i]);
    for (int64_t i = 0; i < n; ++i) p[half + i] = narrow<X>(from.second[i]);
  } else {
    X* p = to + 2 * j;
    for (int64_t i = 0; i < n; ++i)
      p[2 * i] = narrow<X>(from.first[i]), p[2 * i + 1] = narrow<X>(from.second[i]);
  }
}

template <class T, class Number>
void load_table(const Table& table, const T* row, const RopeArgs& a, int64_t j, int64_t n,
                Pairs<Number>& to) {
  if (a.full_table) return load(row, a.pairing_in, j, n, a.rotary_dim / 2, table.element, to);
  for (int64_t i = 0; i < n; ++i) to.first[i] = to.second[i] = widen(row[(j + i) * table.element]);
}

template <class C, class N = typename Compute<C>::Number>
void rotate(const RopeArgs& a, const Pairs<N>& x, const Pairs<N>& cos, const Pairs<N>& sin, int64_t n,
            Pairs<N>& out) {
  auto round = [](N v) { return Compute<C>::round(v); };
  const bool cos1 = a.combine == Combine::complex || a.combine == Combine::complex_alt;
  const bool sin2 = a.combine == Combine::complex || a.combine == Combine::addcmul_cos;
  if (a.combine == Combine::separate) {
    const N zero = a.sum_from_zero ? N(0) : -N(0);  // adding -0 changes nothing
    for (int64_t i = 0; i < n; ++i) {
      out.first[i] = round(round(x.first[i] * cos.first[i]) - round(x.second[i] * sin.first[i]) + zero);
      out.second[i] = round(round(x.second[i] * cos.second[i]) + round(x.first[i] * sin.second[i]) + zero);
    }
    return;
  }
  if (cos1) {
    for (int64_t i = 0; i < n; ++i) {
      out.first[i] = round(std::fma(x.first[i], cos.first[i], -round(x.second[i] * sin.first[i])));
    }
  } else {
    for (int64_t i = 0; i < n; ++i) {
      out.first[i] = round(std::fma(-x.second[i], sin.first[i], round(x.first[i] * cos.first[i])));
    }
  }
  if (sin2) {
    for (int64_t i = 0; i < n; ++i) {
      out.second[i] = round(std::fma(x.first[i], sin.second[i], round(x.second[i] * cos.second[i])));
    }
  } else {
    for (int64_t i = 0; i < n; ++i) {
      out.second[i] = round(std::fma(x.second[i], cos.second[i], round(x.first[i] * sin.second[i])));
    }
  }
}

template <class X, class T, class C>
void rope_token(const RopeArgs& a, int64_t b, int64_t t) {
  using Number = typename Compute<C>::Number;
  int64_t row = t;
  if (a.positions.data != nullptr) {
    const int64_t at = b * a.positions.batch + t * a.positions.token;
    row = a.positions.dtype == Dtype::int32 ? static_cast<const int32_t*>(a.positions.data)[at]
                                            : static_cast<const int64_t*>(a.positions.data)[at];
  }
  const bool outside = a.positions.data != nullptr && (row < 0 || row >= a.table_rows);
  // Calls may share a context, and so this count.
  if (outside && a.position_errors != nullptr) __atomic_fetch_add(a.position_errors, 1, __ATOMIC_RELAXED);
  const int64_t half = a.rotary_dim / 2, heads = a.heads[0] + a.heads[1];
  const bool per_head = a.cos.head != 0 || a.sin.head != 0;
  Pairs<Number> cos, sin, x, out;
  for (int64_t j = 0; j < half; j += chunk) {
    const int64_t n = half - j < chunk ? half - j : chunk;
    auto load_tables = [&](int64_t head) {
      if (outside) {
        for (int64_t i = 0; i < n; ++i)
          cos.first[i] = cos.second[i] = sin.first[i] = sin.second[i] = Number(NAN);
        return;
      }
      load_table(a.cos,
                 static_cast<const T*>(a.cos.data) + b * a.cos.batch + row * a.cos.token + head * a.cos.head,
                 a, j, n, cos);
      load_table(a.sin,
                 static_cast<const T*>(a.sin.data) + b * a.sin.batch + row * a.sin.token + head * a.sin.head,
                 a, j, n, sin);
      if (!a.inverse) return;
      for (int64_t i = 0; i < n; ++i) sin.first[i] = -sin.first[i], sin.second[i] = -sin.second[i];
    };
    if (!per_head) load_tables(0);
    for (int64_t h = 0; h < heads; ++h) {
      const bool is_k = h >= a.heads[0];
      const int64_t head = is_k ? h - a.heads[0] : h;
      const Heads &in = a.in[is_k], &to = a.out[is_k];
      if (per_head) load_tables(head);
      load(static_cast<const X*>(in.data) + b * in.batch + t * in.token + head * in.head, a.pairing_in, j, n,
           half, 1, x);
      rotate<C>(a, x, cos, sin, n, out);
      store(out, a.pairing_out, j, n, half,
            static_cast<X*>(to.data) + b * to.batch + t * to.token + head * to.head);
    }
  }
  for (int64_t h = 0; h < heads; ++h) {
    const bool is_k = h >= a.heads[0];
    const int64_t head = is_k ? h - a.heads[0] : h;
    const Heads &in = a.in[is_k], &to = a.out[is_k];
    std::memmove(static_cast<X*>(to.data) + b * to.batch + t * to.token + head * to.head + a.rotary_dim,
                 static_cast<const X*>(in.data) + b * in.batch + t * in.token + head * in.head + a.rotary_dim,
                 static_cast<size_t>(a.head_dim - a.rotary_dim) * sizeof(X));
  }
}

template <class X, class T, class C>
void rope_all(const RopeArgs& a) {
  for (int64_t b = 0; b < a.batches; ++b) {
    for (int64_t t = 0; t < a.tokens; ++t) rope_token<X, T, C>(a, b, t);
  }
}

template <class X>
void rope_of(const RopeArgs& a) {
  const bool f64 = a.compute_dtype == Dtype::float64;
  if (a.table_dtype == Dtype::float64) return rope_all<X, double, double>(a);
  if (a.table_dtype == Dtype::float32)
    return f64 ? rope_all<X, float, double>(a) : rope_all<X, float, float>(a);
  if (f64) return rope_all<X, X, double>(a);
  return a.compute_dtype == Dtype::float32 ? rope_all<X, X, float>(a) : rope_all<X, X, X>(a);
}

void rope(const RopeArgs& a) {
  switch (a.dtype) {
    case Dtype::bfloat16: return rope_of<bf16>(a);
    case Dtype::float16: return rope_of<f16>(a);
    default: return rope_of<float>(a);
  }
}

}  // namespace

#define BITEXACT_JOIN2(a, b) a##b
#define BITEXACT_JOIN(a, b) BITEXACT_JOIN2(a, b)
extern const HostOperations BITEXACT_JOIN(host_operations_, BITEXACT_HOST_ISA) = {silu_mul, rope};

}  // namespace bitexact
