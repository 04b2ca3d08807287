// Graphs and streams over and over: replays whose inputs change, captures beside contexts that are made, every
// kind of stream from many threads, work elsewhere that takes for ever.
#include <atomic>
#include <thread>

#include "cases.h"
#include "check.h"
#include "contexts.h"
#include "device.h"
#include "mutant_kernels.h"
#include "operation.h"
#include "reference/reference.h"
#include "reference_kernels.h"

using namespace bitexact;
using namespace bitexact_test;

namespace {

void expect(const bitexact_silu_mul_params& p) { bitexact_reference::silu_mul(p); }
void expect(const bitexact_rope_params& p) { bitexact_reference::rope(p, nullptr); }
int32_t run(bitexact_context* context, const bitexact_silu_mul_params& p, bitexact_stream stream) {
  return bitexact_fused_silu_mul(context, &p, stream);
}
int32_t run(bitexact_context* context, const bitexact_rope_params& p, bitexact_stream stream) {
  return bitexact_fused_rope(context, &p, stream);
}

// One call whose inputs change: `sets` arenas with the bytes that each must become, all on the device.
template <class Case, class Params>
class Changing {
 public:
  explicit Changing(const std::vector<Case>& sets)
      : memory_(sets[0].arena.bytes()), mismatches_(sizeof(Comparison)) {
    params_ = moved(sets[0].params, sets[0].arena, memory_.as());
    const Comparison start;
    EXPECT_EQ(cudaMemcpy(mismatches_.as(), &start, sizeof(start), cudaMemcpyHostToDevice), cudaSuccess);
    for (const Case& set : sets) {
      std::vector<uint8_t> expected = set.arena.bytes();
      expect(moved(set.params, set.arena, expected.data()));
      before_.push_back(std::make_unique<DeviceMemory>(set.arena.bytes()));
      expected_.push_back(std::make_unique<DeviceMemory>(expected));
      bytes_ = static_cast<int64_t>(expected.size());
    }
  }

  const Params& params() const { return params_; }
  void prepare(size_t set, cudaStream_t stream) {
    EXPECT_EQ(cudaMemcpyAsync(memory_.as(), before_[set % before_.size()]->as(), static_cast<size_t>(bytes_),
                              cudaMemcpyDeviceToDevice, stream),
              cudaSuccess);
  }
  // Compares on the device, so that nothing waits: every byte, as pairs of them.
  void compare(size_t set, cudaStream_t stream) {
    const int64_t count = bytes_ / 2;
    const View actual = {memory_.as(), {1, 1, 1, count}, {0, 0, 0}, 0};
    const View expected = {expected_[set % expected_.size()]->as(), {1, 1, 1, count}, {0, 0, 0}, 0};
    const CompareArgs c = {Dtype::bfloat16, count, actual, expected, 0};
    EXPECT_EQ(launch_compare(c, mismatches_.as<Comparison>(), stream), cudaSuccess);
  }
  // Of all comparisons: NaN payloads count, too.
  unsigned long long differences() const {
    Comparison sum;
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(&sum, mismatches_.as(), sizeof(sum), cudaMemcpyDeviceToHost), cudaSuccess);
    return sum.mismatches + sum.nan_payload_differences;
  }

 private:
  DeviceMemory memory_, mismatches_;
  std::vector<std::unique_ptr<DeviceMemory>> before_, expected_;
  Params params_;
  int64_t bytes_ = 0;
};

using ChangingSilu = Changing<SiluMulCase, bitexact_silu_mul_params>;
using ChangingRope = Changing<RopeCase, bitexact_rope_params>;

std::vector<SiluMulCase> silu_sets(int count) {
  std::vector<SiluMulCase> sets;
  for (int i = 0; i < count; ++i) {
    sets.push_back(make_case({BITEXACT_DTYPE_BFLOAT16, 0, 0, 1, 33, 264, 8, 0, false, InPlace::no},
                             static_cast<uint64_t>(i)));
  }
  return sets;
}
std::vector<RopeCase> rope_sets(int count) {
  std::vector<RopeCase> sets;
  for (int i = 0; i < count; ++i)
    sets.push_back(make_case(plain_rope_shape(16, 8, 2, 64), static_cast<uint64_t>(i)));
  return sets;
}

template <class Call>
void replay(Call& call, int replays) {
  const Context context = make_context(0);
  const Stream stream;
  call.prepare(0, stream);
  // Decided ahead of the capture, on the very tensors.
  ASSERT_EQ(run(context.get(), call.params(), stream), BITEXACT_STATUS_OK) << bitexact_last_error();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  EXPECT_EQ(run(context.get(), call.params(), stream), BITEXACT_STATUS_OK);
  ASSERT_CUDA(cudaStreamEndCapture(stream, &graph));
  ASSERT_CUDA(cudaGraphInstantiate(&exec, graph, 0));
  for (int i = 0; i < replays; ++i) {
    const auto set = static_cast<size_t>(i);
    call.prepare(set, stream);
    EXPECT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
    call.compare(set, stream);
    // The eager call on the same inputs, now and then: the same bytes.
    if (i % 100 == 0) {
      call.prepare(set, stream);
      EXPECT_EQ(run(context.get(), call.params(), stream), BITEXACT_STATUS_OK);
      call.compare(set, stream);
    }
  }
  EXPECT_EQ(call.differences(), 0u);
  EXPECT_EQ(only_story(context.get()).fused_calls, 2 + (replays + 99) / 100);
  ASSERT_CUDA(cudaGraphExecDestroy(exec));
  ASSERT_CUDA(cudaGraphDestroy(graph));
}

TEST(StreamsCuda, TenThousandReplaysWithChangingInputs) {
  ChangingSilu silu(silu_sets(16));
  replay(silu, 10000);
  ChangingRope rope(rope_sets(16));
  replay(rope, 10000);
}

// That the comparison above can fail.
TEST(StreamsCuda, AReplayOnOtherInputsIsSeen) {
  ChangingSilu silu(silu_sets(2));
  const Context context = make_context(0, BITEXACT_POLICY_TRUST);
  const Stream stream;
  silu.prepare(0, stream);
  EXPECT_EQ(run(context.get(), silu.params(), stream), BITEXACT_STATUS_OK);
  silu.compare(1, stream);
  EXPECT_GT(silu.differences(), 0u);
}

TEST(StreamsCuda, CapturesBesideContextsThatAreMade) {
  for (const auto mode :
       {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed}) {
    const Context context = make_context(0);
    ChangingSilu captured(silu_sets(4));
    // The maker's, too: a global capture forbids every thread what takes memory here, though not the library.
    ChangingSilu call(silu_sets(1));
    const Stream stream, own;
    ASSERT_EQ(bitexact_gate_warm_up(context.get(), nullptr, &captured.params(), stream), BITEXACT_STATUS_OK);
    std::atomic<bool> stop{false};
    std::atomic<int> made{0}, wrong{0};
    std::thread maker([&] {
      while (!stop) {
        const Context fresh = make_context(0);
        if (run(fresh.get(), call.params(), own) != BITEXACT_STATUS_OK) ++wrong;
        bitexact_context_info info = BITEXACT_CONTEXT_INFO_INIT;
        if (bitexact_context_get_info(fresh.get(), &info) != BITEXACT_STATUS_OK) ++wrong;
        ++made;
      }
    });
    for (int i = 0; i < 50 || made < 20; ++i) {
      cudaGraph_t graph = nullptr;
      cudaGraphExec_t exec = nullptr;
      EXPECT_EQ(cudaStreamBeginCapture(stream, mode), cudaSuccess);
      EXPECT_EQ(run(context.get(), captured.params(), stream), BITEXACT_STATUS_OK) << bitexact_last_error();
      EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess) << "mode " << mode;
      if (graph == nullptr) break;
      EXPECT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
      captured.prepare(static_cast<size_t>(i), stream);
      EXPECT_EQ(cudaGraphLaunch(exec, stream), cudaSuccess);
      captured.compare(static_cast<size_t>(i), stream);
      EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
      cudaGraphExecDestroy(exec);
      cudaGraphDestroy(graph);
    }
    stop = true;
    maker.join();
    EXPECT_EQ(wrong, 0) << "mode " << mode;
    EXPECT_EQ(captured.differences(), 0u) << "mode " << mode;
  }
}

// The special handles and created streams, all at once from several threads. Per-thread streams are each
// thread's own; the legacy stream is everyone's, and in order.
TEST(StreamsCuda, EveryKindOfStreamFromManyThreads) {
  const Context context = make_context(0);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      ChangingSilu silu(silu_sets(4));
      ChangingRope rope(rope_sets(4));
      const Stream blocking(cudaStreamDefault), other;
      const cudaStream_t kinds[] = {nullptr, cudaStreamLegacy, cudaStreamPerThread, blocking, other};
      for (int i = 0; i < 100; ++i) {
        const cudaStream_t stream = kinds[(t + i) % 5];
        const auto set = static_cast<size_t>(i);
        silu.prepare(set, stream);
        if (run(context.get(), silu.params(), stream) != BITEXACT_STATUS_OK) ++wrong;
        silu.compare(set, stream);
        rope.prepare(set, stream);
        if (run(context.get(), rope.params(), stream) != BITEXACT_STATUS_OK) ++wrong;
        rope.compare(set, stream);
        // The next round takes another stream for the same memory.
        if (cudaStreamSynchronize(stream) != cudaSuccess) ++wrong;
      }
      if (silu.differences() + rope.differences() != 0) ++wrong;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// A producer on the same stream, and no wait between: each call sees what was written last.
TEST(StreamsCuda, AThousandCallsBehindTheirProducer) {
  const Context context = make_context(0);
  ChangingSilu silu(silu_sets(16));
  const Stream stream;
  for (size_t i = 0; i < 1000; ++i) {
    silu.prepare(i, stream);
    ASSERT_EQ(run(context.get(), silu.params(), stream), BITEXACT_STATUS_OK);
    silu.compare(i, stream);
  }
  EXPECT_EQ(silu.differences(), 0u);
}

// Not with CUDA_LAUNCH_BLOCKING, under which the kernel that waits would never come back.
TEST(StreamsCudaBusy, AKernelThatRunsForEverStallsNoCall) {
  const Context context = make_context(0);
  ChangingSilu silu(silu_sets(1)), undecided(silu_sets(1));
  ChangingRope rope(rope_sets(1));
  const Stream busy, stream;
  ASSERT_EQ(run(context.get(), silu.params(), stream), BITEXACT_STATUS_OK);
  ASSERT_EQ(run(context.get(), rope.params(), stream), BITEXACT_STATUS_OK);
  ASSERT_CUDA(cudaDeviceSynchronize());
  int* go = nullptr;
  ASSERT_CUDA(cudaHostAlloc(reinterpret_cast<void**>(&go), sizeof(int), cudaHostAllocMapped));
  *go = 0;
  ASSERT_CUDA(launch_wait(go, busy));
  // Calls of decided kernels, a first use, a warm-up, a new context and the report of one: none waits.
  silu.prepare(0, stream);
  rope.prepare(0, stream);
  EXPECT_EQ(run(context.get(), silu.params(), stream), BITEXACT_STATUS_OK);
  EXPECT_EQ(run(context.get(), rope.params(), stream), BITEXACT_STATUS_OK);
  const Context fresh = make_context(0);
  EXPECT_EQ(bitexact_gate_warm_up(fresh.get(), &rope.params(), nullptr, stream), BITEXACT_STATUS_OK);
  EXPECT_EQ(run(fresh.get(), undecided.params(), stream), BITEXACT_STATUS_OK);
  bitexact_context_info info = BITEXACT_CONTEXT_INFO_INIT;
  EXPECT_EQ(bitexact_context_get_info(context.get(), &info), BITEXACT_STATUS_OK);
  silu.compare(0, stream);
  rope.compare(0, stream);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(busy), cudaErrorNotReady) << "the kernel that waits had ended";
  *go = 1;
  EXPECT_EQ(silu.differences() + rope.differences(), 0u);
  ASSERT_CUDA(cudaFreeHost(go));
}

}  // namespace
