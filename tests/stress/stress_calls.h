// Small calls of both operations on a device or on the host, each with the bytes that it must leave.
#pragma once

#include <memory>
#include <thread>

#include "cases.h"
#include "contexts.h"
#include "reference/reference.h"
#ifdef BITEXACT_STRESS_CUDA
#include "device.h"
#endif

namespace bitexact_test {

// Memory of the device, or of the host where it is -1.
class Storage {
 public:
  Storage(int32_t device, const std::vector<uint8_t>& bytes) : host_(bytes) {
    data_ = host_.data();
#ifdef BITEXACT_STRESS_CUDA
    if (device >= 0) {
      memory_ = std::make_unique<DeviceMemory>(bytes);
      data_ = memory_->as<uint8_t>();
    }
#else
    EXPECT_LT(device, 0) << "this build of the test knows no devices";
#endif
  }
  uint8_t* data() const { return data_; }
  void write(const std::vector<uint8_t>& bytes) {
#ifdef BITEXACT_STRESS_CUDA
    if (memory_ != nullptr) {
      EXPECT_EQ(cudaMemcpy(data_, bytes.data(), bytes.size(), cudaMemcpyHostToDevice), cudaSuccess);
      EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
      return;
    }
#endif
    host_.assign(bytes.begin(), bytes.end());
  }
  std::vector<uint8_t> read() const {
#ifdef BITEXACT_STRESS_CUDA
    if (memory_ != nullptr) {
      std::vector<uint8_t> bytes(host_.size());
      EXPECT_EQ(cudaMemcpy(bytes.data(), data_, bytes.size(), cudaMemcpyDeviceToHost), cudaSuccess);
      return bytes;
    }
#endif
    return host_;
  }

 private:
  std::vector<uint8_t> host_;
  uint8_t* data_;
#ifdef BITEXACT_STRESS_CUDA
  std::unique_ptr<DeviceMemory> memory_;
#endif
};

inline int64_t device_memory_in_use() {
#ifdef BITEXACT_STRESS_CUDA
  size_t free = 0, total = 0;
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cudaMemGetInfo(&free, &total), cudaSuccess);
  return static_cast<int64_t>(total - free);
#else
  return 0;
#endif
}

class StressCalls {
 public:
  StressCalls(int32_t device, uint64_t seed)
      : device_(device),
        own_number_(-1 - static_cast<int64_t>(seed)),
        silu_(make_case({BITEXACT_DTYPE_BFLOAT16, 0, 0, 1, 3, 64, 8, 0, false, InPlace::no}, seed)),
        rope_(make_case(rope_shape(), seed + 1000)),
        silu_memory_(device, silu_.arena.bytes()),
        rope_memory_(device, rope_.arena.bytes()),
        silu_params_(moved(silu_.params, silu_.arena, silu_memory_.data())),
        rope_params_(moved(rope_.params, rope_.arena, rope_memory_.data())),
        silu_expected_(silu_.arena.bytes()),
        rope_expected_(rope_.arena.bytes()) {
    bitexact_reference::silu_mul(moved(silu_.params, silu_.arena, silu_expected_.data()));
    bitexact_reference::rope(moved(rope_.params, rope_.arena, rope_expected_.data()), nullptr);
  }

  const bitexact_silu_mul_params* silu_mul() const { return &silu_params_; }
  const bitexact_rope_params* rope() const { return &rope_params_; }

  int call_silu_mul(bitexact_context* context) {
    return bitexact_fused_silu_mul(context, &silu_params_, nullptr) != BITEXACT_STATUS_OK;
  }
  int call_rope(bitexact_context* context) {
    return bitexact_fused_rope(context, &rope_params_, nullptr) != BITEXACT_STATUS_OK;
  }
  int refuse(bitexact_context* context) {
    bitexact_silu_mul_params p = silu_params_;
    p.rows = own_number_;
    return bitexact_fused_silu_mul(context, &p, nullptr) != BITEXACT_STATUS_INVALID_SHAPE;
  }
  void synchronize() const {
#ifdef BITEXACT_STRESS_CUDA
    if (device_ >= 0) EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
#endif
  }

  // From fresh bytes, `extra` calls more than one, whose inputs stay.
  bool silu_mul_is_right(bitexact_context* context, int extra) {
    silu_memory_.write(silu_.arena.bytes());
    for (int i = 0; i <= extra; ++i) {
      if (call_silu_mul(context) != 0) return false;
    }
    return silu_memory_.read() == silu_expected_;
  }
  bool rope_is_right(bitexact_context* context) {
    rope_memory_.write(rope_.arena.bytes());
    return call_rope(context) == 0 && rope_memory_.read() == rope_expected_;
  }
  // The text of a refusal is this thread's own: it names this thread's number, also after a while.
  bool refusal_is_right(bitexact_context* context) {
    if (refuse(context) != 0) return false;
    std::this_thread::yield();
    return std::string(bitexact_last_error()).find("rows is " + std::to_string(own_number_) + ";") !=
           std::string::npos;
  }

 private:
  static RopeShape rope_shape() {
    RopeShape s = plain_rope_shape(20, 2, 1, 16);
    s.positions_dtype = BITEXACT_DTYPE_INT32;
    return s;
  }

  int32_t device_;
  int64_t own_number_;
  SiluMulCase silu_;
  RopeCase rope_;
  Storage silu_memory_, rope_memory_;
  bitexact_silu_mul_params silu_params_;
  bitexact_rope_params rope_params_;
  std::vector<uint8_t> silu_expected_, rope_expected_;
};

}  // namespace bitexact_test
