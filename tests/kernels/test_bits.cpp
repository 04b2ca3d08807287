// The CUDA kernels against the independent reference on the host: every byte of every call. This is the
// binary that runs under compute-sanitizer.
#include "cases.h"
#include "contexts.h"
#include "device.h"
#include "host/silu_table.h"
#include "kernel_table.h"
#include "reference/reference.h"

using namespace bitexact_test;

namespace {

int32_t run(bitexact_context* context, const bitexact_silu_mul_params& p, bitexact_stream stream) {
  return bitexact_fused_silu_mul(context, &p, stream);
}
int32_t run(bitexact_context* context, const bitexact_rope_params& p, bitexact_stream stream) {
  return bitexact_fused_rope(context, &p, stream);
}

// The bytes of a case's arena after the call on the device.
template <class Case>
std::vector<uint8_t> on_device(bitexact_context* context, const Case& c, bitexact_stream stream) {
  const DeviceMemory memory(c.arena.bytes());
  EXPECT_EQ(run(context, moved(c.params, c.arena, memory.as()), stream), BITEXACT_STATUS_OK)
      << bitexact_last_error();
  return memory.bytes();
}

TEST(Bits, RopeEqualsTheReference) {
  const Context trusting = make_context(0, BITEXACT_POLICY_TRUST), verifying = make_context(0);
  const Context referring = make_context(0, BITEXACT_POLICY_REFERENCE);
  const Stream stream;
  uint64_t seed = 0;
  int64_t errors = 0;
  for (const RopeShape& shape : joined(rope_shapes(), rope_threshold_shapes())) {
    RopeCase c = make_case(shape, ++seed);
    std::vector<uint8_t> expected = c.arena.bytes();
    bitexact_reference::rope(moved(c.params, c.arena, expected.data()), &errors);
    for (bitexact_context* context : {trusting.get(), verifying.get(), referring.get()}) {
      ASSERT_TRUE(same_bytes(on_device(context, c, stream), expected)) << shape;
    }
  }
  for (const auto& story : stories(verifying.get())) {
    EXPECT_EQ(story.state, BITEXACT_STATE_ACCEPTED) << story.kernel_name;
    EXPECT_EQ(story.nan_payload_differences, 0) << story.kernel_name;
  }
  for (bitexact_context* context : {trusting.get(), verifying.get(), referring.get()}) {
    bitexact_context_info info = BITEXACT_CONTEXT_INFO_INIT;
    ASSERT_EQ(bitexact_context_get_info(context, &info), BITEXACT_STATUS_OK);
    EXPECT_EQ(info.position_errors, errors);
  }
}

TEST(Bits, SiluMulEqualsTheReference) {
  const Context trusting = make_context(0, BITEXACT_POLICY_TRUST), verifying = make_context(0);
  const Stream stream;
  uint64_t seed = 0;
  for (const SiluMulShape& shape : joined(silu_mul_shapes(false), silu_mul_threshold_shapes(false))) {
    SiluMulCase c = make_case(shape, ++seed);
    std::vector<uint8_t> expected = c.arena.bytes();
    bitexact_reference::silu_mul(moved(c.params, c.arena, expected.data()));
    for (bitexact_context* context : {trusting.get(), verifying.get()}) {
      ASSERT_TRUE(same_bytes(on_device(context, c, stream), expected)) << shape;
    }
  }
  for (const auto& story : stories(verifying.get()))
    EXPECT_EQ(story.state, BITEXACT_STATE_ACCEPTED) << story.kernel_name;
}

// In float32 the host's expf is another function: there the truth is the GPU's own plain reference.
TEST(Bits, Float32SiluMulEqualsTheBuiltInReference) {
  const Context trusting = make_context(0, BITEXACT_POLICY_TRUST), verifying = make_context(0);
  const Context referring = make_context(0, BITEXACT_POLICY_REFERENCE);
  const Stream stream;
  uint64_t seed = 0;
  for (const SiluMulShape& shape : joined(silu_mul_shapes(true), silu_mul_threshold_shapes(true))) {
    if (shape.dtype != BITEXACT_DTYPE_FLOAT32 && shape.compute_dtype == 0) continue;
    SiluMulCase c = make_case(shape, ++seed);
    const std::vector<uint8_t> expected = on_device(referring.get(), c, stream);
    for (bitexact_context* context : {trusting.get(), verifying.get()}) {
      ASSERT_TRUE(same_bytes(on_device(context, c, stream), expected)) << shape;
    }
  }
  for (const auto& story : stories(verifying.get()))
    EXPECT_EQ(story.state, BITEXACT_STATE_ACCEPTED) << story.kernel_name;
}

// silu over all 65,536 inputs gives the very table that the host backend is proven against.
TEST(Bits, SiluTablesEqualTheHosts) {
  using bitexact::Dtype;
  using bitexact::Silu;
  const Context context = make_context(0, BITEXACT_POLICY_TRUST);
  const Stream stream;
  for (const Dtype dtype : {Dtype::float16, Dtype::bfloat16}) {
    for (const Silu silu : {Silu::aten, Silu::sigmoid, Silu::candle, Silu::glu}) {
      SiluMulCase c = make_case(
          {static_cast<int32_t>(dtype), static_cast<int32_t>(silu), 0, 1, 1, 65536, 0, 0, false, InPlace::no},
          1);
      auto* gate = static_cast<uint16_t*>(const_cast<void*>(c.params.gate));
      auto* up = static_cast<uint16_t*>(const_cast<void*>(c.params.up));
      for (int i = 0; i < 65536; ++i) {
        gate[i] = static_cast<uint16_t>(i);
        up[i] = dtype == Dtype::float16 ? 0x3c00 : 0x3f80;
      }
      const std::vector<uint8_t> after = on_device(context.get(), c, stream);
      const auto at = static_cast<const uint8_t*>(c.params.out) - c.arena.bytes().data();
      const auto& table = bitexact::silu_table(dtype, silu);
      EXPECT_TRUE(table.proven);
      EXPECT_EQ(std::memcmp(after.data() + at, table.at, sizeof(table.at)), 0)
          << static_cast<int>(dtype) << " " << static_cast<int>(silu);
    }
  }
}

}  // namespace
