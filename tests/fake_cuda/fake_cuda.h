// What a test decides about the fake CUDA runtime. Set it before the library first looks.
#pragma once

#include <vector>

namespace fake_cuda {

struct Device {
  int architecture = 90;
  int binary = 90, ptx = 90;  // what the kernels were compiled for
  bool memory_pools = true;
};

struct Machine {
  std::vector<Device> devices = {Device()};
  int driver_version = 13000;  // 0: none
  bool capturing = false;      // every stream
};
Machine& machine();

// Leaves the calling thread as a new one is: no current context.
void reset_thread();

}  // namespace fake_cuda
