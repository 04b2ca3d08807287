// Each call of the CUDA runtime that the library makes fails in turn: no wrong bit, no crash, no leak, no
// verdict that a passing fault latched, the right status, the caller's state unharmed, and all well afterwards.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "inject.h"
#include "scenarios.h"

using namespace bitexact_test;

namespace {

struct Fault {
  int error;
  int32_t status;
};
// What may pass later, and what may not.
constexpr Fault faults[] = {{cudaErrorMemoryAllocation, BITEXACT_STATUS_OUT_OF_MEMORY},
                            {cudaErrorLaunchFailure, BITEXACT_STATUS_CUDA_ERROR}};

bool may_decline(const std::string& call) {
  return call == "cudaLaunchKernel" || call == "cudaMemcpyAsync" || call == "cudaStreamSynchronize";
}

// The status of the fault; or CUDA_ERROR for a driver function, which reports in its own terms.
void expect_fitting(const Answer& answer, const Fault& fault, const std::string& what) {
  const bool driver = inject::failed().rfind("cuCtx", 0) == 0;
  EXPECT_EQ(answer.status, driver ? BITEXACT_STATUS_CUDA_ERROR : fault.status) << what << ": " << answer.text;
  EXPECT_EQ(answer.cuda_error, driver ? cudaErrorDevicesUnavailable : fault.error) << what;
  EXPECT_NE(answer.text.find("bitexact_"), std::string::npos) << what << ": " << answer.text;
}

void expect_state_as_before(const inject::ThreadState& before, const std::string& what) {
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess) << what;
  const inject::ThreadState after = inject::thread_state();
  if (inject::failed_putting_back()) return;
  EXPECT_EQ(after.context, before.context) << what;
  EXPECT_EQ(after.capture_mode, before.capture_mode) << what;
}

// Under sanitizers each tenth call has to do.
int64_t step() {
  const char* const every = std::getenv("BITEXACT_TEST_EVERY");
  return every != nullptr ? std::max<int64_t>(std::strtoll(every, nullptr, 10), 1) : 1;
}

// ------------------------------------------------------------------------------- first uses --

class CudaFaults : public testing::TestWithParam<Scenario> {};

// Runs the scenario with call number `nth` failing; returns whether it came to that.
bool strike(const Scenario& s, int64_t nth, const Fault& fault) {
  Calls calls, again;
  const DeviceMemory eager(calls.silu.expected);
  const inject::ThreadState before = inject::thread_state();
  Context context = make_context(0, s.policy, s.mode);
  const int64_t alive = inject::alive();
  inject::arm(nth, fault.error);
  const std::vector<Answer> answers = perform(s, context.get(), calls, eager);
  inject::disarm();
  if (inject::failed().empty()) return false;
  const std::string what = std::string(s.name) + ", call " + std::to_string(nth) + " " + inject::failed() +
                           ", error " + std::to_string(fault.error);
  expect_state_as_before(before, what);
  EXPECT_EQ(inject::alive(), alive) << what;
  expect_no_wrong_bit(calls.silu, what);
  expect_no_wrong_bit(calls.rope, what);
  bool declined = false;
  for (const auto& story : stories(context.get())) {
    if (story.state != BITEXACT_STATE_DECLINED || s.policy == BITEXACT_POLICY_REFERENCE) continue;
    declined = true;
    EXPECT_TRUE(may_decline(inject::failed()) && fault.error != cudaErrorMemoryAllocation)
        << what << " latched " << story.kernel_name;
    EXPECT_EQ(story.reason, BITEXACT_REASON_LAUNCH_ERROR) << what;
    EXPECT_EQ(story.status, fault.status) << what;
  }
  int failures = 0;
  for (const Answer& answer : answers) {
    const int32_t status = answer.status;
    if (status == BITEXACT_STATUS_OK || (declined && status == BITEXACT_STATUS_DECLINED)) continue;
    if (status == BITEXACT_STATUS_UNVERIFIED && s.act == Act::verify) continue;
    ++failures;
    expect_fitting(answer, fault, what);
  }
  EXPECT_LE(failures, 1) << what << ": one fault, more than one failure";
  if (calls.silu.status == BITEXACT_STATUS_OK && calls.rope.status == BITEXACT_STATUS_OK) {
    EXPECT_EQ(positions_counted(context.get()), calls.positions_outside) << what;
  }
  // The fault is over: everything is served, by the reference where a launch error has declined.
  for (const Answer& answer : perform(s, context.get(), again, eager)) {
    if (declined && answer.status == BITEXACT_STATUS_DECLINED) continue;
    EXPECT_EQ(answer.status, BITEXACT_STATUS_OK) << what << ", again: " << answer.text;
  }
  expect_no_wrong_bit(again.silu, what + ", again");
  expect_no_wrong_bit(again.rope, what + ", again");
  return true;
}

TEST_P(CudaFaults, EachCallFailsCleanly) {
  const inject::ThreadState before = inject::thread_state();
  { const Context first = make_context(0); }  // what all contexts of a device share is there from now on
  expect_state_as_before(before, "the first context");
  int64_t first = 1;
  for (const Fault& fault : faults) {
    int64_t nth = first;
    first += step() / 2;  // where calls are left out, each error meets others of them
    while (strike(GetParam(), nth, fault)) {
      if (HasFailure()) FAIL() << "at call " << nth << " of " << GetParam().name;
      nth += step();
    }
    EXPECT_GT(nth, 2) << "the scenario makes no call that can fail";
    std::printf("%s: calls 1 to %lld failed in turn, each %lld., with error %d\n", GetParam().name,
                static_cast<long long>(nth - step()), static_cast<long long>(step()), fault.error);
  }
}

INSTANTIATE_TEST_SUITE_P(Scenarios, CudaFaults, testing::ValuesIn(scenarios()),
                         [](const auto& info) { return std::string(info.param.name); });

// ---------------------------------------------------------------------------------- opening --

// The first context of a process finds the device and loads the kernels: a process for each try. A child tells
// through its exit status whether the fault was met, and through shared memory how many calls there were.
constexpr int met = 0, not_met = 1, wrong = 2;

int open_with_fault(int64_t nth, const Fault& fault, int64_t* calls_made) {
  const inject::ThreadState before = inject::thread_state();
  bitexact_context_options options = BITEXACT_CONTEXT_OPTIONS_INIT;
  bitexact_context* context = nullptr;
  inject::arm(nth, fault.error);
  const int32_t status = bitexact_context_create(&options, &context);
  inject::disarm();
  *calls_made = inject::calls();
  if (inject::failed().empty()) {
    bitexact_context_destroy(context);
    return status == BITEXACT_STATUS_OK ? not_met : wrong;
  }
  const std::string what = "create, call " + std::to_string(nth) + " " + inject::failed();
  expect_state_as_before(before, what);
  EXPECT_EQ(context == nullptr, status != BITEXACT_STATUS_OK) << what;
  if (status != BITEXACT_STATUS_OK) expect_fitting(answer_of(status), fault, what);
  bitexact_context_destroy(context);
  // Nothing was latched: the next one opens, and serves.
  Calls calls;
  const Context again = make_context(0);
  if (again != nullptr) {
    const DeviceMemory eager(calls.silu.expected);
    for (const Answer& answer : perform(scenarios()[0], again.get(), calls, eager)) {
      EXPECT_EQ(answer.status, BITEXACT_STATUS_OK) << what << ": " << answer.text;
    }
    expect_no_wrong_bit(calls.silu, what);
    expect_no_wrong_bit(calls.rope, what);
  }
  return testing::Test::HasFailure() ? wrong : met;
}

int in_a_process(int64_t nth, const Fault& fault, int64_t* calls_made) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) std::exit(open_with_fault(nth, fault, calls_made));
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "create, call " << nth << ": killed by signal " << WTERMSIG(status);
  return WIFEXITED(status) ? WEXITSTATUS(status) : wrong;
}

// Named so that it comes first where all run in one process: the children must be born before CUDA is.
TEST(ACudaFault, DuringTheFirstContextOfAProcess) {
  void* const shared =
      mmap(nullptr, sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  auto* const calls_made = static_cast<int64_t*>(shared);
  ASSERT_EQ(in_a_process(INT64_MAX, faults[0], calls_made), not_met);
  const int64_t total = *calls_made;
  ASSERT_GT(total, 20);
  // A real device takes a second to open; of the hundreds of calls in the middle, which load a kernel each,
  // some are left out there.
  const char* const few = std::getenv("BITEXACT_FAULTS_AT_EACH_END");
  const int64_t end = few != nullptr ? std::max<int64_t>(std::strtoll(few, nullptr, 10), 1) : total;
  for (const Fault& fault : faults) {
    int64_t tried = 0;
    for (int64_t nth = 1; nth <= total; nth += step()) {
      if (nth > end && nth <= total - end) continue;
      ASSERT_EQ(in_a_process(nth, fault, calls_made), met) << "create, call " << nth;
      ++tried;
    }
    std::printf("create: %lld of %lld calls failed in turn with error %d\n", static_cast<long long>(tried),
                static_cast<long long>(total), fault.error);
  }
  munmap(shared, sizeof(int64_t));
}

}  // namespace
