#pragma once

#include <cuda_runtime_api.h>

#include "args.h"

namespace bitexact {

// Enqueues one kernel that rotates q and k. `variant` must be one whose demands `a` meets
// (choose_variant, or scalar). batches, tokens, head_dim and the sum of heads may not be zero. Returns
// the launch's status; prints, allocates and waits for nothing.
cudaError_t launch_fused_rope(const RopeArgs& a, RopeVariant variant, cudaStream_t stream);

// The kernel's entry, for loading it ahead of its first launch.
const void* fused_rope_entry(const RopeArgs& a, RopeVariant variant);

}  // namespace bitexact
