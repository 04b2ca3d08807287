#include <stdexcept>

#include "demo_device.h"

namespace bitexact_demo {

Device cuda_device(int) { throw std::runtime_error("this build of the demo has no CUDA"); }

}  // namespace bitexact_demo
