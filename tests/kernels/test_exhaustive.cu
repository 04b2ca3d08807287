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

void sweep(SiluMulArgs a, SiluMulVariant variant) {
  const int64_t size = size_of(a.dtype);
  const DeviceMemory gate(chunk * size), up(chunk * size), actual(chunk * size), expected(chunk * size);
  const DeviceMemory result(sizeof(Comparison));
  const Comparison start;
  ASSERT_CUDA(cudaMemcpy(result.as(), &start, sizeof(start), cudaMemcpyHostToDevice));
  a.batches = a.rows = 1;
  a.cols = chunk;
  a.gate = {gate.as(), chunk, chunk};
  a.up = {up.as(), chunk, chunk};
  const CompareArgs comparison{a.dtype,
                               chunk,
                               {actual.as(), {1, 1, 1, chunk}, {0, 0, 0}, 0},
                               {expected.as(), {1, 1, 1, chunk}, {0, 0, 0}, 0},
                               0};
  for (int64_t first = 0; first < int64_t{1} << 32; first += chunk) {
    if (size == 2) {
      fill_pairs<<<1024, 256>>>(gate.as<uint16_t>(), up.as<uint16_t>(), static_cast<uint32_t>(first), chunk);
    } else {
      fill_float_gates<<<1024, 256>>>(gate.as<uint32_t>(), up.as<float>(), static_cast<uint32_t>(first),
                                      chunk);
    }
    ASSERT_CUDA(cudaMemsetAsync(actual.as(), 0xa5, chunk * size));
    a.out = {actual.as(), chunk, chunk};
    ASSERT_CUDA(launch_fused_silu_mul(a, variant, nullptr));
    a.out = {expected.as(), chunk, chunk};
    ASSERT_CUDA(launch_reference_silu_mul(a, nullptr));
    CompareArgs c = comparison;
    c.first_key = static_cast<uint64_t>(first);
    ASSERT_CUDA(launch_compare(c, result.as<Comparison>(), nullptr));
  }
  Comparison sum;
  ASSERT_CUDA(cudaMemcpy(&sum, result.as(), sizeof(sum), cudaMemcpyDeviceToHost));
  EXPECT_EQ(sum.mismatches, 0u) << "first: inputs 0x" << std::hex << sum.key << ", got 0x" << sum.actual
                                << ", expected 0x" << sum.expected;
  EXPECT_EQ(sum.nan_payload_differences, 0u);
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
  constexpr int64_t count = int64_t{64} << 16;
  const DeviceMemory gate(count * 2), up(count * 2), actual(count * 2), expected(count * 2);
  for (const Dtype dtype : {Dtype::bfloat16, Dtype::float16}) {
    fill_mixed<<<1024, 256>>>(gate.as<uint16_t>(), up.as<uint16_t>(),
                              dtype == Dtype::bfloat16 ? 0x42c8 : 0x5640,
                              count);  // 100
    for (int variant = 0; variant < 6; ++variant) {
      SiluMulArgs a{};
      a.dtype = dtype;
      a.batches = a.rows = 1;
      a.cols = count;
      a.gate = {gate.as(), count, count};
      a.up = {up.as(), count, count};
      if (is_fast(static_cast<SiluMulVariant>(variant)) && !may_be_fast(a)) continue;
      SCOPED_TRACE(testing::Message() << static_cast<int>(dtype) << " " << variant);
      const DeviceMemory result(sizeof(Comparison));
      Comparison sum;
      ASSERT_CUDA(cudaMemcpy(result.as(), &sum, sizeof(sum), cudaMemcpyHostToDevice));
      ASSERT_CUDA(cudaMemset(actual.as(), 0xa5, count * 2));
      a.out = {actual.as(), count, count};
      ASSERT_CUDA(launch_fused_silu_mul(a, static_cast<SiluMulVariant>(variant), nullptr));
      a.out = {expected.as(), count, count};
      ASSERT_CUDA(launch_reference_silu_mul(a, nullptr));
      const CompareArgs comparison{dtype,
                                   count,
                                   {actual.as(), {1, 1, 1, count}, {0, 0, 0}, 0},
                                   {expected.as(), {1, 1, 1, count}, {0, 0, 0}, 0},
                                   0};
      ASSERT_CUDA(launch_compare(comparison, result.as<Comparison>(), nullptr));
      ASSERT_CUDA(cudaMemcpy(&sum, result.as(), sizeof(sum), cudaMemcpyDeviceToHost));
      EXPECT_EQ(sum.mismatches, 0u) << "first: element " << sum.key;
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
