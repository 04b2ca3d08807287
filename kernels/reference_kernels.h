#pragma once

#include <cuda_runtime_api.h>

#include "args.h"

namespace bitexact {

// The built-in reference on the GPU: slow, plain, any layout. In place is allowed where `a` says so.
cudaError_t launch_reference_silu_mul(const SiluMulArgs& a, cudaStream_t stream);
cudaError_t launch_reference_rope(const RopeArgs& a, cudaStream_t stream);

// Adds to *result, which is in device memory and started as Comparison{}.
cudaError_t launch_compare(const CompareArgs& a, Comparison* result, cudaStream_t stream);

// The entries of the kernels above, for loading them ahead of their first launch.
struct ReferenceEntries {
  const void* entry[4];
};
ReferenceEntries reference_entries();

}  // namespace bitexact
