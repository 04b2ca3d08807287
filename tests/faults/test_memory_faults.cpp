// Each allocation of host memory that the library makes fails in turn, and so do exceptions of other kinds: an
// answer instead of a crash, no wrong bit, nothing latched, nothing lost.
#include <atomic>
#include <cstdlib>
#include <new>

#include "inject.h"
#include "scenarios.h"

using namespace bitexact_test;

namespace {

// Of this thread: counts down to the allocation that fails; 0 is at rest.
thread_local int64_t until_failure = 0;
thread_local bool struck = false;

bool fails() {
  if (until_failure == 0 || --until_failure != 0) return false;
  struck = true;
  return true;
}

void* allocate(std::size_t bytes) {
  if (fails()) throw std::bad_alloc();
  if (void* const memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate(bytes); }
void* operator new[](std::size_t bytes) { return allocate(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

// The host backend's scratch memory. Linked with --wrap.
extern "C" void* __real_aligned_alloc(std::size_t alignment, std::size_t bytes);
extern "C" void* __wrap_aligned_alloc(std::size_t alignment, std::size_t bytes) {
  return fails() ? nullptr : __real_aligned_alloc(alignment, bytes);
}

namespace {

struct Place {
  Scenario scenario;
  int32_t device;
};
std::ostream& operator<<(std::ostream& out, const Place& p) {
  return out << p.scenario << (p.device < 0 ? "_host" : "_cuda");
}

std::vector<Place> places() {
  std::vector<Place> all;
  for (const Scenario& s : scenarios()) {
    for (const int32_t device : {0, BITEXACT_DEVICE_HOST}) all.push_back({s, device});
  }
  return all;
}

class MemoryFaults : public testing::TestWithParam<Place> {};

// Runs the scenario, its context's creation too, with allocation number `nth` failing.
bool strike(const Place& place, int64_t nth) {
  Calls calls, again;
  const DeviceMemory eager(calls.silu.expected);
  const int64_t alive = inject::alive();
  std::string what = std::string(place.scenario.name) + ", allocation " + std::to_string(nth);
  bitexact_context_options options = BITEXACT_CONTEXT_OPTIONS_INIT;
  options.device = place.device;
  options.gate_policy = place.scenario.policy;
  options.reference_mode = place.scenario.mode;
  bitexact_context* raw = nullptr;
  struck = false;
  until_failure = nth;
  const int32_t created = bitexact_context_create(&options, &raw);
  const int64_t left = until_failure;
  until_failure = 0;
  Context context(raw);
  if (struck) {
    EXPECT_EQ(created, BITEXACT_STATUS_OUT_OF_MEMORY) << what << " of creation";
    EXPECT_EQ(raw, nullptr);
    EXPECT_EQ(inject::alive(), alive) << what << " of creation";
    return true;
  }
  EXPECT_EQ(created, BITEXACT_STATUS_OK) << bitexact_last_error();
  if (context == nullptr) return false;
  // The answers' own strings must not be hit, so each step is armed by itself.
  std::vector<Answer> answers;
  answers.reserve(8);
  int64_t rest = left;
  auto armed = [&](auto&& body) {
    until_failure = rest;
    const int32_t status = body();
    rest = until_failure;
    until_failure = 0;
    answers.push_back(answer_of(status));
    return status;
  };
  switch (place.scenario.act) {
    case Act::verify:
      armed([&] { return calls.verify(context.get(), eager); });
      calls.silu.status =
          armed([&] { return bitexact_fused_silu_mul(context.get(), &calls.silu.params, nullptr); });
      break;
    case Act::warm_up:
      armed([&] {
        return bitexact_gate_warm_up(context.get(), &calls.rope.params, &calls.silu.params, nullptr);
      });
      break;
    case Act::info:
      armed([&] {
        bitexact_context_info info = BITEXACT_CONTEXT_INFO_INIT;
        return bitexact_context_get_info(context.get(), &info);
      });
      break;
    default:
      calls.silu.status =
          armed([&] { return bitexact_fused_silu_mul(context.get(), &calls.silu.params, nullptr); });
      calls.rope.status =
          armed([&] { return bitexact_fused_rope(context.get(), &calls.rope.params, nullptr); });
  }
  if (!struck) return false;
  for (const Answer& answer : answers) {
    if (answer.status == BITEXACT_STATUS_OK) continue;
    if (answer.status == BITEXACT_STATUS_UNVERIFIED && place.scenario.act == Act::verify) continue;
    EXPECT_EQ(answer.status, BITEXACT_STATUS_OUT_OF_MEMORY) << what << ": " << answer.text;
  }
  expect_no_wrong_bit(calls.silu, what);
  expect_no_wrong_bit(calls.rope, what);
  for (const auto& story : stories(context.get())) {
    if (place.scenario.policy != BITEXACT_POLICY_REFERENCE) {
      EXPECT_NE(story.state, BITEXACT_STATE_DECLINED) << what << " latched " << story.kernel_name;
    }
  }
  for (const Answer& answer : perform(place.scenario, context.get(), again, eager)) {
    EXPECT_EQ(answer.status, BITEXACT_STATUS_OK) << what << ", again: " << answer.text;
  }
  expect_no_wrong_bit(again.silu, what + ", again");
  expect_no_wrong_bit(again.rope, what + ", again");
  return true;
}

TEST_P(MemoryFaults, EachAllocationFailsCleanly) {
  { const Context first = make_context(GetParam().device); }
  int64_t nth = 1;
  while (strike(GetParam(), nth)) {
    if (HasFailure()) FAIL() << "at allocation " << nth;
    ++nth;
  }
  EXPECT_GT(nth, 2) << "the scenario allocates nothing";
  std::printf("%lld allocations failed in turn\n", static_cast<long long>(nth - 1));
}

INSTANTIATE_TEST_SUITE_P(Scenarios, MemoryFaults, testing::ValuesIn(places()), [](const auto& info) {
  return std::string(info.param.scenario.name) + (info.param.device < 0 ? "_host" : "_cuda");
});

}  // namespace
