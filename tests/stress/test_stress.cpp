// Many threads, many contexts, many calls, a long time: through the functions that ship. Device: the environment
// variable BITEXACT_STRESS_DEVICE, -1 (the host) unless said.
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <random>
#include <thread>

#include "stress_calls.h"

using namespace bitexact_test;

namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif

int32_t stress_device() {
  const char* const value = std::getenv("BITEXACT_STRESS_DEVICE");
  return value != nullptr ? std::atoi(value) : BITEXACT_DEVICE_HOST;
}

// Runs body(i) in `count` threads that start together; the sum of what they return.
int together(int count, const std::function<int(int)>& body) {
  std::atomic<int> ready{0}, sum{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      ++ready;
      while (ready < count) std::this_thread::yield();
      sum += body(i);
    });
  }
  for (auto& thread : threads) thread.join();
  return sum;
}

constexpr int thread_count = 32;
constexpr int calls_a_thread = sanitized ? 30 : 200;

// One of all kinds of calls, by chance; returns how many went wrong.
int mixed_calls(bitexact_context* context, int seed, int count) {
  std::mt19937 random(static_cast<unsigned>(seed));
  StressCalls calls(stress_device(), static_cast<uint64_t>(seed));
  int wrong = 0;
  for (int i = 0; i < count; ++i) {
    switch (random() % 8) {
      case 0: wrong += !calls.silu_mul_is_right(context, 1); break;
      case 1: wrong += !calls.refusal_is_right(context); break;
      case 2: wrong += bitexact_gate_warm_up(context, calls.rope(), calls.silu_mul(), nullptr) != 0; break;
      case 3: {
        bitexact_context_info info = BITEXACT_CONTEXT_INFO_INIT;
        wrong += bitexact_context_get_info(context, &info) != 0;
        break;
      }
      case 4: {
        bitexact_gate_report report = BITEXACT_GATE_REPORT_INIT;
        wrong += bitexact_gate_get(context, random() % 300, &report) != 0;
        wrong += report.kernel_name == nullptr;
        break;
      }
      case 5: wrong += bitexact_fused_rope_can_use(context, calls.rope()) != 0; break;
      default: wrong += !calls.rope_is_right(context); break;
    }
  }
  return wrong;
}

TEST(Stress, ManyThreadsThroughOneContext) {
  for (const int32_t policy : {BITEXACT_POLICY_VERIFY, BITEXACT_POLICY_TRUST, BITEXACT_POLICY_AUDIT}) {
    const Context context = make_context(stress_device(), policy);
    EXPECT_EQ(together(thread_count, [&](int i) { return mixed_calls(context.get(), i, calls_a_thread); }),
              0);
    for (const auto& story : stories(context.get())) {
      EXPECT_EQ(story.state, BITEXACT_STATE_ACCEPTED) << story.kernel_name;
      if (policy == BITEXACT_POLICY_VERIFY) {
        EXPECT_LE(story.checks, 2) << story.kernel_name << ": one check, however many threads";
      }
    }
  }
}

TEST(Stress, ManyThreadsEachWithItsContext) {
  EXPECT_EQ(together(thread_count,
                     [&](int i) {
                       const Context own = make_context(stress_device());
                       return mixed_calls(own.get(), i, calls_a_thread / 4);
                     }),
            0);
}

TEST(Stress, TwoContextsOnADeviceKeepTheirVerdictsApart) {
  const Context one = make_context(stress_device());
  const Context other = make_context(stress_device(), BITEXACT_POLICY_REFERENCE);
  StressCalls calls(stress_device(), 1);
  EXPECT_TRUE(calls.silu_mul_is_right(one.get(), 0));
  EXPECT_TRUE(calls.silu_mul_is_right(other.get(), 0));
  EXPECT_EQ(only_story(one.get()).state, BITEXACT_STATE_ACCEPTED);
  EXPECT_EQ(only_story(other.get()).state, BITEXACT_STATE_DECLINED);
  EXPECT_EQ(only_story(one.get()).fused_calls, 1);
  EXPECT_EQ(only_story(other.get()).reference_calls, 1);
}

// --------------------------------------------------------------------------------- memory --

// Resident pages of this process, in bytes.
int64_t resident() {
  std::ifstream file("/proc/self/statm");
  int64_t all = 0, here = 0;
  file >> all >> here;
  return here * sysconf(_SC_PAGESIZE);
}

struct Use {
  int64_t host, device;
};
Use use() {
  malloc_trim(0);
  return {resident(), device_memory_in_use()};
}

void expect_flat(const Use& before, const Use& after) {
  // Allocators keep some; a leak of one pointer for each round would be more.
  EXPECT_LT(after.host - before.host, int64_t{2} << 20) << "host memory grew";
  EXPECT_EQ(after.device, before.device) << "device memory grew";
}

TEST(Stress, TenThousandContextsLeaveMemoryFlat) {
  const int count = sanitized ? 1000 : 10000;
  StressCalls calls(stress_device(), 3);
  auto round = [&](int i) {
    const Context context = make_context(stress_device(), BITEXACT_POLICY_TRUST);
    if (i % 100 == 0) {
      EXPECT_TRUE(calls.silu_mul_is_right(context.get(), 0));
    }
  };
  for (int i = 0; i < 500; ++i) round(i);
  const Use before = use();
  for (int i = 0; i < count; ++i) round(i);
  if (!sanitized) expect_flat(before, use());
}

TEST(Stress, AMillionCallsLeaveMemoryFlat) {
  const int count = sanitized ? 20000 : 1000000;
  const Context context = make_context(stress_device());
  StressCalls calls(stress_device(), 4);
  auto round = [&](int i) {
    if (i % 64 == 0) calls.synchronize();
    if (i % 3 == 0) return calls.call_rope(context.get());
    return i % 7 == 0 ? calls.refuse(context.get()) : calls.call_silu_mul(context.get());
  };
  int wrong = 0;
  for (int i = 0; i < 1000; ++i) wrong += round(i);
  const Use before = use();
  for (int i = 0; i < count; ++i) wrong += round(i);
  calls.synchronize();
  EXPECT_EQ(wrong, 0);
  if (!sanitized) expect_flat(before, use());
  EXPECT_TRUE(calls.silu_mul_is_right(context.get(), 0));
}

TEST(Stress, AFailedCreationLosesNothing) {
  bitexact_context_options options = BITEXACT_CONTEXT_OPTIONS_INIT;
  options.device = 12345;
  auto round = [&] {
    bitexact_context* none = nullptr;
    EXPECT_NE(bitexact_context_create(&options, &none), BITEXACT_STATUS_OK);
    EXPECT_EQ(none, nullptr);
    bitexact_context_destroy(none);
  };
  for (int i = 0; i < 100; ++i) round();
  const Use before = use();
  for (int i = 0; i < 10000; ++i) round();
  if (!sanitized) expect_flat(before, use());
}

// ------------------------------------------------------------------------------- processes --

int status_of_child(const std::function<int()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) std::_Exit(body());
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "killed by signal " << WTERMSIG(status);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

// A host context works in the child; a CUDA context says what is wrong with it, and so does one made there by a
// process that has used CUDA.
TEST(Stress, AForkedChild) {
  const Context context = make_context(stress_device());
  StressCalls calls(stress_device(), 5);
  ASSERT_TRUE(calls.silu_mul_is_right(context.get(), 0));
  const bool host = stress_device() == BITEXACT_DEVICE_HOST;
  EXPECT_EQ(status_of_child([&] {
              const int32_t status = bitexact_fused_silu_mul(context.get(), calls.silu_mul(), nullptr);
              bitexact_context_destroy(const_cast<Context&>(context).release());
              return status;
            }),
            host ? BITEXACT_STATUS_OK : BITEXACT_STATUS_FORKED);
  EXPECT_TRUE(calls.silu_mul_is_right(context.get(), 0));
}

}  // namespace
