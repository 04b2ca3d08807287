/* CUDA's own stream types pass without a cast, whichever header comes first. */
#ifdef CUDA_FIRST
#include <cuda.h>
#include <cuda_runtime_api.h>
#endif
#include "bitexact.h"
#ifndef CUDA_FIRST
#include <cuda.h>
#include <cuda_runtime_api.h>
#endif

int32_t from_runtime(bitexact_context* context, const bitexact_rope_params* params, cudaStream_t stream);
int32_t from_driver(bitexact_context* context, const bitexact_rope_params* params, CUstream stream);

int32_t from_runtime(bitexact_context* context, const bitexact_rope_params* params, cudaStream_t stream) {
  return bitexact_fused_rope(context, params, stream);
}

int32_t from_driver(bitexact_context* context, const bitexact_rope_params* params, CUstream stream) {
  return bitexact_fused_rope(context, params, stream);
}
