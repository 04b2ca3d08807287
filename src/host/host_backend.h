#pragma once

#include <memory>

#include "backend.h"

namespace bitexact {

// Host memory, null streams, calls that return when done.
int32_t open_host_backend(std::unique_ptr<Backend>& backend);

}  // namespace bitexact
