#pragma once

#include <cuda_runtime_api.h>

#include "certify_sweep.h"

namespace bitexact {

// Writes the inputs of a part into the tensors of `a`.
cudaError_t launch_certify_fill(const CertifyArgs<SiluMulArgs>& a, cudaStream_t stream);
cudaError_t launch_certify_fill(const CertifyArgs<RopeArgs>& a, cudaStream_t stream);

// Adds the outputs of a part to *tally, which is in device memory; first_key is the key of output 0.
cudaError_t launch_certify_tally(const CertifyArgs<SiluMulArgs>& a, uint64_t first_key, Tally* tally,
                                 cudaStream_t stream);
cudaError_t launch_certify_tally(const CertifyArgs<RopeArgs>& a, uint64_t first_key, Tally* tally,
                                 cudaStream_t stream);

}  // namespace bitexact
