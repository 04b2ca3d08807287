#pragma once

#include <cstdint>
#include <memory>

#include "backend.h"

namespace bitexact {

// Opens a CUDA device: NO_DRIVER, NO_DEVICE, INVALID_DEVICE and the like where there is none, and
// NO_CUDA_BACKEND in a library built without CUDA.
int32_t open_cuda_backend(int32_t device, std::unique_ptr<Backend>& backend);

// Version of the CUDA runtime inside the library, 0 in a host-only build.
int32_t cuda_runtime_version();

}  // namespace bitexact
