// out = silu(gate) * up in one pass, with every rounding of the eager chain.
//
// With x the dtype, rX rounding to x, r32 to float32 (to nearest even, subnormals kept):
//   aten          s = rX(r32(g / r32(1 + expf(-g))))                out = rX(s * u)
//   aten_float32  s = r32(g / r32(1 + expf(-g)))                    out = rX(r32(s * u))
//   sigmoid       s = rX(g * rX(r32(1 / r32(1 + expf(-g)))))        out = rX(s * u)
//   candle        s = rX(r32(g / rX(r32(1 + rX(expf(-g))))))        out = rX(s * u)
// expf is CUDA's accurate one, the division IEEE. `aten` is torch.nn.functional.silu, then a multiply.
//
// Layout: rows of contiguous columns, free row and batch strides. A thread moves one vector of each
// tensor; the last thread of a row does the columns that no whole vector covers.
#include "fused_silu_mul.h"

#include "common/launch.h"
#include "common/numeric.cuh"
#include "common/vector.cuh"

namespace bitexact {
namespace {

// ------------------------------------------------------------------------------- scalar op --

enum class Form { aten, aten_float32, sigmoid, candle };

// silu before its last rounding to X.
template <class X, Form F>
__device__ float silu(X gate) {
  const float g = widen(gate), e = expf(-g);
  if constexpr (F == Form::sigmoid) {
    return __fmul_rn(g, widen(round_to<X>(__fdiv_rn(1.0f, __fadd_rn(1.0f, e)))));
  } else if constexpr (F == Form::candle) {
    return __fdiv_rn(g, widen(round_to<X>(__fadd_rn(1.0f, widen(round_to<X>(e))))));
  } else {
    return __fdiv_rn(g, __fadd_rn(1.0f, e));
  }
}

// Two elements, or one of float32: as many as an Arithmetic<X> value holds.
template <class X, Form F>
__device__ void silu_mul(const X* gate, const X* up, X* out) {
  using A = Arithmetic<X>;
  constexpr int last = A::lanes - 1;
  if constexpr (F == Form::aten_float32) {
    for (int i = 0; i <= last; ++i) out[i] = round_to<X>(__fmul_rn(silu<X, F>(gate[i]), widen(up[i])));
  } else {
    const auto s = A::load(round_to<X>(silu<X, F>(gate[0])), round_to<X>(silu<X, F>(gate[last])));
    A::store(A::mul(s, A::load(up[0], up[last])), out[0], out[last]);
  }
}

// ---------------------------------------------------------------------------------- kernel --

constexpr int max_threads = 512;

template <class X, Form F, int N>
__global__ void __launch_bounds__(max_threads) fused_silu_mul(const __grid_constant__ SiluMulArgs a) {
  constexpr int step = N < Arithmetic<X>::lanes ? N : Arithmetic<X>::lanes;
  const int64_t vectors = (a.cols + N - 1) / N;
  for (int64_t b = blockIdx.z; b < a.batches; b += gridDim.z) {
    for (int64_t r = int64_t{blockIdx.y} * blockDim.y + threadIdx.y; r < a.rows;
         r += int64_t{gridDim.y} * blockDim.y) {
      const X* gate = static_cast<const X*>(a.gate.data) + b * a.gate.batch + r * a.gate.row;
      const X* up = static_cast<const X*>(a.up.data) + b * a.up.batch + r * a.up.row;
      X* out = static_cast<X*>(a.out.data) + b * a.out.batch + r * a.out.row;
      for (int64_t v = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; v < vectors;
           v += int64_t{gridDim.x} * blockDim.x) {
        const int64_t c = v * N;
        if (N > 1 && c + N > a.cols) {
          for (int64_t i = c; i < a.cols; ++i) {
            const X g[2] = {gate[i], gate[i]}, u[2] = {up[i], up[i]};
            X o[2];
            silu_mul<X, F>(g, u, o);
            out[i] = o[0];
          }
        } else if constexpr (N == 1) {
          const X g[2] = {gate[c], gate[c]}, u[2] = {up[c], up[c]};
          X o[2];
          silu_mul<X, F>(g, u, o);
          out[c] = o[0];
        } else {
          const auto g = Vector<X, N>::load(gate + c), u = Vector<X, N>::load(up + c);
          Vector<X, N> o;
#pragma unroll
          for (int i = 0; i < N; i += step) silu_mul<X, F>(g.at + i, u.at + i, o.at + i);
          o.store(out + c);
        }
      }
    }
  }
}

// ------------------------------------------------------------------------------- instances --

using Entry = void (*)(SiluMulArgs);

template <class X, Form F>
Entry entry(SiluMulVariant variant) {
  switch (variant) {
    case SiluMulVariant::vec16: return fused_silu_mul<X, F, 16 / sizeof(X)>;
    case SiluMulVariant::vec8: return fused_silu_mul<X, F, 8 / sizeof(X)>;
    default: return fused_silu_mul<X, F, 1>;
  }
}

template <class X>
Entry entry(const SiluMulArgs& a, SiluMulVariant variant) {
  if (a.silu == Silu::sigmoid) return entry<X, Form::sigmoid>(variant);
  if constexpr (sizeof(X) == 2) {
    if (a.silu == Silu::candle) return entry<X, Form::candle>(variant);
    if (a.compute_float32) return entry<X, Form::aten_float32>(variant);
  }
  return entry<X, Form::aten>(variant);
}

Entry entry_of(const SiluMulArgs& a, SiluMulVariant variant) {
  switch (a.dtype) {
    case Dtype::bfloat16: return entry<bf16>(a, variant);
    case Dtype::float16: return entry<f16>(a, variant);
    default: return entry<float>(a, variant);
  }
}

int64_t elements_a_thread(const SiluMulArgs& a, SiluMulVariant variant) {
  switch (variant) {
    case SiluMulVariant::vec16: return 16 / size_of(a.dtype);
    case SiluMulVariant::vec8: return 8 / size_of(a.dtype);
    default: return 1;
  }
}

}  // namespace

// -------------------------------------------------------------------------------- launcher --

const void* fused_silu_mul_entry(const SiluMulArgs& a, SiluMulVariant variant) {
  return reinterpret_cast<const void*>(entry_of(a, variant));
}

cudaError_t launch_fused_silu_mul(const SiluMulArgs& a, SiluMulVariant variant, cudaStream_t stream) {
  const int64_t vectors = ceil_div(a.cols, elements_a_thread(a, variant));
  // Small work wants many small blocks, so that every multiprocessor gets some.
  const int64_t threads = vectors * a.rows * a.batches < 132 * 2 * max_threads ? 128 : max_threads;
  const int64_t blocks_a_row = ceil_div(vectors, threads);
  const int64_t x = blocks_a_row == 1 ? vectors : ceil_div(ceil_div(vectors, blocks_a_row), 32) * 32;
  const int64_t y = std::min(std::max<int64_t>(threads / x, 1), a.rows);
  const dim3 block(static_cast<unsigned>(x), static_cast<unsigned>(y));
  const dim3 grid(grid_x(ceil_div(vectors, x)), grid_yz(ceil_div(a.rows, y)), grid_yz(a.batches));
  void* arguments[] = {const_cast<SiluMulArgs*>(&a)};
  return cudaLaunchKernel(fused_silu_mul_entry(a, variant), grid, block, arguments, 0, stream);
}

}  // namespace bitexact
