#include "mutant_kernels.h"

#include "mutants.h"

namespace bitexact_test {
namespace {

__global__ void mutant_silu_mul(const __grid_constant__ SiluMulArgs a, Mutant mutant) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < reference::count(a); i += step) {
    mutant_silu_mul_at(a, mutant, i);
  }
}

__global__ void mutant_rope(const __grid_constant__ RopeArgs a, Mutant mutant) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < reference::count(a); i += step) {
    mutant_rope_at(a, mutant, i);
  }
}

__global__ void compare_blindly(const __grid_constant__ CompareArgs a, Blindness blindness,
                                Comparison* result) {
  blind_compare(a, blindness, result);
}

__global__ void nothing() {}

__global__ void wait_for(const volatile int* go) {
  while (*go == 0) {
  }
}

}  // namespace

cudaError_t launch_mutant(const SiluMulArgs& a, Mutant mutant, cudaStream_t stream) {
  mutant_silu_mul<<<512, 256, 0, stream>>>(a, mutant);
  return cudaGetLastError();
}

cudaError_t launch_mutant(const RopeArgs& a, Mutant mutant, cudaStream_t stream) {
  mutant_rope<<<512, 256, 0, stream>>>(a, mutant);
  return cudaGetLastError();
}

cudaError_t launch_blind_compare(const CompareArgs& a, Blindness blindness, Comparison* result,
                                 cudaStream_t stream) {
  compare_blindly<<<1, 1, 0, stream>>>(a, blindness, result);
  return cudaGetLastError();
}

cudaError_t launch_impossible(cudaStream_t stream) {
  nothing<<<1, 4096, 0, stream>>>();
  return cudaGetLastError();
}

cudaError_t launch_wait(const volatile int* go, cudaStream_t stream) {
  wait_for<<<1, 1, 0, stream>>>(go);
  return cudaGetLastError();
}

}  // namespace bitexact_test
