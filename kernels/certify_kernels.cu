// The certificate's own kernels: write a part's inputs, and hold its outputs against the reference. What
// they compute stands in certify_sweep.h and reference.h; every operation there names its rounding.
#include "certify_kernels.h"

#include "warp.cuh"

namespace bitexact {
namespace {

constexpr int threads = 256, blocks = 2048;

template <class Args>
__global__ void certify_fill_kernel(const __grid_constant__ CertifyArgs<Args> a) {
  for (int64_t i = int64_t{blockIdx.x} * threads + threadIdx.x; i < certify_inputs; i += blocks * threads) {
    certify_fill(a, i);
  }
}

// For keys: the least over the threads of a warp.
__device__ unsigned long long warp_least(unsigned long long x) {
  for (int offset = 16; offset > 0; offset /= 2) {
    const unsigned long long other = __shfl_xor_sync(0xffffffffu, x, offset);
    x = other < x ? other : x;
  }
  return x;
}

// The dtypes are constants here, so that the compiler can fold the reference's general rounding.
__device__ SiluMulArgs with_dtypes(SiluMulArgs a, Dtype x, Dtype) {
  a.dtype = x;
  return a;
}
__device__ RopeArgs with_dtypes(RopeArgs a, Dtype x, Dtype compute) {
  a.dtype = x;
  a.compute_dtype = compute;
  return a;
}

template <class Args, Dtype X, Dtype C>
__global__ void __launch_bounds__(threads)
    certify_tally_kernel(const __grid_constant__ CertifyArgs<Args> given, uint64_t first_key, Tally* tally) {
  CertifyArgs<Args> a = given;
  a.call = with_dtypes(given.call, X, C);
  Tally mine = {0, 0, 0, no_key, {}, 0, 0};
  for (int64_t i = int64_t{blockIdx.x} * threads + threadIdx.x; i < certify_inputs; i += blocks * threads) {
    certify_judge(a, i, [&](int which, const Judged& j) {
      certify_count(j, X, first_key + static_cast<uint64_t>(i * certify_outputs(a.call) + which), mine);
    });
  }
  const auto digest = warp_sum(mine.digest), mismatches = warp_sum(mine.mismatches);
  const auto payloads = warp_sum(mine.nan_payload_differences), key = warp_least(mine.key);
  if (threadIdx.x % 32 != 0) return;
  if (digest != 0) atomicAdd(&tally->digest, digest);
  if (payloads != 0) atomicAdd(&tally->nan_payload_differences, payloads);
  if (mismatches == 0) return;
  atomicAdd(&tally->mismatches, mismatches);
  atomicMin(&tally->key, key);
}

// Fetches the bits of the first mismatch, if it lies in this part.
template <class Args>
__global__ void certify_fetch_kernel(const __grid_constant__ CertifyArgs<Args> a, uint64_t first_key,
                                     Tally* tally) {
  const uint64_t at = tally->key - first_key, outputs = certify_outputs(a.call);
  if (tally->key < first_key || at >= certify_inputs * outputs) return;
  certify_judge(a, static_cast<int64_t>(at / outputs), [&](int which, const Judged& j) {
    if (static_cast<uint64_t>(which) != at % outputs) return;
    for (int n = 0; n < 4; ++n) tally->inputs[n] = j.inputs[n];
    tally->expected = j.expected;
    tally->actual = j.actual;
  });
}

constexpr Dtype b16 = Dtype::bfloat16, f16 = Dtype::float16, f32 = Dtype::float32, f64 = Dtype::float64;

const void* tally_entry(const SiluMulArgs& a) {
  switch (a.dtype) {
    case b16: return reinterpret_cast<const void*>(&certify_tally_kernel<SiluMulArgs, b16, b16>);
    case f16: return reinterpret_cast<const void*>(&certify_tally_kernel<SiluMulArgs, f16, f16>);
    default: return reinterpret_cast<const void*>(&certify_tally_kernel<SiluMulArgs, f32, f32>);
  }
}

template <Dtype X>
const void* tally_entry_of(Dtype compute) {
  switch (compute) {
    case f64: return reinterpret_cast<const void*>(&certify_tally_kernel<RopeArgs, X, f64>);
    case f32: return reinterpret_cast<const void*>(&certify_tally_kernel<RopeArgs, X, f32>);
    default: return reinterpret_cast<const void*>(&certify_tally_kernel<RopeArgs, X, X>);
  }
}

const void* tally_entry(const RopeArgs& a) {
  switch (a.dtype) {
    case b16: return tally_entry_of<b16>(a.compute_dtype);
    case f16: return tally_entry_of<f16>(a.compute_dtype);
    default: return tally_entry_of<f32>(a.compute_dtype);
  }
}

template <class Args>
cudaError_t launch_fill(const CertifyArgs<Args>& a, cudaStream_t stream) {
  void* arguments[] = {const_cast<CertifyArgs<Args>*>(&a)};
  return cudaLaunchKernel(reinterpret_cast<const void*>(&certify_fill_kernel<Args>), dim3(blocks),
                          dim3(threads), arguments, 0, stream);
}

template <class Args>
cudaError_t launch_tally(const CertifyArgs<Args>& a, uint64_t first_key, Tally* tally, cudaStream_t stream) {
  void* arguments[] = {const_cast<CertifyArgs<Args>*>(&a), &first_key, &tally};
  const cudaError_t error =
      cudaLaunchKernel(tally_entry(a.call), dim3(blocks), dim3(threads), arguments, 0, stream);
  if (error != cudaSuccess) return error;
  return cudaLaunchKernel(reinterpret_cast<const void*>(&certify_fetch_kernel<Args>), dim3(1), dim3(1),
                          arguments, 0, stream);
}

}  // namespace

cudaError_t launch_certify_fill(const CertifyArgs<SiluMulArgs>& a, cudaStream_t stream) {
  return launch_fill(a, stream);
}
cudaError_t launch_certify_fill(const CertifyArgs<RopeArgs>& a, cudaStream_t stream) {
  return launch_fill(a, stream);
}
cudaError_t launch_certify_tally(const CertifyArgs<SiluMulArgs>& a, uint64_t first_key, Tally* tally,
                                 cudaStream_t stream) {
  return launch_tally(a, first_key, tally, stream);
}
cudaError_t launch_certify_tally(const CertifyArgs<RopeArgs>& a, uint64_t first_key, Tally* tally,
                                 cudaStream_t stream) {
  return launch_tally(a, first_key, tally, stream);
}

}  // namespace bitexact
