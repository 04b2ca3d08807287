#pragma once

#include <cuda_runtime_api.h>

#include "args.h"

namespace bitexact_test {

enum class Mutant : int;
enum class Blindness : int;

cudaError_t launch_mutant(const bitexact::SiluMulArgs& a, Mutant mutant, cudaStream_t stream);
cudaError_t launch_mutant(const bitexact::RopeArgs& a, Mutant mutant, cudaStream_t stream);

cudaError_t launch_blind_compare(const bitexact::CompareArgs& a, Blindness blindness,
                                 bitexact::Comparison* result, cudaStream_t stream);

// A launch that CUDA refuses: more threads than a block can have.
cudaError_t launch_impossible(cudaStream_t stream);

// Keeps a stream busy until *go (in mapped host memory) is not zero.
cudaError_t launch_wait(const volatile int* go, cudaStream_t stream);

}  // namespace bitexact_test
