// Wrong kernels end as DECLINED, with the right bits in out, with default settings.
#include "mutants.h"

#include "cases.h"
#include "context.h"
#include "contexts.h"
#include "faulty_backend.h"
#include "host/host_backend.h"
#include "mutant_list.h"
#include "reference/reference.h"

using namespace bitexact_test;

namespace {

Context make_mutated(Mutant mutant) {
  std::unique_ptr<Backend> host;
  EXPECT_EQ(open_host_backend(host), BITEXACT_STATUS_OK);
  auto faulty = std::make_unique<FaultyBackend>(std::move(host));
  faulty->fused_silu_mul = [mutant](const SiluMulArgs& a, bitexact_stream) {
    for (int64_t i = 0; i < reference::count(a); ++i) mutant_silu_mul_at(a, mutant, i);
    return BITEXACT_STATUS_OK;
  };
  faulty->fused_rope = [mutant](const RopeArgs& a, bitexact_stream) {
    for (int64_t i = 0; i < reference::count(a); ++i) mutant_rope_at(a, mutant, i);
    return BITEXACT_STATUS_OK;
  };
  return Context(new bitexact_context(std::move(faulty), GateOptions{}));
}

TEST(Mutants, WrongSiluMulIsDeclined) {
  for (const int32_t dtype : {BITEXACT_DTYPE_BFLOAT16, BITEXACT_DTYPE_FLOAT16}) {
    for (int i = 0; i < static_cast<int>(first_rope_mutant); ++i) {
      const auto mutant = static_cast<Mutant>(i);
      SiluMulArgs kernel{};
      kernel.dtype = static_cast<Dtype>(dtype);
      const bool right = mutant == Mutant::none || is_equivalent(kernel, mutant);
      const Context context = make_mutated(mutant);
      SiluMulCase c = make_case({dtype, 0, 0, 1, 16, 100, 0, 0, false, InPlace::no}, 3);
      std::vector<uint8_t> expected = c.arena.bytes();
      bitexact_reference::silu_mul(moved(c.params, c.arena, expected.data()));
      ASSERT_EQ(bitexact_fused_silu_mul(context.get(), &c.params, nullptr), BITEXACT_STATUS_OK);
      EXPECT_TRUE(same_bytes(c.arena.bytes(), expected)) << name_of(mutant);
      EXPECT_EQ(only_story(context.get()).state, right ? BITEXACT_STATE_ACCEPTED : BITEXACT_STATE_DECLINED)
          << name_of(mutant) << " dtype " << dtype;
    }
  }
}

TEST(Mutants, WrongRopeIsDeclined) {
  struct Kind {
    int32_t dtype, table, compute;
  };
  const int32_t f32 = BITEXACT_DTYPE_FLOAT32, f16 = BITEXACT_DTYPE_FLOAT16, b16 = BITEXACT_DTYPE_BFLOAT16;
  for (const Kind& kind : {Kind{b16, 0, 0}, Kind{f16, 0, 0}, Kind{b16, f32, 0}, Kind{f16, f32, 0},
                           Kind{b16, 0, f32}, Kind{f32, 0, 0}}) {
    for (int i = static_cast<int>(first_rope_mutant) - 1; i < static_cast<int>(Mutant::count); ++i) {
      const auto mutant = i < static_cast<int>(first_rope_mutant) ? Mutant::none : static_cast<Mutant>(i);
      RopeShape shape{};
      shape.dtype = kind.dtype;
      shape.table_dtype = kind.table;
      shape.compute_dtype = kind.compute;
      shape.batches = 1;
      shape.tokens = 16;
      shape.q_heads = 8;
      shape.k_heads = 1;
      shape.head_dim = shape.rotary_dim = 64;
      shape.element_stride = 1;
      shape.table_per_head = mutant == Mutant::head_tables_ignored;
      RopeCase c = make_case(shape, 3);
      RopeArgs kernel{};
      kernel.dtype = static_cast<Dtype>(kind.dtype);
      kernel.table_dtype = static_cast<Dtype>(kind.table != 0 ? kind.table : kind.dtype);
      kernel.compute_dtype = kind.compute != 0 ? static_cast<Dtype>(kind.compute) : kernel.table_dtype;
      const bool right = mutant == Mutant::none || is_equivalent(kernel, mutant);
      const Context context = make_mutated(mutant);
      std::vector<uint8_t> expected = c.arena.bytes();
      bitexact_reference::rope(moved(c.params, c.arena, expected.data()), nullptr);
      ASSERT_EQ(bitexact_fused_rope(context.get(), &c.params, nullptr), BITEXACT_STATUS_OK);
      EXPECT_TRUE(same_bytes(c.arena.bytes(), expected)) << name_of(mutant);
      EXPECT_EQ(only_story(context.get()).nan_payload_differences > 0,
                mutant == Mutant::tail_through_float && right);
      EXPECT_EQ(only_story(context.get()).state, right ? BITEXACT_STATE_ACCEPTED : BITEXACT_STATE_DECLINED)
          << name_of(mutant) << " dtypes " << kind.dtype << " " << kind.table << " " << kind.compute;
    }
  }
}

}  // namespace
