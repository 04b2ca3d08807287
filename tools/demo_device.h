// Where the demo runs a call: memory, and a clock that knows when the call is done.
#pragma once

#include <cstddef>
#include <functional>

namespace bitexact_demo {

struct Device {
  std::function<void*(size_t bytes)> allocate;
  std::function<void(void* memory)> release;
  std::function<void(void*to, const void*from, size_t bytes)> upload, download;
  std::function<double(const std::function<void()>& call)> seconds;  // of one call, median of several
};

Device host_device();

// A CUDA device, for streams that are null. Throws in a build without CUDA.
Device cuda_device(int ordinal);

}  // namespace bitexact_demo
