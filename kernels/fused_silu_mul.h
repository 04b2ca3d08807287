#pragma once

#include <cuda_runtime_api.h>

#include "args.h"

namespace bitexact {

// Enqueues one kernel. `variant` must be one whose demands `a` meets (choose_variant, or narrower). No
// size may be zero. Returns the launch's status; prints, allocates and waits for nothing.
cudaError_t launch_fused_silu_mul(const SiluMulArgs& a, SiluMulVariant variant, cudaStream_t stream);

// The kernel's entry, for loading it ahead of its first launch.
const void* fused_silu_mul_entry(const SiluMulArgs& a, SiluMulVariant variant);

}  // namespace bitexact
