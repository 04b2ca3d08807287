// out = silu(gate) * up in one pass, with every rounding of the eager chain.
// The arithmetic stands in fused_silu_mul.cuh.
//
// Layout: rows of contiguous columns, free row and batch strides. A thread moves one vector of each
// tensor; the columns of a row that no whole vector covers have a thread each.
#include "fused_silu_mul.h"

#include <type_traits>

#include "common/launch.h"
#include "fused_silu_mul.cuh"
#include "fused_silu_mul_vector.h"
#include "variants.h"

namespace bitexact {
namespace {

// --------------------------------------------------------------------------------- kernels --

// Thread i: vector i, or a single element behind all of them.
template <class X, Form F, int N, Steps S>
__global__ void __launch_bounds__(large_vector_threads)
    fused_silu_mul_vector(const __grid_constant__ SiluMulVectorArgs a) {
  constexpr int bytes = N * static_cast<int>(sizeof(X));
  const uint32_t i = blockIdx.x * a.block + threadIdx.x;
  const int b = blockIdx.z;
  float limit = 0.0f;
  if constexpr (clamp_of(F) != Clamp::none) limit = limit_of<X, F>(a.limit);
  if (i < a.total) {
    const int r = __umulhi(i, a.whole_factor) >> a.whole_shift;
    int64_t gate_at = 0, up_at = 0, out_at = 0;
    if (b > 0) {  // else their line of arguments is not waited for
      gate_at = int64_t{b} * a.gate_batch, up_at = int64_t{b} * a.up_batch, out_at = int64_t{b} * a.out_batch;
    }
    auto add = [&](int64_t& at, int32_t step) {
      at += int64_t{r} * step + int64_t{i} * bytes;
      asm volatile("" : "+l"(at));  // here, beside the waiting for loads, and not where it is used
    };
    add(gate_at, a.gate_step), add(up_at, a.up_step), add(out_at, a.out_step);
    const X* const gate = reinterpret_cast<const X*>(a.gate + gate_at);
    const X* const up = reinterpret_cast<const X*>(a.up + up_at);
    char* to = a.out + out_at;
    asm volatile("" : "+l"(to));  // now, not where it is used: a condition would make it come by a slower way
    __builtin_assume(__isGlobal(to));
    X* const out = reinterpret_cast<X*>(to);
    const auto g = Vector<X, N>::load(gate), u = Vector<X, N>::load(up);
    Vector<X, N> o;
    if (quick_silu_mul<X, F, S>(g, u, o, limit)) return o.store(out);
  }
  // Element after element, if there are any for this thread.
  uint32_t j = i;
  asm volatile("" : "+r"(j));  // far from the code above, which is to be read in one go
  const uint32_t total =
      a.rows * a.whole;  // not a.total, which, kept for here, would come by a slower way above
  const bool single = j >= total;
  if (single) j -= total;
  if (single && j >= a.rest_total) return;
  const uint32_t in_row = single ? a.rest : a.whole;
  const int r = j / in_row, c = j - r * in_row, column = single ? a.whole * N + c : c * N;
  auto element = [&](auto* data, int32_t batch, int32_t row) {
    return data + (int64_t{b} * batch + int64_t{r} * row + int64_t{column} * static_cast<int>(sizeof(X)));
  };
  const X* const gate = reinterpret_cast<const X*>(element(a.gate, a.gate_batch, a.gate_row));
  const X* const up = reinterpret_cast<const X*>(element(a.up, a.up_batch, a.up_row));
  X* const out = reinterpret_cast<X*>(element(a.out, a.out_batch, a.out_row));
#pragma unroll 1
  for (int k = 0; k < (single ? 1 : N); ++k) out[k] = silu_mul<X, F, S>(gate[k], up[k], limit);
}

constexpr int scalar_threads = 256;  // of a block
constexpr int scalar_elements = 4;   // a thread, so that their loads wait together

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
#pragma unroll 1
        for (int64_t at = c; at < std::min<int64_t>(c + N * blockDim.x, a.cols); at += blockDim.x) {
          if (!is_quick<X, F>(gate[at])) out[at] = silu_mul<X, F, S>(gate[at], up[at], limit);
        }
        each([&](int i, int64_t at) {
          if (is_quick<X, F>(g.at[i])) out[at] = o.at[i];
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
  const void* const entry = fused_silu_mul_entry(a, variant);
  if (vector_bytes(variant) > 0) {
    SiluMulVectorArgs v = vector_args(a, vector_bytes(variant));
    const dim3 grid(grid_x(ceil_div(int64_t{v.total} + v.rest_total, v.block)), 1, grid_yz(a.batches));
    void* arguments[] = {&v};
    return cudaLaunchKernel(entry, grid, v.block, arguments, 0, stream);
  }
  const int64_t threads = ceil_div(a.cols, scalar_elements), blocks_a_row = ceil_div(threads, scalar_threads);
  const int64_t x = blocks_a_row == 1 ? threads : ceil_div(ceil_div(threads, blocks_a_row), 32) * 32;
  const int64_t y = std::min(std::max<int64_t>(scalar_threads / x, 1), a.rows);
  const dim3 block(static_cast<unsigned>(x), static_cast<unsigned>(y));
  const dim3 grid(grid_x(ceil_div(threads, x)), grid_yz(ceil_div(a.rows, y)), grid_yz(a.batches));
  void* arguments[] = {const_cast<SiluMulArgs*>(&a)};
  return cudaLaunchKernel(entry, grid, block, arguments, 0, stream);
}

}  // namespace bitexact
