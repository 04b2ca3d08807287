// The reference and the comparison on the GPU: a thread an element, or a pair; arithmetic in reference.h.
#include "reference_kernels.h"

#include "common/launch.h"
#include "reference.h"
#include "warp.cuh"

namespace bitexact {
namespace {

__device__ int64_t first_index() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ int64_t index_step() { return int64_t{gridDim.x} * blockDim.x; }

__global__ void reference_silu_mul(const __grid_constant__ SiluMulArgs a) {
  for (int64_t i = first_index(); i < reference::count(a); i += index_step()) reference::silu_mul_at(a, i);
}

__global__ void reference_rope(const __grid_constant__ RopeArgs a) {
  for (int64_t i = first_index(); i < reference::count(a); i += index_step()) {
    if (reference::rope_at(a, i) && a.position_errors != nullptr) atomicAdd(a.position_errors, 1ull);
  }
}

__global__ void compare(const __grid_constant__ CompareArgs a, Comparison* result) {
  unsigned long long digest = 0;
  for (int64_t i = first_index(); i < a.count; i += index_step()) {
    const auto compared = reference::compare_at(a, i);
    if (compared.difference == reference::Difference::value) {
      atomicAdd(&result->mismatches, 1ull);
      atomicMin(&result->key, a.first_key + static_cast<unsigned long long>(i));
    } else if (compared.difference == reference::Difference::nan_payload) {
      atomicAdd(&result->nan_payload_differences, 1ull);
    }
    digest += compared.share;
  }
  digest = warp_sum(digest);
  if (threadIdx.x % 32 == 0 && digest != 0) atomicAdd(&result->digest, digest);
}

// Fetches the bits of the first mismatch, if it lies in this comparison.
__global__ void fetch_first_mismatch(const __grid_constant__ CompareArgs a, Comparison* result) {
  const unsigned long long count = a.count;
  if (result->key < a.first_key || result->key - a.first_key >= count) return;
  const auto compared = reference::compare_at(a, static_cast<int64_t>(result->key - a.first_key));
  result->expected = compared.expected;
  result->actual = compared.actual;
}

constexpr int threads = 256;

unsigned blocks_for(int64_t count) { return grid_x(ceil_div(count, threads)); }

}  // namespace

cudaError_t launch_reference_silu_mul(const SiluMulArgs& a, cudaStream_t stream) {
  void* arguments[] = {const_cast<SiluMulArgs*>(&a)};
  return cudaLaunchKernel(reference_silu_mul, dim3(blocks_for(a.batches * a.rows * a.cols)), dim3(threads),
                          arguments, 0, stream);
}

cudaError_t launch_reference_rope(const RopeArgs& a, cudaStream_t stream) {
  void* arguments[] = {const_cast<RopeArgs*>(&a)};
  return cudaLaunchKernel(reference_rope, dim3(blocks_for(reference::count(a))), dim3(threads), arguments, 0,
                          stream);
}

cudaError_t launch_compare(const CompareArgs& a, Comparison* result, cudaStream_t stream) {
  void* arguments[] = {const_cast<CompareArgs*>(&a), &result};
  const cudaError_t error =
      cudaLaunchKernel(compare, dim3(blocks_for(a.count)), dim3(threads), arguments, 0, stream);
  if (error != cudaSuccess) return error;
  return cudaLaunchKernel(fetch_first_mismatch, dim3(1), dim3(1), arguments, 0, stream);
}

ReferenceEntries reference_entries() {
  return {{reinterpret_cast<const void*>(&reference_silu_mul), reinterpret_cast<const void*>(&reference_rope),
           reinterpret_cast<const void*>(&compare), reinterpret_cast<const void*>(&fetch_first_mismatch)}};
}

}  // namespace bitexact
