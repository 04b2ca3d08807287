// Whole input domains on the GPU: the fused kernel against the plain reference kernel, every pair.
#include <gtest/gtest.h>

#include "device.h"
#include "fused_silu_mul.h"
#include "reference_kernels.h"
#include "variants.h"

using namespace bitexact;
using bitexact_test::DeviceMemory;

namespace {

// Element i of the whole domain: its high half is the gate, its low half the up.
__global__ void fill_pairs(uint16_t* gate, uint16_t* up, uint32_t first, uint32_t count) {
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    gate[i] = static_cast<uint16_t>((first + i) >> 16);
    up[i] = static_cast<uint16_t>(first + i);
  }
}

__global__ void fill_float_gates(uint32_t* gate, float* up, uint32_t first, uint32_t count) {
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    gate[i] = first + i;
    up[i] = 1.0f;
  }
}

constexpr int64_t chunk = int64_t{1} << 26;

// One row of inputs, and what a kernel makes of it against the reference, summed up.
struct Row {
  Dtype dtype;
  int64_t cols;
  size_t bytes = static_cast<size_t>(cols * size_of(dtype));
  DeviceMemory gate{bytes}, up{bytes}, actual{bytes}, expected{bytes}, result{sizeof(Comparison)};

  void start() {
    const Comparison none;
    ASSERT_CUDA(cudaMemcpy(result.as(), &none, sizeof(none), cudaMemcpyHostToDevice));
  }
  void run(SiluMulArgs a, SiluMulVariant variant, uint64_t first_key) {
    a.dtype = dtype;
    a.batches = a.rows = 1;
    a.cols = cols;
    a.gate = {gate.as(), cols, cols};
    a.up = {up.as(), cols, cols};
    ASSERT_CUDA(cudaMemsetAsync(actual.as(), 0xa5, bytes));
    a.out = {actual.as(), cols, cols};
    ASSERT_CUDA(launch_fused_silu_mul(a, variant, nullptr));
    a.out = {expected.as(), cols, cols};
    ASSERT_CUDA(launch_reference_silu_mul(a, nullptr));
    const CompareArgs comparison{dtype,
                                 cols,
                                 {actual.as(), {1, 1, 1, cols}, {0, 0, 0}, 0},
                                 {expected.as(), {1, 1, 1, cols}, {0, 0, 0}, 0},
                                 first_key};
    ASSERT_CUDA(launch_compare(comparison, result.as<Comparison>(), nullptr));
  }
  void expect_equal() {
    Comparison sum;
    ASSERT_CUDA(cudaMemcpy(&sum, result.as(), sizeof(sum), cudaMemcpyDeviceToHost));
    EXPECT_EQ(sum.mismatches, 0u) << "first: inputs 0x" << std::hex << sum.key << ", got 0x" << sum.actual
                                  << ", expected 0x" << sum.expected;
    EXPECT_EQ(sum.nan_payload_differences, 0u);
  }
};

void sweep(const SiluMulArgs& a, SiluMulVariant variant) {
  Row row{a.dtype, chunk};
  row.start();
  for (int64_t first = 0; first < int64_t{1} << 32; first += chunk) {
    const auto key = static_cast<uint32_t>(first);
    if (size_of(a.dtype) == 2) {
      fill_pairs<<<1024, 256>>>(row.gate.as<uint16_t>(), row.up.as<uint16_t>(), key, chunk);
    } else {
      fill_float_gates<<<1024, 256>>>(row.gate.as<uint32_t>(), row.up.as<float>(), key, chunk);
    }
    ASSERT_NO_FATAL_FAILURE(row.run(a, variant, static_cast<uint64_t>(first)));
  }
  row.expect_equal();
}

// In the IEEE form and, where there is one, in the fast form.
void sweep_wide(const SiluMulArgs& a) {
  sweep(a, SiluMulVariant::vec16);
  if (may_be_fast(a)) sweep(a, SiluMulVariant::vec16_fast);
}

TEST(Exhaustive, SiluMulOverAllPairs) {
  for (const Dtype dtype : {Dtype::bfloat16, Dtype::float16}) {
    for (const Silu silu : {Silu::aten, Silu::sigmoid, Silu::candle, Silu::glu}) {
      for (const bool float32 : {false, true}) {
        if (float32 && silu != Silu::aten && silu != Silu::glu) continue;
        SCOPED_TRACE(testing::Message()
                     << static_cast<int>(dtype) << " " << static_cast<int>(silu) << " " << float32);
        SiluMulArgs a{};
        a.dtype = dtype;
        a.silu = silu;
        a.compute_float32 = float32;
        sweep_wide(a);
      }
    }
  }
}

TEST(Exhaustive, ClampedSiluMulOverAllPairs) {
  for (const Dtype dtype : {Dtype::bfloat16, Dtype::float16}) {
    for (const Clamp clamp : {Clamp::before, Clamp::after}) {
      for (const bool float32 : {false, true}) {
        if (float32 && clamp == Clamp::after) continue;
        for (const float limit : {10.0f, 0.3f, 65520.0f}) {
          SCOPED_TRACE(testing::Message() << static_cast<int>(dtype) << " " << static_cast<int>(clamp) << " "
                                          << float32 << " " << limit);
          SiluMulArgs a{};
          a.dtype = dtype;
          a.compute_float32 = float32;
          a.clamp = clamp;
          a.limit = limit;
          sweep_wide(a);
        }
      }
    }
  }
}

TEST(Exhaustive, NarrowVariantsOverAllPairs) {
  for (const SiluMulVariant variant : {SiluMulVariant::vec8, SiluMulVariant::scalar,
                                       SiluMulVariant::vec8_fast, SiluMulVariant::scalar_fast}) {
    for (const Dtype dtype : {Dtype::bfloat16, Dtype::float16}) {
      SCOPED_TRACE(testing::Message() << static_cast<int>(dtype) << " " << static_cast<int>(variant));
      SiluMulArgs a{};
      a.dtype = dtype;
      if (is_fast(variant) && !may_be_fast(a)) continue;
      sweep(a, variant);
    }
  }
}

// Gate g at every place of a vector, among gates too large for the quick steps.
__global__ void fill_mixed(uint16_t* gate, uint16_t* up, uint16_t large, int64_t count) {
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x) {
    const int64_t place = i / 8 % 8;
    gate[i] = i % 8 == place ? static_cast<uint16_t>(i / 64) : large;
    up[i] = static_cast<uint16_t>(i * 40503);
  }
}

TEST(Exhaustive, EachGateAmongLargeOnes) {
  for (const Dtype dtype : {Dtype::bfloat16, Dtype::float16}) {
    Row row{dtype, int64_t{64} << 16};
    const uint16_t hundred = dtype == Dtype::bfloat16 ? 0x42c8 : 0x5640;
    fill_mixed<<<1024, 256>>>(row.gate.as<uint16_t>(), row.up.as<uint16_t>(), hundred, row.cols);
    for (int v = 0; v < 2 * silu_mul_widths; ++v) {
      const auto variant = static_cast<SiluMulVariant>(v);
      SiluMulArgs a{};
      a.dtype = dtype;
      if (is_fast(variant) && !may_be_fast(a)) continue;
      SCOPED_TRACE(testing::Message() << static_cast<int>(dtype) << " " << v);
      row.start();
      ASSERT_NO_FATAL_FAILURE(row.run(a, variant, 0));
      row.expect_equal();
    }
  }
}

TEST(Exhaustive, Float32SiluOverAllGates) {
  for (const Silu silu : {Silu::aten, Silu::sigmoid, Silu::glu}) {
    SiluMulArgs a{};
    a.dtype = Dtype::float32;
    a.silu = silu;
    sweep(a, SiluMulVariant::vec16);
  }
  for (const Clamp clamp : {Clamp::before, Clamp::after}) {
    for (const float limit : {10.0f, 0.3f}) {  // up is 1: the second limits it too
      SiluMulArgs a{};
      a.dtype = Dtype::float32;
      a.clamp = clamp;
      a.limit = limit;
      sweep(a, SiluMulVariant::vec16);
    }
  }
}

}  // namespace
