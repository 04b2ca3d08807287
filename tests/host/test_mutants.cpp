// Wrong kernels end as DECLINED, with the right bits in out, with default settings.
#include "mutants.h"

#include "cases.h"
#include "confusions.h"
#include "context.h"
#include "contexts.h"
#include "faulty_context.h"
#include "host/host_backend.h"
#include "mutant_list.h"
#include "mutated.h"
#include "reference/reference.h"

using namespace bitexact_test;

namespace {

// `shared`: the reference has the fault too.
Context make_mutated(Mutant mutant, bool shared = false, const GateOptions& options = {}) {
  Context context;
  FaultyBackend* const faulty = make_faulty(context, BITEXACT_DEVICE_HOST, options);
  faulty->fused_silu_mul = silu_mul_with(mutant);
  faulty->fused_rope = rope_with(mutant);
  if (shared) faulty->reference_silu_mul = faulty->fused_silu_mul;
  if (shared) faulty->reference_rope = faulty->fused_rope;
  return context;
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

TEST(Mutants, WrongClampIsDeclined) {
  for (const int32_t dtype : {BITEXACT_DTYPE_BFLOAT16, BITEXACT_DTYPE_FLOAT16}) {
    for (const int32_t clamp : {BITEXACT_CLAMP_BEFORE, BITEXACT_CLAMP_AFTER}) {
      for (int i = static_cast<int>(first_clamp_mutant) - 1; i < static_cast<int>(first_rope_mutant); ++i) {
        const auto mutant = i < static_cast<int>(first_clamp_mutant) ? Mutant::none : static_cast<Mutant>(i);
        const Context context = make_mutated(mutant);
        SiluMulCase c = make_case({dtype, 0, 0, 1, 16, 100, 0, 0, false, InPlace::no, clamp, 10.0f}, 3);
        std::vector<uint8_t> expected = c.arena.bytes();
        bitexact_reference::silu_mul(moved(c.params, c.arena, expected.data()));
        ASSERT_EQ(bitexact_fused_silu_mul(context.get(), &c.params, nullptr), BITEXACT_STATUS_OK);
        EXPECT_TRUE(same_bytes(c.arena.bytes(), expected)) << name_of(mutant);
        const auto story = only_story(context.get());
        EXPECT_EQ(story.state, mutant == Mutant::none ? BITEXACT_STATE_ACCEPTED : BITEXACT_STATE_DECLINED)
            << name_of(mutant) << " dtype " << dtype << " clamp " << clamp;
        EXPECT_EQ(story.mismatch_basis, mutant == Mutant::none ? 0 : BITEXACT_BASIS_PROBE);
      }
    }
  }
}

TEST(Mutants, WrongGluIsDeclined) {
  for (const int32_t dtype : {BITEXACT_DTYPE_BFLOAT16, BITEXACT_DTYPE_FLOAT16}) {
    for (const Mutant mutant :
         {Mutant::none, Mutant::single_rounding, Mutant::half_away, Mutant::truncation,
          Mutant::minus_zero_lost, Mutant::nan_to_zero, Mutant::swapped_inputs, Mutant::tail_lane}) {
      const Context context = make_mutated(mutant);
      SiluMulCase c = make_case({dtype, BITEXACT_SILU_GLU, 0, 1, 16, 100, 0, 0, false, InPlace::no}, 3);
      std::vector<uint8_t> expected = c.arena.bytes();
      bitexact_reference::silu_mul(moved(c.params, c.arena, expected.data()));
      ASSERT_EQ(bitexact_fused_silu_mul(context.get(), &c.params, nullptr), BITEXACT_STATUS_OK);
      EXPECT_TRUE(same_bytes(c.arena.bytes(), expected)) << name_of(mutant);
      EXPECT_EQ(only_story(context.get()).state,
                mutant == Mutant::none ? BITEXACT_STATE_ACCEPTED : BITEXACT_STATE_DECLINED)
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
      RopeShape shape = plain_rope_shape(16, 8, 1, 64, kind.dtype);
      shape.table_dtype = kind.table;
      shape.compute_dtype = kind.compute;
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
      // Payloads of the tail go where it does not stay what it was.
      EXPECT_EQ(only_story(context.get()).nan_payload_differences > 0,
                mutant == Mutant::tail_through_float || mutant == Mutant::rotary_dim_ignored);
      EXPECT_EQ(only_story(context.get()).state, right ? BITEXACT_STATE_ACCEPTED : BITEXACT_STATE_DECLINED)
          << name_of(mutant) << " dtypes " << kind.dtype << " " << kind.table << " " << kind.compute;
    }
  }
}

// ------------------------------------------------------------------------ another's numerics --

int32_t public_dtype(Dtype dtype) { return static_cast<int32_t>(dtype); }

TEST(Mutants, AnotherSiluIsDeclined) {
  for (const auto& confusion : silu_mul_confusions(false)) {
    Context context;
    FaultyBackend* const backend = make_faulty(context, BITEXACT_DEVICE_HOST);
    backend->fused_silu_mul = [&](SiluMulArgs a, bitexact_stream stream) {
      take_numerics(a, confusion.run);
      return backend->reference(a, stream);
    };
    const SiluMulArgs& named = confusion.named;
    SiluMulCase c = make_case({public_dtype(named.dtype), static_cast<int32_t>(named.silu), 0, 1, 16, 100, 0,
                               0, false, InPlace::no, static_cast<int32_t>(named.clamp), named.limit},
                              3);
    ASSERT_EQ(bitexact_fused_silu_mul(context.get(), &c.params, nullptr), BITEXACT_STATUS_OK);
    const auto story = only_story(context.get());
    EXPECT_EQ(story.state, BITEXACT_STATE_DECLINED) << confusion.name;
    EXPECT_EQ(story.mismatch_basis, BITEXACT_BASIS_PROBE) << confusion.name;
  }
}

TEST(Mutants, AnotherRopeIsDeclined) {
  for (const auto& confusion : rope_confusions()) {
    Context context;
    FaultyBackend* const backend = make_faulty(context, BITEXACT_DEVICE_HOST);
    backend->fused_rope = [&](RopeArgs a, bitexact_stream stream) {
      take_numerics(a, confusion.run);
      return backend->reference(a, stream);
    };
    const RopeArgs& named = confusion.named;
    RopeShape shape = plain_rope_shape(16, 8, 1, 64, public_dtype(named.dtype));
    shape.table_dtype = public_dtype(named.table_dtype);
    shape.compute_dtype = public_dtype(named.compute_dtype);
    // 16-bit arithmetic is asked for by asking for nothing.
    if (named.compute_dtype == named.dtype) shape.compute_dtype = 0;
    shape.combine = static_cast<int32_t>(named.combine);
    shape.flags = named.sum_from_zero ? BITEXACT_ROPE_SUM_FROM_ZERO : 0;
    RopeCase c = make_case(shape, 3);
    ASSERT_EQ(bitexact_fused_rope(context.get(), &c.params, nullptr), BITEXACT_STATUS_OK)
        << bitexact_last_error();
    const auto story = only_story(context.get());
    EXPECT_EQ(story.state, BITEXACT_STATE_DECLINED) << confusion.name << " dtypes " << shape.dtype << " "
                                                    << shape.table_dtype << " " << shape.compute_dtype;
    EXPECT_EQ(story.mismatch_basis, BITEXACT_BASIS_PROBE);
  }
}

// ------------------------------------------------------------------------ faults of the check --

void expect_refused(bitexact_context* context, int32_t status, const char* name) {
  EXPECT_EQ(status, BITEXACT_STATUS_INTERNAL) << name;
  const auto story = only_story(context);
  EXPECT_EQ(story.state, BITEXACT_STATE_DECLINED) << name;
  EXPECT_EQ(story.reason, BITEXACT_REASON_REFERENCE) << name;
  EXPECT_EQ(story.status, BITEXACT_STATUS_INTERNAL) << name;
  EXPECT_EQ(story.fused_calls + story.reference_calls, 0) << name;
}

TEST(Mutants, ABlindComparisonIsRefused) {
  for (int i = 0; i < static_cast<int>(Blindness::count); ++i) {
    const auto blindness = static_cast<Blindness>(i);
    for (const int32_t dtype : {BITEXACT_DTYPE_BFLOAT16, BITEXACT_DTYPE_FLOAT16}) {
      Context context;
      FaultyBackend* const backend = make_faulty(context, BITEXACT_DEVICE_HOST);
      backend->comparison = [=](const CompareArgs& a, Comparison* result, bitexact_stream) {
        blind_compare(a, blindness, result);
        return BITEXACT_STATUS_OK;
      };
      SiluMulCase c = make_case({dtype, 0, 0, 1, 16, 100, 0, 0, false, InPlace::no}, 3);
      const std::vector<uint8_t> before = c.arena.bytes();
      const int32_t status = bitexact_fused_silu_mul(context.get(), &c.params, nullptr);
      EXPECT_EQ(c.arena.bytes(), before) << name_of(blindness);
      expect_refused(context.get(), status, name_of(blindness));
      EXPECT_EQ(backend->fused_calls, 0) << name_of(blindness);
    }
  }
}

// Scratch memory that still holds the right bits of an earlier check, and a kernel that writes nothing.
TEST(Mutants, StaleScratchIsNoResult) {
  Context context;
  FaultyBackend* const backend = make_faulty(context, BITEXACT_DEVICE_HOST);
  backend->reuses_memory = true;
  const SiluMulShape shape = {BITEXACT_DTYPE_BFLOAT16, 0, 0, 1, 16, 100, 0, 0, false, InPlace::gate};
  SiluMulCase first = make_case(shape, 3);
  ASSERT_EQ(bitexact_fused_silu_mul(context.get(), &first.params, nullptr), BITEXACT_STATUS_OK);
  ASSERT_EQ(only_story(context.get()).state, BITEXACT_STATE_ACCEPTED);

  ASSERT_EQ(bitexact_gate_reset(context.get()), BITEXACT_STATUS_OK);
  backend->fused_silu_mul = [&](const SiluMulArgs& a, bitexact_stream stream) {
    return a.cols == 1600 ? BITEXACT_STATUS_OK : backend->reference(a, stream);  // 16 x 100, folded
  };
  SiluMulCase second = make_case(shape, 3);
  ASSERT_EQ(bitexact_fused_silu_mul(context.get(), &second.params, nullptr), BITEXACT_STATUS_OK);
  const auto story = only_story(context.get());
  EXPECT_EQ(story.state, BITEXACT_STATE_DECLINED);
  EXPECT_EQ(story.mismatch_basis, BITEXACT_BASIS_LIVE);
  EXPECT_TRUE(same_bytes(second.arena.bytes(), first.arena.bytes()));
}

// Calls twice, with the fault in the reference too: refused, unless the mutant is right.
template <class Case, class Params>
void expect_shared_fault_is_refused(Mutant mutant, bool right, Case c,
                                    int32_t (*run)(bitexact_context*, const Params*, bitexact_stream)) {
  const Context context = make_mutated(mutant, true);
  const std::vector<uint8_t> before = c.arena.bytes();
  for (int call = 0; call < 2; ++call) {
    const int32_t status = run(context.get(), &c.params, nullptr);
    EXPECT_EQ(c.arena.bytes() == before, !right) << name_of(mutant);
    if (!right) expect_refused(context.get(), status, name_of(mutant));
  }
  if (right) {
    EXPECT_EQ(only_story(context.get()).state, BITEXACT_STATE_ACCEPTED) << name_of(mutant);
  }
}

// A reference with the very fault of the fused kernel agrees with it, but not with the digest of the probe.
TEST(Mutants, ASharedFaultOfSiluMulIsRefused) {
  for (const int32_t dtype : {BITEXACT_DTYPE_BFLOAT16, BITEXACT_DTYPE_FLOAT16}) {
    for (int i = 0; i < static_cast<int>(first_rope_mutant); ++i) {
      const auto mutant = static_cast<Mutant>(i);
      SiluMulArgs kernel{};
      kernel.dtype = static_cast<Dtype>(dtype);
      const bool right = mutant == Mutant::none || is_equivalent(kernel, mutant);
      expect_shared_fault_is_refused(mutant, right,
                                     make_case({dtype, 0, 0, 1, 16, 100, 0, 0, false, InPlace::no}, 3),
                                     bitexact_fused_silu_mul);
    }
  }
}

// Elsewhere other bits of both may be the device's own exponential, which eager has too. RoPE needs none.
TEST(Mutants, OnAnotherDeviceTheDigestBindsRopeAlone) {
  Context context;
  FaultyBackend* const faulty = make_faulty(context, BITEXACT_DEVICE_HOST);
  faulty->captured_exp = false;
  faulty->fused_silu_mul = faulty->reference_silu_mul = silu_mul_with(Mutant::fast_exp);
  faulty->fused_rope = faulty->reference_rope = rope_with(Mutant::rope_truncation);
  SiluMulCase silu = make_case({BITEXACT_DTYPE_BFLOAT16, 0, 0, 1, 16, 100, 0, 0, false, InPlace::no}, 3);
  EXPECT_EQ(bitexact_fused_silu_mul(context.get(), &silu.params, nullptr), BITEXACT_STATUS_OK);
  EXPECT_EQ(only_story(context.get()).state, BITEXACT_STATE_ACCEPTED);
  RopeCase rope = make_case(plain_rope_shape(16, 8, 1, 64), 3);
  EXPECT_EQ(bitexact_fused_rope(context.get(), &rope.params, nullptr), BITEXACT_STATUS_INTERNAL);
}

TEST(Mutants, ASharedFaultOfRopeIsRefused) {
  for (const int32_t dtype : {BITEXACT_DTYPE_BFLOAT16, BITEXACT_DTYPE_FLOAT16, BITEXACT_DTYPE_FLOAT32}) {
    for (int i = static_cast<int>(first_rope_mutant); i < static_cast<int>(Mutant::count); ++i) {
      const auto mutant = static_cast<Mutant>(i);
      RopeArgs kernel{};
      kernel.dtype = kernel.table_dtype = kernel.compute_dtype = static_cast<Dtype>(dtype);
      // The digest sees payloads too, which the comparison forgives.
      const bool right = mutant != Mutant::tail_through_float && is_equivalent(kernel, mutant);
      expect_shared_fault_is_refused(mutant, right, make_case(plain_rope_shape(16, 8, 1, 64, dtype), 3),
                                     bitexact_fused_rope);
    }
  }
}

// Whoever asks: what decides by looking refuses, or leaves the word to the framework.
TEST(Mutants, ASharedFaultUnderEachPolicyAndMode) {
  for (const int32_t policy : {BITEXACT_POLICY_VERIFY, BITEXACT_POLICY_AUDIT, BITEXACT_POLICY_STRICT}) {
    const Context context = make_mutated(Mutant::single_rounding, true, GateOptions{policy});
    SiluMulCase c = make_case({BITEXACT_DTYPE_BFLOAT16, 0, 0, 1, 16, 100, 0, 0, false, InPlace::no}, 3);
    EXPECT_EQ(bitexact_gate_warm_up(context.get(), nullptr, &c.params, nullptr), BITEXACT_STATUS_INTERNAL);
    EXPECT_EQ(bitexact_gate_warm_up(context.get(), nullptr, &c.params, nullptr), BITEXACT_STATUS_INTERNAL);
    EXPECT_EQ(bitexact_fused_silu_mul_can_use(context.get(), &c.params), BITEXACT_STATUS_INTERNAL);
    const std::vector<uint8_t> before = c.arena.bytes();
    expect_refused(context.get(), bitexact_fused_silu_mul(context.get(), &c.params, nullptr), "warmed up");
    EXPECT_EQ(c.arena.bytes(), before);
    EXPECT_NE(std::string(bitexact_last_error()).find("reference"), std::string::npos);
    ASSERT_EQ(bitexact_gate_reset(context.get()), BITEXACT_STATUS_OK);
    EXPECT_EQ(bitexact_fused_silu_mul_can_use(context.get(), &c.params), BITEXACT_STATUS_OK);
  }
  // Wrong for one variant is wrong for the others, looked at or not.
  Context context;
  FaultyBackend* const backend = make_faulty(context, BITEXACT_DEVICE_HOST);
  backend->reference_silu_mul = silu_mul_with(Mutant::single_rounding);
  SiluMulCase vectors = make_case({BITEXACT_DTYPE_BFLOAT16, 0, 0, 1, 16, 100, 0, 0, false, InPlace::no}, 3);
  SiluMulCase scalars = make_case({BITEXACT_DTYPE_BFLOAT16, 0, 0, 1, 16, 100, 1, 0, false, InPlace::no}, 3);
  EXPECT_EQ(bitexact_fused_silu_mul(context.get(), &vectors.params, nullptr), BITEXACT_STATUS_INTERNAL);
  backend->capturing = true;
  EXPECT_EQ(bitexact_fused_silu_mul(context.get(), &scalars.params, nullptr), BITEXACT_STATUS_INTERNAL);
  EXPECT_EQ(backend->fused_calls, 2 * 9);  // the cases of the fast kernel's probe and of its successor's
}

// In CALLER mode the framework's own result is the truth, and its chain runs.
TEST(Mutants, ASharedFaultInCallerModeIsADecline) {
  const Context context = make_mutated(Mutant::single_rounding, true,
                                       GateOptions{BITEXACT_POLICY_VERIFY, BITEXACT_REFERENCE_CALLER});
  SiluMulCase c = make_case({BITEXACT_DTYPE_BFLOAT16, 0, 0, 1, 16, 100, 0, 0, false, InPlace::no}, 3);
  EXPECT_EQ(bitexact_fused_silu_mul(context.get(), &c.params, nullptr), BITEXACT_STATUS_UNVERIFIED);
  std::vector<uint8_t> eager = c.arena.bytes();
  const bitexact_silu_mul_params p = moved(c.params, c.arena, eager.data());
  bitexact_reference::silu_mul(p);
  bitexact_silu_mul_reference r = BITEXACT_SILU_MUL_REFERENCE_INIT;
  r.out = p.out;
  r.out_row_stride = p.out_row_stride;
  int32_t verdict = -1;
  ASSERT_EQ(bitexact_fused_silu_mul_verify(context.get(), &c.params, &r, nullptr, &verdict),
            BITEXACT_STATUS_OK);
  EXPECT_EQ(verdict, BITEXACT_STATE_DECLINED);
  EXPECT_EQ(only_story(context.get()).reason, BITEXACT_REASON_REFERENCE);
  EXPECT_EQ(bitexact_fused_silu_mul(context.get(), &c.params, nullptr), BITEXACT_STATUS_DECLINED);
  EXPECT_EQ(bitexact_fused_silu_mul_can_use(context.get(), &c.params), BITEXACT_STATUS_DECLINED);
  EXPECT_EQ(bitexact_gate_warm_up(context.get(), nullptr, &c.params, nullptr), BITEXACT_STATUS_OK);
}

// A fused kernel that fails leaves its calls to the reference, which has been tried all the same.
TEST(Mutants, AFailedKernelIsNotServedByAWrongReference) {
  for (const bool right : {true, false}) {
    Context context;
    FaultyBackend* const backend = make_faulty(context, BITEXACT_DEVICE_HOST);
    backend->fused_silu_mul = [](const SiluMulArgs&, bitexact_stream) {
      return fail(BITEXACT_STATUS_CUDA_ERROR, "injected");
    };
    if (!right) backend->reference_silu_mul = silu_mul_with(Mutant::flush_result);
    SiluMulCase c = make_case({BITEXACT_DTYPE_BFLOAT16, 0, 0, 1, 16, 100, 0, 0, false, InPlace::no}, 3);
    EXPECT_EQ(bitexact_fused_silu_mul(context.get(), &c.params, nullptr),
              right ? BITEXACT_STATUS_OK : BITEXACT_STATUS_INTERNAL);
    EXPECT_EQ(only_story(context.get()).reason,
              right ? BITEXACT_REASON_LAUNCH_ERROR : BITEXACT_REASON_REFERENCE);
    EXPECT_EQ(backend->fused_calls, 2);  // the fast kernel, then its successor
  }
}

}  // namespace
