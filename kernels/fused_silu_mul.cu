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

#include <type_traits>

#include "common/launch.h"
#include "common/numeric.cuh"
#include "common/vector.cuh"

namespace bitexact {
namespace {

// ------------------------------------------------------------------------------- scalar op --

enum class Form { aten, aten_float32, sigmoid, candle };

// silu before its last rounding is numerator / denominator.
template <class X, Form F>
__device__ float numerator(X gate) {
  return F == Form::sigmoid ? 1.0f : widen(gate);
}
template <class X, Form F>
__device__ float denominator(X gate) {
  const float e = expf(-widen(gate));
  if constexpr (F == Form::candle) return widen(round_to<X>(__fadd_rn(1.0f, widen(round_to<X>(e)))));
  return __fadd_rn(1.0f, e);
}

// n / d rounded to nearest even, without the checks and the slow path of a general division: Newton steps
// and a last correction by the exact remainder. Right where 1 <= d < 2^126 and n is finite, which tests
// show for every gate there is. The remainder is taken as d * q - n, so that q = -0 stays -0.
__device__ inline float divide_in_range(float n, float d) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(d));
  r = __fmaf_rn(__fmaf_rn(-d, r, 1.0f), r, r);
  const float q = __fmul_rn(n, r);
  return __fmaf_rn(-__fmaf_rn(d, q, -n), r, q);
}
// The gates for which that holds: 1 + exp(-g), and candle's rounding of it, stay below 2^126. (NaN needs no
// care: it comes out of the Newton steps as it went in.)
template <class X, Form F>
__device__ bool in_range(float greatest_gate) {
  return greatest_gate < (F == Form::candle && std::is_same<X, f16>::value ? 11.0f : 87.0f);
}

// From the quotient to the result, for two elements, or for one of float32: as many as Arithmetic<X> packs.
template <class X, Form F>
__device__ void finish(const float* quotient, const X* gate, const X* up, X* out) {
  using A = Arithmetic<X>;
  constexpr int last = A::lanes - 1;
  if constexpr (F == Form::aten_float32) {
    for (int i = 0; i <= last; ++i) out[i] = round_to<X>(__fmul_rn(quotient[i], widen(up[i])));
  } else {
    typename A::Value s;
    if constexpr (last == 1)
      s = round_two_to<X>(quotient[0], quotient[1]);
    else
      s = quotient[0];
    if constexpr (F == Form::sigmoid) s = A::mul(A::load(gate[0], gate[last]), s);
    A::store(A::mul(s, A::load(up[0], up[last])), out[0], out[last]);
  }
}

// One element, any gate (NaN is in no range). The second lane of a packed value repeats it.
template <class X, Form F>
__device__ X silu_mul(X gate, X up) {
  const float n = numerator<X, F>(gate), d = denominator<X, F>(gate);
  const float q = in_range<X, F>(fabsf(widen(gate))) ? divide_in_range(n, d) : __fdiv_rn(n, d);
  const float quotient[2] = {q, q};
  const X g[2] = {gate, gate}, u[2] = {up, up};
  X o[2];
  finish<X, F>(quotient, g, u, o);
  return o[0];
}

// Two elements without a branch; right if in_range() holds for `greatest_gate` afterwards, as it nearly
// always does.
template <class X, Form F>
__device__ void quick_silu_mul(const X* gate, const X* up, X* out, float& greatest_gate) {
  float quotient[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    quotient[i] = divide_in_range(numerator<X, F>(gate[i]), denominator<X, F>(gate[i]));
    greatest_gate = fmaxf(greatest_gate, fabsf(widen(gate[i])));
  }
#pragma unroll
  for (int i = 0; i < 2; i += Arithmetic<X>::lanes) finish<X, F>(quotient + i, gate + i, up + i, out + i);
}

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

VectorArgs vector_args(const SiluMulArgs& a) {
  const auto narrow = [](int64_t stride) { return static_cast<int32_t>(stride); };
  return {a.gate.data,          a.up.data,          a.out.data,          a.cols,
          narrow(a.rows),       narrow(a.gate.row), narrow(a.up.row),    narrow(a.out.row),
          narrow(a.gate.batch), narrow(a.up.batch), narrow(a.out.batch), 0};
}

// N elements a thread. Blocks run through a row before they come to the next, as memory likes it.
template <class X, Form F, int N>
__global__ void __launch_bounds__(max_threads) fused_silu_mul_vector(const __grid_constant__ VectorArgs a) {
  const unsigned row_block = a.rows_on_x ? blockIdx.x : blockIdx.y,
                 col_block = a.rows_on_x ? blockIdx.y : blockIdx.x;
  const int r = row_block * blockDim.y + threadIdx.y, b = blockIdx.z;
  const int64_t c = int64_t{col_block} * (blockDim.x * N) + threadIdx.x * N;
  if (c >= a.cols || r >= a.rows) return;
  const X* const gate =
      static_cast<const X*>(a.gate) + (int64_t{b} * a.gate_batch + int64_t{r} * a.gate_row + c);
  const X* const up = static_cast<const X*>(a.up) + (int64_t{b} * a.up_batch + int64_t{r} * a.up_row + c);
  X* const out = static_cast<X*>(a.out) + (int64_t{b} * a.out_batch + int64_t{r} * a.out_row + c);
  int count = N;
  if (c + N <= a.cols) {
    const auto g = Vector<X, N>::load(gate), u = Vector<X, N>::load(up);
    Vector<X, N> o;
    float greatest_gate = 0.0f;
#pragma unroll
    for (int i = 0; i < N; i += 2) quick_silu_mul<X, F>(g.at + i, u.at + i, o.at + i, greatest_gate);
    if (in_range<X, F>(greatest_gate)) return o.store(out);
  } else {
    count = static_cast<int>(a.cols - c);
  }
#pragma unroll 1
  for (int i = 0; i < count; ++i) out[i] = silu_mul<X, F>(gate[i], up[i]);
}

constexpr int scalar_elements = 4;  // a thread, so that their loads wait together

// N single elements a thread, any size.
template <class X, Form F, int N>
__global__ void __launch_bounds__(max_threads) fused_silu_mul_scalar(const __grid_constant__ SiluMulArgs a) {
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
        each([&](int i, int64_t at) { out[at] = silu_mul<X, F>(g[i], u[i]); });
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
    default: return scalar_elements;
  }
}

}  // namespace

// -------------------------------------------------------------------------------- launcher --

const void* fused_silu_mul_entry(const SiluMulArgs& a, SiluMulVariant variant) {
  return entry_of(a, variant);
}

cudaError_t launch_fused_silu_mul(const SiluMulArgs& a, SiluMulVariant variant, cudaStream_t stream) {
  const int64_t vectors = ceil_div(a.cols, elements_a_thread(a, variant));
  const int64_t blocks_a_row = ceil_div(vectors, int64_t{max_threads});
  const int64_t x = blocks_a_row == 1 ? vectors : ceil_div(ceil_div(vectors, blocks_a_row), 32) * 32;
  const int64_t y = std::min(std::max<int64_t>(max_threads / x, 1), a.rows);
  const int64_t row_blocks = ceil_div(a.rows, y), col_blocks = ceil_div(vectors, x);
  const dim3 block(static_cast<unsigned>(x), static_cast<unsigned>(y));
  VectorArgs short_args = vector_args(a);
  short_args.rows_on_x = row_blocks > 65535;
  const bool rows_on_x = variant != SiluMulVariant::scalar && short_args.rows_on_x != 0;
  const dim3 grid(grid_x(rows_on_x ? row_blocks : col_blocks), grid_yz(rows_on_x ? col_blocks : row_blocks),
                  grid_yz(a.batches));
  void* arguments[] = {variant == SiluMulVariant::scalar ? static_cast<void*>(const_cast<SiluMulArgs*>(&a))
                                                         : &short_args};
  return cudaLaunchKernel(fused_silu_mul_entry(a, variant), grid, block, arguments, 0, stream);
}

}  // namespace bitexact
