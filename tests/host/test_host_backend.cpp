// The host backend against the independent reference: every byte of every call.
#include "cases.h"
#include "contexts.h"
#include "kernel_table.h"
#include "reference/reference.h"

using namespace bitexact_test;

namespace {

TEST(HostBackend, SiluMulEqualsTheReference) {
  const Context trusting = make_context(BITEXACT_DEVICE_HOST, BITEXACT_POLICY_TRUST);
  const Context verifying = make_context(BITEXACT_DEVICE_HOST);
  uint64_t seed = 0;
  for (const SiluMulShape& shape : joined(silu_mul_shapes(false), silu_mul_threshold_shapes(false))) {
    for (bitexact_context* context : {trusting.get(), verifying.get()}) {
      SiluMulCase c = make_case(shape, ++seed);
      std::vector<uint8_t> expected = c.arena.bytes();
      bitexact_reference::silu_mul(moved(c.params, c.arena, expected.data()));
      ASSERT_EQ(bitexact_fused_silu_mul(context, &c.params, nullptr), BITEXACT_STATUS_OK)
          << bitexact_last_error();
      ASSERT_TRUE(same_bytes(c.arena.bytes(), expected)) << shape;
    }
  }
  for (const auto& story : stories(verifying.get()))
    EXPECT_EQ(story.state, BITEXACT_STATE_ACCEPTED) << story.kernel_name;
}

TEST(HostBackend, RopeEqualsTheReference) {
  const Context trusting = make_context(BITEXACT_DEVICE_HOST, BITEXACT_POLICY_TRUST);
  const Context verifying = make_context(BITEXACT_DEVICE_HOST);
  uint64_t seed = 0;
  int64_t errors = 0;
  for (const RopeShape& shape : joined(rope_shapes(), rope_threshold_shapes())) {
    for (bitexact_context* context : {trusting.get(), verifying.get()}) {
      RopeCase c = make_case(shape, ++seed);
      std::vector<uint8_t> expected = c.arena.bytes();
      bitexact_reference::rope(moved(c.params, c.arena, expected.data()),
                               context == verifying.get() ? &errors : nullptr);
      ASSERT_EQ(bitexact_fused_rope(context, &c.params, nullptr), BITEXACT_STATUS_OK)
          << bitexact_last_error();
      ASSERT_TRUE(same_bytes(c.arena.bytes(), expected)) << shape;
    }
  }
  for (const auto& story : stories(verifying.get()))
    EXPECT_EQ(story.state, BITEXACT_STATE_ACCEPTED) << story.kernel_name;
  bitexact_context_info info = BITEXACT_CONTEXT_INFO_INIT;
  ASSERT_EQ(bitexact_context_get_info(verifying.get(), &info), BITEXACT_STATUS_OK);
  EXPECT_GT(errors, 0);
  EXPECT_EQ(info.position_errors, errors);
}

// The dispatcher's list is what the calls above reach: no kernel goes without a test.
TEST(HostBackend, RopeShapesReachEveryKernel) {
  const Context context = make_context(BITEXACT_DEVICE_HOST, BITEXACT_POLICY_TRUST);
  uint64_t seed = 0;
  auto call = [&](const RopeShape& shape) {
    RopeCase c = make_case(shape, ++seed);
    ASSERT_EQ(bitexact_fused_rope(context.get(), &c.params, nullptr), BITEXACT_STATUS_OK)
        << bitexact_last_error();
  };
  // What lanes, vectors with and without vectors of tables, and single pairs ask for.
  const struct {
    int64_t head_dim, tokens, skew, element_stride;
  } layouts[] = {{64, bitexact::rope_few_tokens, 0, 1},
                 {64, 1, 0, 1},
                 {96, bitexact::rope_few_tokens, 0, 1},
                 {512, bitexact::rope_few_tokens, 0, 1},
                 {512, 1, 0, 1},
                 {64, 8, 0, 2},
                 {64, 8, 1, 2}};
  for (RopeShape shape : rope_shapes()) {
    call(shape);
    shape.gap = 0;
    shape.q_heads = 3;
    shape.k_heads = 1;
    shape.table_per_head = false;
    for (const auto& layout : layouts) {
      shape.head_dim = shape.rotary_dim = layout.head_dim;
      shape.tokens = layout.tokens;
      shape.skew = layout.skew;
      shape.element_stride = layout.element_stride;
      call(shape);
    }
  }
  int reached = 0;
  for (const auto& story : stories(context.get()))
    reached += story.operation == BITEXACT_OPERATION_FUSED_ROPE;
  EXPECT_EQ(reached, bitexact::rope_kernel_count);
}

TEST(HostBackend, SiluOverEveryInputEqualsTheReference) {
  const Context context = make_context(BITEXACT_DEVICE_HOST, BITEXACT_POLICY_TRUST);
  for (int32_t dtype : {BITEXACT_DTYPE_FLOAT16, BITEXACT_DTYPE_BFLOAT16}) {
    for (int32_t silu :
         {BITEXACT_SILU_ATEN, BITEXACT_SILU_SIGMOID, BITEXACT_SILU_CANDLE, BITEXACT_SILU_GLU}) {
      std::vector<uint16_t> gate(65536), up(65536), actual(65536), expected(65536);
      for (size_t i = 0; i < gate.size(); ++i) {
        gate[i] = static_cast<uint16_t>(i);
        up[i] = dtype == BITEXACT_DTYPE_FLOAT16 ? 0x3c00 : 0x3f80;
      }
      bitexact_silu_mul_params p = BITEXACT_SILU_MUL_PARAMS_INIT;
      p.dtype = dtype;
      p.silu = silu;
      p.batches = p.rows = 1;
      p.cols = 65536;
      p.gate = gate.data();
      p.up = up.data();
      p.out = actual.data();
      ASSERT_EQ(bitexact_fused_silu_mul(context.get(), &p, nullptr), BITEXACT_STATUS_OK)
          << bitexact_last_error();
      p.out = expected.data();
      bitexact_reference::silu_mul(p);
      EXPECT_EQ(actual, expected) << "dtype " << dtype << " silu " << silu;
    }
  }
}

TEST(HostBackend, RefusesFloat32SiluByName) {
  const Context context = make_context(BITEXACT_DEVICE_HOST);
  SiluMulCase c = make_case({BITEXACT_DTYPE_FLOAT32, 0, 0, 1, 2, 8, 0, 0, false, InPlace::no}, 1);
  const std::vector<uint8_t> before = c.arena.bytes();
  EXPECT_EQ(bitexact_fused_silu_mul(context.get(), &c.params, nullptr), BITEXACT_STATUS_UNSUPPORTED);
  EXPECT_NE(std::string(bitexact_last_error()).find("FLOAT32"), std::string::npos);
  EXPECT_EQ(c.arena.bytes(), before);
}

TEST(HostBackend, TakesANullStreamOnly) {
  const Context context = make_context(BITEXACT_DEVICE_HOST);
  SiluMulCase c = make_case({BITEXACT_DTYPE_BFLOAT16, 0, 0, 1, 2, 8, 0, 0, false, InPlace::no}, 1);
  const auto stream = reinterpret_cast<bitexact_stream>(uintptr_t{2});
  EXPECT_EQ(bitexact_fused_silu_mul(context.get(), &c.params, stream), BITEXACT_STATUS_INVALID_STREAM);
}

}  // namespace
