// Device memory and streams that free themselves.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace bitexact_test {

#define ASSERT_CUDA(call) ASSERT_EQ((call), cudaSuccess) << cudaGetErrorString(cudaGetLastError())

class DeviceMemory {
 public:
  explicit DeviceMemory(size_t bytes) : bytes_(bytes) {
    EXPECT_EQ(cudaMalloc(&data_, bytes == 0 ? 1 : bytes), cudaSuccess) << bytes << " bytes";
  }
  explicit DeviceMemory(const std::vector<uint8_t>& from) : DeviceMemory(from.size()) {
    EXPECT_EQ(cudaMemcpy(data_, from.data(), from.size(), cudaMemcpyHostToDevice), cudaSuccess);
    // The copy may come back before its data has arrived, and other streams do not wait for it.
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  }
  ~DeviceMemory() { cudaFree(data_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  template <class T = void>
  T* as() const {
    return static_cast<T*>(data_);
  }
  // Waits for the whole device.
  std::vector<uint8_t> bytes() const {
    std::vector<uint8_t> to(bytes_);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(to.data(), data_, bytes_, cudaMemcpyDeviceToHost), cudaSuccess);
    return to;
  }

 private:
  void* data_ = nullptr;
  size_t bytes_;
};

class Stream {
 public:
  explicit Stream(unsigned flags = cudaStreamNonBlocking) {
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, flags), cudaSuccess);
  }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace bitexact_test
