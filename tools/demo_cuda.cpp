#include <cuda_runtime_api.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "demo_device.h"

namespace bitexact_demo {
namespace {

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

// Events stand around a group of calls, since the time between two events is known to half a microsecond only.
double seconds(const std::function<void()>& call) {
  constexpr int groups = 9, calls = 20;
  cudaEvent_t start, stop;
  check(cudaEventCreate(&start), "cudaEventCreate");
  check(cudaEventCreate(&stop), "cudaEventCreate");
  std::vector<float> milliseconds(groups);
  for (float& time : milliseconds) {
    check(cudaEventRecord(start, nullptr), "cudaEventRecord");
    for (int i = 0; i < calls; ++i) call();
    check(cudaEventRecord(stop, nullptr), "cudaEventRecord");
    check(cudaEventSynchronize(stop), "cudaEventSynchronize");
    check(cudaEventElapsedTime(&time, start, stop), "cudaEventElapsedTime");
  }
  cudaEventDestroy(start);
  cudaEventDestroy(stop);
  std::nth_element(milliseconds.begin(), milliseconds.begin() + groups / 2, milliseconds.end());
  return milliseconds[groups / 2] * 1e-3 / calls;
}

}  // namespace

Device cuda_device(int ordinal) {
  check(cudaSetDevice(ordinal), "cudaSetDevice");
  Device device;
  device.allocate = [](size_t bytes) {
    void* memory = nullptr;
    check(cudaMalloc(&memory, bytes), "cudaMalloc");
    return memory;
  };
  device.release = [](void* memory) { cudaFree(memory); };
  device.upload = [](void* to, const void* from, size_t bytes) {
    check(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
  };
  device.download = [](void* to, const void* from, size_t bytes) {
    check(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
  };
  device.seconds = seconds;
  return device;
}

}  // namespace bitexact_demo
