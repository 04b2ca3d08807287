// out = silu(gate) * up in one pass, with every rounding of the eager chain.
// The arithmetic stands in fused_silu_mul.cuh.
//
// Layout: rows of contiguous columns, free row and batch strides. A thread moves one vector of each
// tensor; the columns of a row that no whole vector covers have a thread each.
#include "fused_silu_mul.h"

#include <type_traits>

#include "common/launch.h"
#include "common/vector.cuh"
#include "fused_silu_mul.cuh"

namespace bitexact {
namespace {

// --------------------------------------------------------------------------------- kernels --

constexpr int max_threads = 128;  // small blocks: when one ends, the next one's loads start at once

// What the vector kernels need, as short as can be: reading it delays small calls.
struct VectorArgs {
  const void *gate, *up;
  void* out;
  int64_t cols;
  int32_t rows, gate_row, up_row, out_row, gate_batch, up_batch, out_batch;
  int32_t rows_on_x;  // more rows than the y axis holds
};
struct ClampedVectorArgs : VectorArgs {
  float limit;
};
template <Form F>
using VectorArgsOf = std::conditional_t<clamp_of(F) == Clamp::none, VectorArgs, ClampedVectorArgs>;

ClampedVectorArgs vector_args(const SiluMulArgs& a) {
  const auto narrow = [](int64_t stride) { return static_cast<int32_t>(stride); };
  return {{a.gate.data, a.up.data, a.out.data, a.cols, narrow(a.rows), narrow(a.gate.row), narrow(a.up.row),
           narrow(a.out.row), narrow(a.gate.batch), narrow(a.up.batch), narrow(a.out.batch), 0},
          a.limit};
}

// N elements a thread, then one. Blocks run through a row before they come to the next, as memory likes it.
template <class X, Form F, int N>
__global__ void __launch_bounds__(max_threads)
    fused_silu_mul_vector(const __grid_constant__ VectorArgsOf<F> a) {
  const unsigned row_block = a.rows_on_x ? blockIdx.x : blockIdx.y,
                 col_block = a.rows_on_x ? blockIdx.y : blockIdx.x;
  const int r = row_block * blockDim.y + threadIdx.y, b = blockIdx.z;
  const int64_t v = int64_t{col_block} * blockDim.x + threadIdx.x, whole = static_cast<uint64_t>(a.cols) / N;
  const bool is_whole = v < whole;
  const int64_t c = is_whole ? v * N : v + whole * (N - 1);
  if (c >= a.cols || r >= a.rows) return;
  const X* const gate =
      static_cast<const X*>(a.gate) + (int64_t{b} * a.gate_batch + int64_t{r} * a.gate_row + c);
  const X* const up = static_cast<const X*>(a.up) + (int64_t{b} * a.up_batch + int64_t{r} * a.up_row + c);
  X* const out = static_cast<X*>(a.out) + (int64_t{b} * a.out_batch + int64_t{r} * a.out_row + c);
  float limit = 0.0f;
  if constexpr (clamp_of(F) != Clamp::none) limit = limit_of<X, F>(a.limit);
  if (is_whole) {
    const auto g = Vector<X, N>::load(gate), u = Vector<X, N>::load(up);
    Vector<X, N> o;
    float greatest_gate = 0.0f;
#pragma unroll
    for (int i = 0; i < N; i += 2) {
      quick_silu_mul<X, F>(g.at + i, u.at + i, o.at + i, limit, greatest_gate);
    }
    if (in_range<X, F>(greatest_gate)) return o.store(out);
  }
#pragma unroll 1
  for (int i = 0; i < (is_whole ? N : 1); ++i) out[i] = silu_mul<X, F>(gate[i], up[i], limit);
}

constexpr int scalar_elements = 4;  // a thread, so that their loads wait together

// N single elements a thread, any size.
template <class X, Form F, int N>
__global__ void __launch_bounds__(max_threads) fused_silu_mul_scalar(const __grid_constant__ SiluMulArgs a) {
  const float limit = limit_of<X, F>(a.limit);
  for (int64_t b = blockIdx.z; b < a.batches; b += gridDim.z) {
    for (int64_t r = int64_t{blockIdx.y} * blockDim.y + threadIdx.y; r < a.rows;
         r += int64_t{gridDim.y} * blockDim.y) {
      const X* const gate = static_cast<const X*>(a.gate.data) + b * a.gate.batch + r * a.gate.row;
      const X* const up = static_cast<const X*>(a.up.data) + b * a.up.batch + r * a.up.row;
      X* const out = static_cast<X*>(a.out.data) + b * a.out.batch + r * a.out.row;
      for (int64_t c = int64_t{blockIdx.x} * (blockDim.x * N) + threadIdx.x; c < a.cols;
           c += int64_t{gridDim.x} * (blockDim.x * N)) {
        X g[N], u[N];
        auto each = [&](auto work) {
#pragma unroll
          for (int i = 0; i < N; ++i) {
            if (c + i * blockDim.x < a.cols) work(i, c + i * blockDim.x);
          }
        };
        each([&](int i, int64_t at) { g[i] = gate[at], u[i] = up[at]; });
        each([&](int i, int64_t at) { out[at] = silu_mul<X, F>(g[i], u[i], limit); });
      }
    }
  }
}

// ------------------------------------------------------------------------------- instances --

using Entry = const void*;

template <class X, Form F>
Entry entry(SiluMulVariant variant) {
  switch (variant) {
    case SiluMulVariant::vec16:
      return reinterpret_cast<Entry>(fused_silu_mul_vector<X, F, 16 / static_cast<int>(sizeof(X))>);
    case SiluMulVariant::vec8:
      return reinterpret_cast<Entry>(fused_silu_mul_vector<X, F, 8 / static_cast<int>(sizeof(X))>);
    default: return reinterpret_cast<Entry>(fused_silu_mul_scalar<X, F, scalar_elements>);
  }
}

template <class X>
Entry entry(const SiluMulArgs& a, SiluMulVariant variant) {
  if (a.clamp == Clamp::after) return entry<X, Form::aten_after>(variant);
  if constexpr (sizeof(X) == 2) {
    if (a.silu == Silu::candle) return entry<X, Form::candle>(variant);
    if (a.compute_float32 && a.silu == Silu::glu) return entry<X, Form::glu_float32>(variant);
    if (a.compute_float32 && a.clamp != Clamp::none) return entry<X, Form::aten_float32_before>(variant);
    if (a.compute_float32) return entry<X, Form::aten_float32>(variant);
  }
  if (a.clamp == Clamp::before) return entry<X, Form::aten_before>(variant);
  if (a.silu == Silu::sigmoid) return entry<X, Form::sigmoid>(variant);
  if (a.silu == Silu::glu) return entry<X, Form::glu>(variant);
  return entry<X, Form::aten>(variant);
}

Entry entry_of(const SiluMulArgs& a, SiluMulVariant variant) {
  switch (a.dtype) {
    case Dtype::bfloat16: return entry<bf16>(a, variant);
    case Dtype::float16: return entry<f16>(a, variant);
    default: return entry<float>(a, variant);
  }
}

int64_t threads_a_row(const SiluMulArgs& a, SiluMulVariant variant) {
  if (variant == SiluMulVariant::scalar) return ceil_div(a.cols, scalar_elements);
  const int64_t elements = (variant == SiluMulVariant::vec16 ? 16 : 8) / size_of(a.dtype);
  return a.cols / elements + a.cols % elements;
}

}  // namespace

// -------------------------------------------------------------------------------- launcher --

const void* fused_silu_mul_entry(const SiluMulArgs& a, SiluMulVariant variant) {
  return entry_of(a, variant);
}

cudaError_t launch_fused_silu_mul(const SiluMulArgs& a, SiluMulVariant variant, cudaStream_t stream) {
  const int64_t threads = threads_a_row(a, variant);
  const int64_t blocks_a_row = ceil_div(threads, int64_t{max_threads});
  const int64_t x = blocks_a_row == 1 ? threads : ceil_div(ceil_div(threads, blocks_a_row), 32) * 32;
  const int64_t y = std::min(std::max<int64_t>(max_threads / x, 1), a.rows);
  const int64_t row_blocks = ceil_div(a.rows, y), col_blocks = ceil_div(threads, x);
  const dim3 block(static_cast<unsigned>(x), static_cast<unsigned>(y));
  ClampedVectorArgs short_args = vector_args(a);
  short_args.rows_on_x = row_blocks > 65535;
  const bool rows_on_x = variant != SiluMulVariant::scalar && short_args.rows_on_x != 0;
  const dim3 grid(grid_x(rows_on_x ? row_blocks : col_blocks), grid_yz(rows_on_x ? col_blocks : row_blocks),
                  grid_yz(a.batches));
  void* arguments[] = {variant == SiluMulVariant::scalar ? static_cast<void*>(const_cast<SiluMulArgs*>(&a))
                                                         : &short_args};
  return cudaLaunchKernel(fused_silu_mul_entry(a, variant), grid, block, arguments, 0, stream);
}

}  // namespace bitexact
