// out = silu(gate) * up in one pass, with every rounding of the eager chain.
// The arithmetic stands in fused_silu_mul.cuh.
//
// Layout: rows of contiguous columns, free row and batch strides. A thread moves one vector of each
// tensor; the columns of a row that no whole vector covers have a thread each.
#include "fused_silu_mul.h"

#include <type_traits>

#include "common/launch.h"
#include "fused_silu_mul.cuh"
#include "variants.h"

namespace bitexact {
namespace {

// --------------------------------------------------------------------------------- kernels --

// Of a block. Small ones: when one ends, the next one's loads start at once. Measured.
constexpr int vector_threads = 128, scalar_threads = 256;

// What the vector kernels need, as short as can be: reading it delays small calls. Strides in bytes.
struct VectorArgs {
  const void *gate, *up;
  void* out;
  uint32_t whole, threads;  // of a row: those with a vector each, and all
  int32_t rows, gate_row, up_row, out_row, gate_batch, up_batch, out_batch;
  int32_t rows_on_x;  // more rows than the y axis holds
};
struct ClampedVectorArgs : VectorArgs {
  float limit;
};
template <Form F>
using VectorArgsOf = std::conditional_t<clamp_of(F) == Clamp::none, VectorArgs, ClampedVectorArgs>;

ClampedVectorArgs vector_args(const SiluMulArgs& a, int64_t whole, int64_t threads, bool rows_on_x) {
  const auto bytes = [&](int64_t stride) { return static_cast<int32_t>(stride * size_of(a.dtype)); };
  return {{a.gate.data, a.up.data, a.out.data, static_cast<uint32_t>(whole), static_cast<uint32_t>(threads),
           static_cast<int32_t>(a.rows), bytes(a.gate.row), bytes(a.up.row), bytes(a.out.row),
           bytes(a.gate.batch), bytes(a.up.batch), bytes(a.out.batch), rows_on_x},
          a.limit};
}

// N elements a thread, then one. Blocks run through a row before they come to the next, as memory likes it.
template <class X, Form F, int N, Steps S>
__global__ void __launch_bounds__(vector_threads)
    fused_silu_mul_vector(const __grid_constant__ VectorArgsOf<F> a) {
  const unsigned row_block = a.rows_on_x ? blockIdx.x : blockIdx.y,
                 col_block = a.rows_on_x ? blockIdx.y : blockIdx.x;
  const unsigned v = col_block * blockDim.x + threadIdx.x;
  const int r = row_block * blockDim.y + threadIdx.y, b = blockIdx.z;
  // Offsets of the whole vector, in bytes. Here, beside the waiting for loads, and not where each is used.
  auto offset = [&](int32_t batch, int32_t row) {
    int64_t at = int64_t{r} * row + int64_t{b} * batch + int64_t{v} * (N * sizeof(X));
    asm volatile("" : "+l"(at));
    return at;
  };
  const int64_t gate_at = offset(a.gate_batch, a.gate_row), up_at = offset(a.up_batch, a.up_row),
                out_at = offset(a.out_batch, a.out_row);
  const X* gate = reinterpret_cast<const X*>(static_cast<const char*>(a.gate) + gate_at);
  const X* up = reinterpret_cast<const X*>(static_cast<const char*>(a.up) + up_at);
  X* out = reinterpret_cast<X*>(static_cast<char*>(a.out) + out_at);
  float limit = 0.0f;
  if constexpr (clamp_of(F) != Clamp::none) limit = limit_of<X, F>(a.limit);
  int count = N;
  if (v < a.whole && r < a.rows) {
    const auto g = Vector<X, N>::load(gate), u = Vector<X, N>::load(up);
    Vector<X, N> o;
    if (quick_silu_mul<X, F, S>(g, u, o, limit)) return o.store(out);
  } else {
    if (v >= a.threads || r >= a.rows) return;
    const int64_t back = int64_t{v - a.whole} * (N - 1);  // behind the whole ones each has one
    gate -= back, up -= back, out -= back;
    count = 1;
  }
#pragma unroll 1
  for (int i = 0; i < count; ++i) out[i] = silu_mul<X, F>(gate[i], up[i], limit);
}

constexpr int scalar_elements = 4;  // a thread, so that their loads wait together

// N single elements a thread, any size.
template <class X, Form F, int N, Steps S>
__global__ void __launch_bounds__(scalar_threads)
    fused_silu_mul_scalar(const __grid_constant__ SiluMulArgs a) {
  const float limit = limit_of<X, F>(a.limit);
  for (int64_t b = blockIdx.z; b < a.batches; b += gridDim.z) {
    for (int64_t r = int64_t{blockIdx.y} * blockDim.y + threadIdx.y; r < a.rows;
         r += int64_t{gridDim.y} * blockDim.y) {
      const X* const gate = static_cast<const X*>(a.gate.data) + b * a.gate.batch + r * a.gate.row;
      const X* const up = static_cast<const X*>(a.up.data) + b * a.up.batch + r * a.up.row;
      X* const out = static_cast<X*>(a.out.data) + b * a.out.batch + r * a.out.row;
      for (int64_t c = int64_t{blockIdx.x} * (blockDim.x * N) + threadIdx.x; c < a.cols;
           c += int64_t{gridDim.x} * (blockDim.x * N)) {
        Vector<X, N> g, u, o;
        auto each = [&](auto work) {
#pragma unroll
          for (int i = 0; i < N; ++i) {
            if (c + i * blockDim.x < a.cols) work(i, c + i * blockDim.x);
          }
        };
        for (int i = 0; i < N; ++i) g.at[i] = u.at[i] = {};
        each([&](int i, int64_t at) { g.at[i] = gate[at], u.at[i] = up[at]; });
        if (quick_silu_mul<X, F, S>(g, u, o, limit)) {
          each([&](int i, int64_t at) { out[at] = o.at[i]; });
          continue;
        }
        // Each for itself, so that what the check found of a gate holds whatever stands beside it.
        auto is_small = [](X x) { return fabsf(widen(x)) < quick_below<X, F>; };
#pragma unroll 1
        for (int64_t at = c; at < std::min<int64_t>(c + N * blockDim.x, a.cols); at += blockDim.x) {
          if (!is_small(gate[at])) out[at] = silu_mul<X, F>(gate[at], up[at], limit);
        }
        each([&](int i, int64_t at) {
          if (is_small(g.at[i])) out[at] = o.at[i];
        });
      }
    }
  }
}

// ------------------------------------------------------------------------------- instances --

using Entry = const void*;

template <class X, Form F, Steps S>
Entry entry_with(int64_t bytes) {
  switch (bytes) {
    case 16: return reinterpret_cast<Entry>(fused_silu_mul_vector<X, F, 16 / static_cast<int>(sizeof(X)), S>);
    case 8: return reinterpret_cast<Entry>(fused_silu_mul_vector<X, F, 8 / static_cast<int>(sizeof(X)), S>);
    default: return reinterpret_cast<Entry>(fused_silu_mul_scalar<X, F, scalar_elements, S>);
  }
}

template <class X, Form F>
Entry entry(SiluMulVariant variant) {
  if constexpr (std::is_same<X, bf16>::value && !one_rounding(F)) {
    if (is_fast(variant)) return entry_with<X, F, Steps::fast>(vector_bytes(variant));
  }
  return entry_with<X, F, Steps::ieee>(vector_bytes(variant));
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

}  // namespace

// -------------------------------------------------------------------------------- launcher --

const void* fused_silu_mul_entry(const SiluMulArgs& a, SiluMulVariant variant) {
  return entry_of(a, variant);
}

cudaError_t launch_fused_silu_mul(const SiluMulArgs& a, SiluMulVariant variant, cudaStream_t stream) {
  const bool scalar = vector_bytes(variant) == 0;
  const int64_t elements = scalar ? scalar_elements : vector_bytes(variant) / size_of(a.dtype);
  const int64_t whole = a.cols / elements, rest = a.cols - whole * elements;
  const int64_t threads = scalar ? whole + (rest > 0 ? 1 : 0) : whole + rest;
  const int64_t most = scalar ? scalar_threads : vector_threads;
  const int64_t blocks_a_row = ceil_div(threads, most);
  const int64_t x = blocks_a_row == 1 ? threads : ceil_div(ceil_div(threads, blocks_a_row), 32) * 32;
  const int64_t y = std::min(std::max<int64_t>(most / x, 1), a.rows);
  const int64_t row_blocks = ceil_div(a.rows, y), col_blocks = ceil_div(threads, x);
  const dim3 block(static_cast<unsigned>(x), static_cast<unsigned>(y));
  const bool rows_on_x = !scalar && row_blocks > 65535;
  ClampedVectorArgs vector = vector_args(a, whole, threads, rows_on_x);
  const dim3 grid(grid_x(rows_on_x ? row_blocks : col_blocks), grid_yz(rows_on_x ? col_blocks : row_blocks),
                  grid_yz(a.batches));
  void* arguments[] = {scalar ? static_cast<void*>(const_cast<SiluMulArgs*>(&a)) : &vector};
  return cudaLaunchKernel(fused_silu_mul_entry(a, variant), grid, block, arguments, 0, stream);
}

}  // namespace bitexact
