// Stands in for the CUDA backend in a library built without CUDA.
#include "cuda_backend.h"
#include "status.h"

namespace bitexact {

int32_t open_cuda_backend(int32_t device, std::unique_ptr<Backend>&) {
  return fail(BITEXACT_STATUS_NO_CUDA_BACKEND,
              "device is %d, but this library was built without CUDA; accepted: -1 (the host)", device);
}

int32_t cuda_runtime_version() { return 0; }

}  // namespace bitexact
