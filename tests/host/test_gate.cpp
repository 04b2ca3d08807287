// The gate as a table: from each state, what each event leads to. No GPU: a host backend whose faults the
// test decides.
#include <atomic>
#include <cstdlib>
#include <new>
#include <thread>

#include "gate_fixture.h"
#include "host/host_backend.h"

using namespace bitexact;
using namespace bitexact_test;

namespace {

// Of a dtype that no fast kernel serves.
class GateTest : public GateFixture {
 protected:
  GateTest() : GateFixture(BITEXACT_DTYPE_FLOAT16) {}

  bitexact_gate_report story() { return only_story(context_.get()); }

  // A fused kernel that gets one element of the second row wrong.
  void break_fused() {
    backend_->fused_silu_mul = [this](const SiluMulArgs& a, bitexact_stream stream) {
      const int32_t status = backend_->reference(a, stream);
      static_cast<uint16_t*>(a.out.data)[a.cols > 20 ? 20 : 0] ^= 1;
      return status;
    };
  }

  // One that does so on the caller's tensors alone.
  void break_fused_live() {
    backend_->fused_silu_mul = [this](const SiluMulArgs& a, bitexact_stream stream) {
      const int32_t status = backend_->reference(a, stream);
      if (is_live(a)) static_cast<uint16_t*>(a.out.data)[100] ^= 0x8000;
      return status;
    };
  }
};

TEST_F(GateTest, AnEqualKernelIsAcceptedOnceAndThenRunsAlone) {
  open(BITEXACT_POLICY_VERIFY);
  EXPECT_EQ(call(), BITEXACT_STATUS_OK);
  EXPECT_TRUE(right());
  const auto first = story();
  EXPECT_EQ(first.state, BITEXACT_STATE_ACCEPTED);
  EXPECT_EQ(first.reason, BITEXACT_REASON_EQUAL);
  EXPECT_EQ(first.basis, BITEXACT_BASIS_PROBE | BITEXACT_BASIS_LIVE);
  EXPECT_EQ(first.checks, 2);
  EXPECT_GT(first.compared, 3 * 64);
  EXPECT_EQ(first.fused_calls, 1);
  ASSERT_EQ(log_.size(), 1u);
  EXPECT_EQ(log_[0].substr(0, 11), "3 accepted:");
  EXPECT_EQ(backend_->allocations, backend_->releases);

  const int references = backend_->reference_calls, fused = backend_->fused_calls;
  remake();
  EXPECT_EQ(call(), BITEXACT_STATUS_OK);
  EXPECT_TRUE(right());
  EXPECT_EQ(backend_->reference_calls, references);
  EXPECT_EQ(backend_->fused_calls, fused + 1);
  EXPECT_EQ(log_.size(), 1u);
}

TEST_F(GateTest, AWrongKernelIsDeclinedForGoodAndTheBitsAreRight) {
  open(BITEXACT_POLICY_VERIFY);
  break_fused();
  EXPECT_EQ(call(), BITEXACT_STATUS_OK);
  EXPECT_TRUE(right());
  auto s = story();
  EXPECT_EQ(s.state, BITEXACT_STATE_DECLINED);
  EXPECT_EQ(s.reason, BITEXACT_REASON_MISMATCH);
  EXPECT_EQ(s.mismatch_basis, BITEXACT_BASIS_PROBE);
  EXPECT_GT(s.mismatches, 0);
  EXPECT_EQ(s.mismatch_actual, s.mismatch_expected ^ 1);
  EXPECT_EQ(s.reference_calls, 1);
  EXPECT_EQ(s.fused_calls, 0);
  ASSERT_EQ(log_.size(), 1u);
  EXPECT_EQ(log_[0].substr(0, 11), "2 declined:");

  backend_->fused_silu_mul = nullptr;  // good again: too late
  remake();
  EXPECT_EQ(call(), BITEXACT_STATUS_OK);
  EXPECT_TRUE(right());
  EXPECT_EQ(story().state, BITEXACT_STATE_DECLINED);
  EXPECT_EQ(story().reference_calls, 2);
  EXPECT_EQ(log_.size(), 1u);
  EXPECT_EQ(bitexact_fused_silu_mul_can_use(context_.get(), &case_->params), BITEXACT_STATUS_DECLINED);
}

// Wrong on the caller's tensors alone: the probe passes, the live check does not.
TEST_F(GateTest, AKernelWrongOnLiveTensorsIsDeclined) {
  for (const bool in_place : {false, true}) {
    open(BITEXACT_POLICY_VERIFY);
    remake(in_place);
    break_fused_live();
    EXPECT_EQ(call(), BITEXACT_STATUS_OK);
    EXPECT_TRUE(right()) << in_place;
    const auto s = story();
    EXPECT_EQ(s.state, BITEXACT_STATE_DECLINED);
    EXPECT_EQ(s.mismatch_basis, BITEXACT_BASIS_LIVE);
    EXPECT_EQ(s.mismatches, 1);
    EXPECT_EQ(s.mismatch_index, 100);
    EXPECT_EQ(s.mismatch_actual, s.mismatch_expected ^ 0x8000);
  }
}

// A kernel that does nothing finds no right bits lying about.
TEST_F(GateTest, AKernelThatDoesNothingIsDeclined) {
  open(BITEXACT_POLICY_VERIFY);
  backend_->fused_silu_mul = [](const SiluMulArgs&, bitexact_stream) { return BITEXACT_STATUS_OK; };
  EXPECT_EQ(call(), BITEXACT_STATUS_OK);
  EXPECT_TRUE(right());
  EXPECT_EQ(story().state, BITEXACT_STATE_DECLINED);
}

TEST_F(GateTest, ALaunchErrorIsADeclineNotACrash) {
  struct Row {
    int32_t status, reason;
  };
  for (const Row& row : {Row{BITEXACT_STATUS_CUDA_ERROR, BITEXACT_REASON_LAUNCH_ERROR},
                         Row{BITEXACT_STATUS_NO_KERNEL_IMAGE, BITEXACT_REASON_NO_IMAGE}}) {
    open(BITEXACT_POLICY_VERIFY);
    backend_->fused_silu_mul = [&](const SiluMulArgs&, bitexact_stream) {
      return fail(row.status, "injected");
    };
    EXPECT_EQ(call(), BITEXACT_STATUS_OK);
    EXPECT_TRUE(right());
    EXPECT_EQ(story().state, BITEXACT_STATE_DECLINED);
    EXPECT_EQ(story().reason, row.reason);
    EXPECT_EQ(story().status, row.status);
  }
}

TEST_F(GateTest, NoMemoryIsNotLatched) {
  open(BITEXACT_POLICY_VERIFY);
  backend_->allocate_status = BITEXACT_STATUS_OUT_OF_MEMORY;
  EXPECT_EQ(call(), BITEXACT_STATUS_OK);
  EXPECT_TRUE(right());
  EXPECT_EQ(story().state, BITEXACT_STATE_UNDECIDED);
  EXPECT_EQ(story().reference_calls, 1);
  backend_->allocate_status = 0;
  EXPECT_EQ(call(), BITEXACT_STATUS_OK);
  EXPECT_EQ(story().state, BITEXACT_STATE_ACCEPTED);
}

TEST_F(GateTest, CaptureIsNotLatched) {
  open(BITEXACT_POLICY_VERIFY);
  backend_->capturing = true;
  EXPECT_EQ(call(), BITEXACT_STATUS_OK);
  EXPECT_TRUE(right());
  EXPECT_EQ(story().state, BITEXACT_STATE_UNDECIDED);
  EXPECT_EQ(backend_->allocations, 0);
  EXPECT_EQ(bitexact_gate_warm_up(context_.get(), nullptr, &case_->params, nullptr),
            BITEXACT_STATUS_CAPTURING);
  backend_->capturing = false;
  EXPECT_EQ(call(), BITEXACT_STATUS_OK);
  EXPECT_EQ(story().state, BITEXACT_STATE_ACCEPTED);
}

TEST_F(GateTest, AFailingReferenceIsAnErrorAndNotLatched) {
  open(BITEXACT_POLICY_VERIFY);
  backend_->reference_status = BITEXACT_STATUS_CUDA_ERROR;
  EXPECT_EQ(call(), BITEXACT_STATUS_CUDA_ERROR);
  EXPECT_TRUE(untouched());
  backend_->reference_status = 0;
  EXPECT_EQ(call(), BITEXACT_STATUS_OK);
  EXPECT_EQ(story().state, BITEXACT_STATE_ACCEPTED);
}

TEST_F(GateTest, ReferencePolicyNeverFuses) {
  open(BITEXACT_POLICY_REFERENCE);
  EXPECT_EQ(call(), BITEXACT_STATUS_OK);
  EXPECT_TRUE(right());
  EXPECT_EQ(backend_->fused_calls, 0);
  EXPECT_EQ(story().reason, BITEXACT_REASON_POLICY);
  EXPECT_EQ(story().state, BITEXACT_STATE_DECLINED);
}

TEST_F(GateTest, TrustPolicyNeverChecks) {
  open(BITEXACT_POLICY_TRUST);
  EXPECT_EQ(call(), BITEXACT_STATUS_OK);
  EXPECT_TRUE(right());
  EXPECT_EQ(backend_->reference_calls, 0);
  EXPECT_EQ(story().checks, 0);
  EXPECT_EQ(story().reason, BITEXACT_REASON_POLICY);
}

TEST_F(GateTest, AuditPolicyChecksEveryCall) {
  open(BITEXACT_POLICY_AUDIT);
  for (int i = 0; i < 3; ++i) {
    remake();
    EXPECT_EQ(call(), BITEXACT_STATUS_OK);
    EXPECT_TRUE(right());
  }
  EXPECT_EQ(story().state, BITEXACT_STATE_ACCEPTED);
  EXPECT_EQ(story().checks, 4);  // one probe, three live
  break_fused();
  remake();
  EXPECT_EQ(call(), BITEXACT_STATUS_OK);
  EXPECT_TRUE(right());
  EXPECT_EQ(story().state, BITEXACT_STATE_DECLINED);
}

TEST_F(GateTest, StrictPolicyReturnsADeclineAndLeavesOutputsAlone) {
  for (const bool in_place : {false, true}) {
    open(BITEXACT_POLICY_STRICT);
    remake(in_place);
    break_fused();
    EXPECT_EQ(call(), BITEXACT_STATUS_DECLINED);
    EXPECT_TRUE(untouched());
    EXPECT_EQ(call(), BITEXACT_STATUS_DECLINED);
    EXPECT_TRUE(untouched());
    EXPECT_EQ(story().declined_calls, 2);
    open(BITEXACT_POLICY_STRICT);
    remake(in_place);
    break_fused_live();
    EXPECT_EQ(call(), BITEXACT_STATUS_DECLINED);
    EXPECT_TRUE(untouched());
    EXPECT_EQ(story().mismatch_basis, BITEXACT_BASIS_LIVE);
    open(BITEXACT_POLICY_STRICT);
    remake(in_place);
    EXPECT_EQ(call(), BITEXACT_STATUS_OK);
    EXPECT_TRUE(right());
  }
}

TEST_F(GateTest, CallerModeTakesTheFrameworksWord) {
  open(BITEXACT_POLICY_VERIFY, BITEXACT_REFERENCE_CALLER);
  EXPECT_EQ(bitexact_fused_silu_mul_can_use(context_.get(), &case_->params), BITEXACT_STATUS_UNVERIFIED);
  EXPECT_EQ(call(), BITEXACT_STATUS_UNVERIFIED);
  EXPECT_TRUE(untouched());
  EXPECT_EQ(backend_->fused_calls, 0);
  int32_t verdict = -1;
  EXPECT_EQ(verify(&verdict), BITEXACT_STATUS_OK);
  EXPECT_EQ(verdict, BITEXACT_STATE_ACCEPTED);
  EXPECT_TRUE(untouched());
  EXPECT_EQ(call(), BITEXACT_STATUS_OK);
  EXPECT_TRUE(right());
  EXPECT_EQ(bitexact_fused_silu_mul_can_use(context_.get(), &case_->params), BITEXACT_STATUS_OK);
}

TEST_F(GateTest, CallerModeDeclinesAnotherChain) {
  open(BITEXACT_POLICY_VERIFY, BITEXACT_REFERENCE_CALLER);
  int32_t verdict = -1;
  EXPECT_EQ(verify(&verdict, true), BITEXACT_STATUS_OK);
  EXPECT_EQ(verdict, BITEXACT_STATE_DECLINED);
  EXPECT_EQ(story().mismatch_index, 70);
  EXPECT_EQ(call(), BITEXACT_STATUS_DECLINED);
  EXPECT_TRUE(untouched());
  const int64_t checks = story().checks;
  EXPECT_EQ(verify(&verdict), BITEXACT_STATUS_OK);  // decided: no second check
  EXPECT_EQ(verdict, BITEXACT_STATE_DECLINED);
  EXPECT_EQ(story().checks, checks);
}

TEST_F(GateTest, CallerModeOutsideItsOrder) {
  open(BITEXACT_POLICY_VERIFY, BITEXACT_REFERENCE_CALLER);
  backend_->capturing = true;
  EXPECT_EQ(call(), BITEXACT_STATUS_CAPTURING);
  EXPECT_EQ(verify(nullptr), BITEXACT_STATUS_CAPTURING);
  backend_->capturing = false;
  backend_->allocate_status = BITEXACT_STATUS_OUT_OF_MEMORY;
  EXPECT_EQ(verify(nullptr), BITEXACT_STATUS_OUT_OF_MEMORY);
  EXPECT_EQ(story().state, BITEXACT_STATE_UNDECIDED);
  backend_->allocate_status = 0;
  EXPECT_EQ(bitexact_gate_warm_up(context_.get(), nullptr, &case_->params, nullptr), BITEXACT_STATUS_OK);
  EXPECT_EQ(story().state, BITEXACT_STATE_UNDECIDED);  // a probe cannot speak for the caller
  EXPECT_EQ(verify(nullptr), BITEXACT_STATUS_OK);
  EXPECT_EQ(story().state, BITEXACT_STATE_ACCEPTED);
  open(BITEXACT_POLICY_VERIFY);
  EXPECT_EQ(verify(nullptr), BITEXACT_STATUS_WRONG_MODE);
}

TEST_F(GateTest, WarmUpDecidesByProbe) {
  open(BITEXACT_POLICY_VERIFY);
  EXPECT_EQ(bitexact_gate_warm_up(context_.get(), nullptr, &case_->params, nullptr), BITEXACT_STATUS_OK);
  EXPECT_TRUE(untouched());
  EXPECT_EQ(story().state, BITEXACT_STATE_ACCEPTED);
  EXPECT_EQ(story().basis, BITEXACT_BASIS_PROBE);
  backend_->capturing = true;  // accepted: a capture is no hindrance
  EXPECT_EQ(call(), BITEXACT_STATUS_OK);
  EXPECT_TRUE(right());
  EXPECT_EQ(story().fused_calls, 1);
}

TEST_F(GateTest, ALaunchThatFailsIsNotCounted) {
  open(BITEXACT_POLICY_VERIFY);
  EXPECT_EQ(call(), BITEXACT_STATUS_OK);
  backend_->fused_silu_mul = [](const SiluMulArgs&, bitexact_stream) {
    return fail(BITEXACT_STATUS_CUDA_ERROR, "injected by a test");
  };
  EXPECT_EQ(call(), BITEXACT_STATUS_CUDA_ERROR);
  EXPECT_EQ(story().state, BITEXACT_STATE_ACCEPTED);
  EXPECT_EQ(story().fused_calls, 1);
  backend_->fused_silu_mul = nullptr;
  EXPECT_EQ(call(), BITEXACT_STATUS_OK);
  EXPECT_EQ(story().fused_calls, 2);
}

TEST_F(GateTest, ResetForgets) {
  open(BITEXACT_POLICY_VERIFY);
  break_fused();
  EXPECT_EQ(call(), BITEXACT_STATUS_OK);
  EXPECT_EQ(story().state, BITEXACT_STATE_DECLINED);
  EXPECT_EQ(bitexact_gate_reset(context_.get()), BITEXACT_STATUS_OK);
  EXPECT_TRUE(stories(context_.get()).empty());
  backend_->fused_silu_mul = nullptr;
  EXPECT_EQ(call(), BITEXACT_STATUS_OK);
  EXPECT_EQ(story().state, BITEXACT_STATE_ACCEPTED);
}

TEST_F(GateTest, NanPayloadsAreEqualAndCounted) {
  open(BITEXACT_POLICY_VERIFY);
  auto* gate = static_cast<uint16_t*>(const_cast<void*>(case_->params.gate));
  gate[3] = 0x7fc0;
  before_ = case_->arena.bytes();
  backend_->fused_silu_mul = [this](const SiluMulArgs& a, bitexact_stream stream) {
    const int32_t status = backend_->reference(a, stream);
    auto* out = static_cast<uint16_t*>(a.out.data);
    if (a.cols == 192) out[3] = 0xffc1;
    return status;
  };
  EXPECT_EQ(call(), BITEXACT_STATUS_OK);
  EXPECT_EQ(story().state, BITEXACT_STATE_ACCEPTED);
  EXPECT_EQ(story().nan_payload_differences, 1);
}

TEST_F(GateTest, AnExceptionInsideBecomesAStatus) {
  open(BITEXACT_POLICY_VERIFY);
  backend_->before_download = [] { throw std::bad_alloc(); };
  EXPECT_EQ(call(), BITEXACT_STATUS_OUT_OF_MEMORY);
  backend_->before_download = [] { throw std::runtime_error("planted"); };
  EXPECT_EQ(call(), BITEXACT_STATUS_INTERNAL);
  EXPECT_NE(std::string(bitexact_last_error()).find("planted"), std::string::npos);
  backend_->before_download = [] {};
  EXPECT_EQ(call(), BITEXACT_STATUS_OK);
  EXPECT_EQ(story().state, BITEXACT_STATE_ACCEPTED);
  EXPECT_EQ(backend_->allocations, backend_->releases);
}

// However many threads arrive at once, a kernel is checked once; all get the right bits.
TEST(GateThreads, OneCheckForManyThreads) {
  const Context context = make_context(BITEXACT_DEVICE_HOST);
  std::atomic<int> ready{0}, wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 16; ++i) {
    threads.emplace_back([&, i] {
      SiluMulCase c = make_case({BITEXACT_DTYPE_BFLOAT16, 0, 0, 1, 3, 64, 0, 0, false, InPlace::no},
                                static_cast<uint64_t>(i));
      std::vector<uint8_t> expected = c.arena.bytes();
      bitexact_reference::silu_mul(moved(c.params, c.arena, expected.data()));
      ++ready;
      while (ready < 16) std::this_thread::yield();
      if (bitexact_fused_silu_mul(context.get(), &c.params, nullptr) != 0 || c.arena.bytes() != expected)
        ++wrong;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  const auto s = only_story(context.get());
  EXPECT_EQ(s.state, BITEXACT_STATE_ACCEPTED);
  EXPECT_EQ(s.checks, 2);
  EXPECT_EQ(s.fused_calls + s.reference_calls, 16);
}

TEST(GateEnvironment, OverridesThePolicy) {
  struct Restore {
    ~Restore() { unsetenv("BITEXACT_GATE"); }
  } restore;
  const char* const names[] = {"verify", "reference", "trust", "audit", "strict"};
  for (int32_t policy = 0; policy <= BITEXACT_POLICY_STRICT; ++policy) {
    setenv("BITEXACT_GATE", names[policy], 1);
    const Context context = make_context(BITEXACT_DEVICE_HOST, BITEXACT_POLICY_TRUST);
    bitexact_context_info info = BITEXACT_CONTEXT_INFO_INIT;
    ASSERT_EQ(bitexact_context_get_info(context.get(), &info), BITEXACT_STATUS_OK);
    EXPECT_EQ(info.gate_policy, policy);
  }
  setenv("BITEXACT_GATE", "off", 1);
  bitexact_context_options options = BITEXACT_CONTEXT_OPTIONS_INIT;
  options.device = BITEXACT_DEVICE_HOST;
  bitexact_context* context = nullptr;
  EXPECT_EQ(bitexact_context_create(&options, &context), BITEXACT_STATUS_ENVIRONMENT);
  EXPECT_EQ(context, nullptr);
  EXPECT_NE(std::string(bitexact_last_error()).find("\"off\""), std::string::npos);
}

}  // namespace
