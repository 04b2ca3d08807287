// Fast kernels, whose silu is made of approximate instructions: what has to prove them, and who takes over where
// that fails. Here the host's kernel stands for either kind.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gate_fixture.h"

using namespace bitexact;
using namespace bitexact_test;

namespace {

class Fast : public GateFixture {
 protected:
  Fast() : GateFixture(BITEXACT_DTYPE_BFLOAT16) {}

  void open_broken(int32_t policy, bool live, int32_t mode = BITEXACT_REFERENCE_BUILTIN) {
    open(policy, mode);
    live ? break_fast_live() : break_fast_gate(0x3f80);
  }

  // Of the fast kernel, and of the IEEE one beside it.
  bitexact_gate_report story(bool fast) {
    const std::string name = std::string("fused_silu_mul bfloat16 aten vec8") + (fast ? "_fast" : "");
    int64_t count = 0;
    EXPECT_EQ(bitexact_gate_count(context_.get(), &count), BITEXACT_STATUS_OK);
    for (int64_t i = 0; i < count; ++i) {
      bitexact_gate_report report = BITEXACT_GATE_REPORT_INIT;
      EXPECT_EQ(bitexact_gate_get(context_.get(), i, &report), BITEXACT_STATUS_OK);
      if (report.kernel_name == name) return report;
    }
    ADD_FAILURE() << name;
    return BITEXACT_GATE_REPORT_INIT;
  }

  // The last bit wrong: of a gate's outputs, or of all of the caller's tensors.
  template <class Wrong>
  void break_fast(Wrong wrong) {
    backend_->only_fast = true;
    backend_->fused_silu_mul = [this, wrong](const SiluMulArgs& a, bitexact_stream stream) {
      const int32_t status = backend_->reference(a, stream);
      for (int64_t r = 0; r < a.rows; ++r) {
        for (int64_t c = 0; c < a.cols; ++c) {
          const uint16_t gate = static_cast<const uint16_t*>(a.gate.data)[r * a.gate.row + c];
          if (wrong(a, gate)) static_cast<uint16_t*>(a.out.data)[r * a.out.row + c] ^= 1;
        }
      }
      return status;
    };
  }
  void break_fast_gate(uint16_t gate) {
    break_fast([gate](const SiluMulArgs&, uint16_t g) { return g == gate; });
  }
  void break_fast_live() {
    break_fast([](const SiluMulArgs& a, uint16_t) { return is_live(a); });
  }

  void expect_handed_over(int32_t basis) {
    EXPECT_TRUE(right());
    EXPECT_EQ(story(true).state, BITEXACT_STATE_DECLINED);
    EXPECT_EQ(story(true).mismatch_basis, basis);
    EXPECT_EQ(story(true).fused_calls + story(true).reference_calls, 0);
    EXPECT_EQ(story(false).state, BITEXACT_STATE_ACCEPTED);
    EXPECT_EQ(story(false).reference_calls, 0);
  }
};

TEST_F(Fast, ServesOnceItIsProven) {
  open(BITEXACT_POLICY_VERIFY);
  EXPECT_EQ(call(), BITEXACT_STATUS_OK);
  EXPECT_TRUE(right());
  EXPECT_EQ(story(true).state, BITEXACT_STATE_ACCEPTED);
  EXPECT_EQ(story(true).fused_calls, 1);
  EXPECT_EQ(story(false).state, BITEXACT_STATE_UNDECIDED);
}

// One gate of 65,536 declines it, the ends of every range among those tried.
TEST_F(Fast, IsDeclinedForAnyOneGate) {
  std::vector<uint16_t> gates = {0x0000, 0x0001, 0x007f, 0x0080, 0x3f80, 0x427f, 0x4280,
                                 0x42ae, 0x7f7f, 0x7f80, 0x8000, 0x8001, 0xc0db, 0xc27f,
                                 0xc280, 0xc2ad, 0xc2ae, 0xc2b2, 0xff7f};
  for (uint32_t g = 3; g < 0x7f80; g += 4099) {
    gates.push_back(static_cast<uint16_t>(g));
    gates.push_back(static_cast<uint16_t>(g | 0x8000));
  }
  for (const uint16_t gate : gates) {
    open(BITEXACT_POLICY_VERIFY);
    break_fast_gate(gate);
    EXPECT_EQ(call(), BITEXACT_STATUS_OK);
    expect_handed_over(BITEXACT_BASIS_PROBE);
    EXPECT_EQ(story(true).mismatch_index % 65536, gate);
  }
}

TEST_F(Fast, HandsOverForGood) {
  for (const bool live : {false, true}) {
    open_broken(BITEXACT_POLICY_VERIFY, live);
    EXPECT_EQ(call(), BITEXACT_STATUS_OK);
    expect_handed_over(live ? BITEXACT_BASIS_LIVE : BITEXACT_BASIS_PROBE);
    backend_->fused_silu_mul = nullptr;  // good again: too late
    const int references = backend_->reference_calls;
    remake();
    EXPECT_EQ(call(), BITEXACT_STATUS_OK);
    EXPECT_TRUE(right());
    EXPECT_EQ(backend_->reference_calls, references);
    EXPECT_EQ(story(false).fused_calls, 2);
    EXPECT_EQ(story(true).fused_calls, 0);
  }
}

TEST_F(Fast, HandsOverWhereItCannotBeLaunched) {
  open(BITEXACT_POLICY_VERIFY);
  backend_->only_fast = true;
  backend_->fused_silu_mul = [](const SiluMulArgs&, bitexact_stream) {
    return fail(BITEXACT_STATUS_CUDA_ERROR, "injected by a test");
  };
  EXPECT_EQ(call(), BITEXACT_STATUS_OK);
  EXPECT_TRUE(right());
  EXPECT_EQ(story(true).reason, BITEXACT_REASON_LAUNCH_ERROR);
  EXPECT_EQ(story(false).state, BITEXACT_STATE_ACCEPTED);
}

TEST_F(Fast, WithAWrongIeeeKernelTooTheReferenceServes) {
  open_broken(BITEXACT_POLICY_VERIFY, false);
  backend_->only_fast = false;
  EXPECT_EQ(call(), BITEXACT_STATUS_OK);
  EXPECT_TRUE(right());
  EXPECT_EQ(story(true).state, BITEXACT_STATE_DECLINED);
  EXPECT_EQ(story(false).state, BITEXACT_STATE_DECLINED);
  EXPECT_EQ(story(false).reference_calls, 1);
}

// Nothing proves a kernel under TRUST.
TEST_F(Fast, IsNotTrusted) {
  open_broken(BITEXACT_POLICY_TRUST, false);
  EXPECT_EQ(call(), BITEXACT_STATUS_OK);
  EXPECT_TRUE(right());
  EXPECT_EQ(story(true).state, BITEXACT_STATE_DECLINED);
  EXPECT_EQ(story(true).reason, BITEXACT_REASON_POLICY);
  EXPECT_EQ(story(false).fused_calls, 1);
}

TEST_F(Fast, ADeclineIsNoErrorUnderStrict) {
  for (const bool live : {false, true}) {
    open_broken(BITEXACT_POLICY_STRICT, live);
    EXPECT_EQ(call(), BITEXACT_STATUS_OK);
    expect_handed_over(live ? BITEXACT_BASIS_LIVE : BITEXACT_BASIS_PROBE);
  }
}

TEST_F(Fast, AuditHandsOver) {
  open(BITEXACT_POLICY_AUDIT);
  EXPECT_EQ(call(), BITEXACT_STATUS_OK);
  EXPECT_EQ(story(true).state, BITEXACT_STATE_ACCEPTED);
  break_fast_live();
  remake();
  EXPECT_EQ(call(), BITEXACT_STATUS_OK);
  EXPECT_TRUE(right());
  EXPECT_EQ(story(true).state, BITEXACT_STATE_DECLINED);
  EXPECT_EQ(story(false).state, BITEXACT_STATE_ACCEPTED);
}

TEST_F(Fast, WarmUpHandsOver) {
  open_broken(BITEXACT_POLICY_VERIFY, false);
  EXPECT_EQ(bitexact_gate_warm_up(context_.get(), nullptr, &case_->params, nullptr), BITEXACT_STATUS_OK);
  EXPECT_EQ(story(true).state, BITEXACT_STATE_DECLINED);
  EXPECT_EQ(story(false).state, BITEXACT_STATE_ACCEPTED);
  EXPECT_EQ(bitexact_fused_silu_mul_can_use(context_.get(), &case_->params), BITEXACT_STATUS_OK);
  backend_->capturing = true;  // no check is needed any more
  const int references = backend_->reference_calls;
  EXPECT_EQ(call(), BITEXACT_STATUS_OK);
  EXPECT_TRUE(right());
  EXPECT_EQ(backend_->reference_calls, references);
}

// The caller's own result is held against either kernel in one call.
TEST_F(Fast, VerifyHandsOver) {
  for (const bool live : {false, true}) {
    open_broken(BITEXACT_POLICY_VERIFY, live, BITEXACT_REFERENCE_CALLER);
    int32_t verdict = -1;
    EXPECT_EQ(verify(&verdict), BITEXACT_STATUS_OK);
    EXPECT_EQ(verdict, BITEXACT_STATE_ACCEPTED);
    EXPECT_EQ(call(), BITEXACT_STATUS_OK);
    expect_handed_over(live ? BITEXACT_BASIS_LIVE : BITEXACT_BASIS_PROBE);
  }
}

}  // namespace
