// The gate on a real device: protocols, captures, streams, threads, the caller's state, wrong kernels.
#include <cuda.h>

#include <atomic>
#include <string>
#include <thread>

#include "cases.h"
#include "confusions.h"
#include "context.h"
#include "contexts.h"
#include "cuda_backend.h"
#include "cuda_device.h"
#include "device.h"
#include "faulty_context.h"
#include "mutant_kernels.h"
#include "mutant_list.h"
#include "reference/reference.h"

using namespace bitexact_test;

namespace {

const SiluMulShape plain = {BITEXACT_DTYPE_BFLOAT16, 0, 0, 1, 33, 264, 8, 0, false, InPlace::no};

// A call with its arena on the device and the bytes it must leave there.
struct OnDevice {
  explicit OnDevice(const SiluMulShape& shape = plain, uint64_t seed = 1)
      : c(make_case(shape, seed)),
        memory(c.arena.bytes()),
        params(moved(c.params, c.arena, memory.as())),
        expected(c.arena.bytes()) {
    bitexact_reference::silu_mul(moved(c.params, c.arena, expected.data()));
  }
  bool right() const { return memory.bytes() == expected; }
  bool untouched() const { return memory.bytes() == c.arena.bytes(); }

  SiluMulCase c;
  DeviceMemory memory;
  bitexact_silu_mul_params params;
  std::vector<uint8_t> expected;
};

int32_t as_status(cudaError_t error) {
  return error == cudaSuccess ? BITEXACT_STATUS_OK : cuda_failure(error, "launching a mutant");
}

TEST(GateCuda, Info) {
  const Context context = make_context(0);
  bitexact_context_info info = BITEXACT_CONTEXT_INFO_INIT;
  ASSERT_EQ(bitexact_context_get_info(context.get(), &info), BITEXACT_STATUS_OK);
  cudaDeviceProp properties;
  ASSERT_CUDA(cudaGetDeviceProperties(&properties, 0));
  EXPECT_EQ(info.architecture, properties.major * 10 + properties.minor);
  EXPECT_STREQ(info.device_name, properties.name);
  EXPECT_GT(info.driver_version, 0);
  EXPECT_EQ(info.runtime_version, CUDART_VERSION);
  int count = 0;
  ASSERT_CUDA(cudaGetDeviceCount(&count));
  bitexact_context_options options = BITEXACT_CONTEXT_OPTIONS_INIT;
  options.device = count;
  bitexact_context* none = nullptr;
  EXPECT_EQ(bitexact_context_create(&options, &none), BITEXACT_STATUS_INVALID_DEVICE);
}

// And its reference gives what src/probe_digests.cpp says, which tests on the host cannot tell of every silu.
TEST(GateCuda, EveryKernelIsAcceptedByItsProbe) {
  const Context context = make_context(0);
  const Stream stream;
  ASSERT_EQ(bitexact_gate_warm_up(context.get(), nullptr, nullptr, stream), BITEXACT_STATUS_OK)
      << bitexact_last_error();
  const auto all = stories(context.get());
  EXPECT_EQ(all.size(), static_cast<size_t>(kernel_count));
  for (const auto& story : all) {
    EXPECT_EQ(story.state, BITEXACT_STATE_ACCEPTED) << story.kernel_name;
    EXPECT_EQ(story.nan_payload_differences, 0) << story.kernel_name;
  }
}

TEST(GateCuda, CallerModeProtocol) {
  for (const bool wrong : {false, true}) {
    const Context context = make_context(0, BITEXACT_POLICY_VERIFY, BITEXACT_REFERENCE_CALLER);
    const Stream stream;
    OnDevice call;
    EXPECT_EQ(bitexact_fused_silu_mul(context.get(), &call.params, stream), BITEXACT_STATUS_UNVERIFIED);
    EXPECT_TRUE(call.untouched());
    // The framework's own result, dense.
    const bitexact_silu_mul_params& p = call.params;
    std::vector<uint8_t> eager(static_cast<size_t>(p.rows * p.cols * 2));
    bitexact_silu_mul_params host = moved(call.c.params, call.c.arena, call.c.arena.bytes().data());
    host.out = eager.data();
    host.out_row_stride = p.cols;
    host.out_batch_stride = p.rows * p.cols;
    bitexact_reference::silu_mul(host);
    if (wrong) eager[1000] ^= 1;
    const DeviceMemory result(eager);
    bitexact_silu_mul_reference r = BITEXACT_SILU_MUL_REFERENCE_INIT;
    r.out = result.as();
    r.out_row_stride = p.cols;
    int32_t verdict = -1;
    ASSERT_EQ(bitexact_fused_silu_mul_verify(context.get(), &p, &r, stream, &verdict), BITEXACT_STATUS_OK)
        << bitexact_last_error();
    EXPECT_EQ(verdict, wrong ? BITEXACT_STATE_DECLINED : BITEXACT_STATE_ACCEPTED);
    EXPECT_TRUE(call.untouched());
    EXPECT_EQ(bitexact_fused_silu_mul(context.get(), &p, stream),
              wrong ? BITEXACT_STATUS_DECLINED : BITEXACT_STATUS_OK);
    EXPECT_TRUE(wrong ? call.untouched() : call.right());
    if (wrong) {
      EXPECT_EQ(only_story(context.get()).mismatch_index, 500);
    }
  }
}

TEST(GateCuda, InPlaceFirstUseIsSafe) {
  for (const int32_t policy : {BITEXACT_POLICY_VERIFY, BITEXACT_POLICY_STRICT, BITEXACT_POLICY_AUDIT}) {
    const Context context = make_context(0, policy);
    const Stream stream;
    SiluMulShape shape = plain;
    shape.in_place = InPlace::up;
    OnDevice call(shape);
    EXPECT_EQ(bitexact_fused_silu_mul(context.get(), &call.params, stream), BITEXACT_STATUS_OK);
    EXPECT_TRUE(call.right());
  }
}

// The line that tools/record_gpu reads.
void print_verdict(const char* name, const bitexact_gate_report& story) {
  const bool refused = story.reason == BITEXACT_REASON_REFERENCE;
  std::printf("%-34s %s by %s, %lld of %lld elements\n", name,
              refused                                  ? "refused"
              : story.state == BITEXACT_STATE_DECLINED ? "declined"
                                                       : "accepted",
              refused                                        ? "probe"
              : story.mismatch_basis == BITEXACT_BASIS_PROBE ? "probe"
              : story.mismatch_basis == BITEXACT_BASIS_LIVE  ? "live check"
                                                             : "-",
              static_cast<long long>(story.mismatches), static_cast<long long>(story.compared));
}

FaultyBackend* make_mutated(Context& context, Mutant mutant) {
  FaultyBackend* const backend = make_faulty(context, 0);
  backend->fused_silu_mul = [=](const SiluMulArgs& a, bitexact_stream s) {
    return as_status(launch_mutant(a, mutant, s));
  };
  backend->fused_rope = [=](const RopeArgs& a, bitexact_stream s) {
    return as_status(launch_mutant(a, mutant, s));
  };
  return backend;
}

TEST(GateCuda, WrongKernelsAreDeclinedWithTheRightBits) {
  for (int i = 0; i < static_cast<int>(Mutant::count); ++i) {
    const auto mutant = static_cast<Mutant>(i);
    const bool rope = mutant >= first_rope_mutant;
    Context context;
    make_mutated(context, mutant);
    const Stream stream;
    bool right = mutant == Mutant::none;
    if (!rope) {
      SiluMulShape shape = plain;
      shape.rows = 16;  // the smallest real shape
      // A fault that one dtype cannot show is shown in another.
      SiluMulArgs kernel{};
      if (mutant >= first_clamp_mutant) {
        kernel.clamp = Clamp::before;
        shape.clamp = BITEXACT_CLAMP_BEFORE;
        shape.limit = 10.0f;
      }
      for (const Dtype dtype : {Dtype::bfloat16, Dtype::float16, Dtype::float32}) {
        kernel.dtype = dtype;
        if (!is_equivalent(kernel, mutant)) break;
      }
      shape.dtype = static_cast<int32_t>(kernel.dtype);
      OnDevice call(shape);
      ASSERT_EQ(bitexact_fused_silu_mul(context.get(), &call.params, stream), BITEXACT_STATUS_OK);
      EXPECT_TRUE(call.right() || kernel.dtype == Dtype::float32) << name_of(mutant);
    } else {
      RopeShape shape = plain_rope_shape(16, 8, 1, 64);
      shape.table_per_head = mutant == Mutant::head_tables_ignored;
      RopeCase c = make_case(shape, 3);
      RopeArgs kernel{};
      kernel.dtype = kernel.table_dtype = kernel.compute_dtype = Dtype::bfloat16;
      right = is_equivalent(kernel, mutant);
      std::vector<uint8_t> expected = c.arena.bytes();
      bitexact_reference::rope(moved(c.params, c.arena, expected.data()), nullptr);
      const DeviceMemory memory(c.arena.bytes());
      const bitexact_rope_params p = moved(c.params, c.arena, memory.as());
      ASSERT_EQ(bitexact_fused_rope(context.get(), &p, stream), BITEXACT_STATUS_OK);
      EXPECT_TRUE(same_bytes(memory.bytes(), expected)) << name_of(mutant);
    }
    const auto story = only_story(context.get());
    EXPECT_EQ(story.state, right ? BITEXACT_STATE_ACCEPTED : BITEXACT_STATE_DECLINED) << name_of(mutant);
    print_verdict(name_of(mutant), story);
  }
}

TEST(GateCuda, AWrongFastKernelHandsOverToTheIeeeOne) {
  int declined = 0;  // some faults no bfloat16 shows
  for (int i = 1; i < static_cast<int>(first_clamp_mutant); ++i) {
    const auto mutant = static_cast<Mutant>(i);
    SiluMulArgs kernel{};
    kernel.dtype = Dtype::bfloat16;
    if (mutant >= first_rope_mutant || is_equivalent(kernel, mutant)) continue;
    Context context;
    make_mutated(context, mutant)->only_fast = true;
    const Stream stream;
    OnDevice call;
    ASSERT_EQ(bitexact_fused_silu_mul(context.get(), &call.params, stream), BITEXACT_STATUS_OK);
    EXPECT_TRUE(call.right()) << name_of(mutant);
    const auto all = stories(context.get());
    ASSERT_EQ(all.size(), 2u);
    EXPECT_EQ(all[0].state, BITEXACT_STATE_ACCEPTED) << name_of(mutant);
    EXPECT_EQ(all[0].fused_calls, 1);
    EXPECT_TRUE(is_fast(all[1]));
    EXPECT_EQ(all[1].state, BITEXACT_STATE_DECLINED) << name_of(mutant);
    ++declined;
  }
  EXPECT_GE(declined, 10);
}

// A reference with the very fault of the fused kernel agrees with it, but not with the digest of the probe.
TEST(GateCuda, FaultsThatTheReferenceSharesAreRefused) {
  for (const auto mutant : {Mutant::single_rounding, Mutant::fast_exp, Mutant::fast_division,
                            Mutant::flush_result, Mutant::one_rounding, Mutant::fma_first, Mutant::fma_second,
                            Mutant::rope_flush, Mutant::tail_through_float}) {
    Context context;
    FaultyBackend* const backend = make_mutated(context, mutant);
    backend->reference_silu_mul = backend->fused_silu_mul;
    backend->reference_rope = backend->fused_rope;
    const Stream stream;
    if (mutant < first_rope_mutant) {
      SiluMulShape shape = plain;
      shape.rows = 16;  // the smallest real shape
      // Of 16-bit gates a fast exponential gives the right silu.
      if (mutant == Mutant::fast_exp) shape.dtype = BITEXACT_DTYPE_FLOAT32;
      OnDevice call(shape);
      EXPECT_EQ(bitexact_fused_silu_mul(context.get(), &call.params, stream), BITEXACT_STATUS_INTERNAL)
          << name_of(mutant);
      EXPECT_TRUE(call.untouched()) << name_of(mutant);
    } else {
      const RopeCase c = make_case(plain_rope_shape(16, 8, 1, 64), 3);
      const DeviceMemory memory(c.arena.bytes());
      const bitexact_rope_params p = moved(c.params, c.arena, memory.as());
      EXPECT_EQ(bitexact_fused_rope(context.get(), &p, stream), BITEXACT_STATUS_INTERNAL) << name_of(mutant);
      EXPECT_EQ(memory.bytes(), c.arena.bytes()) << name_of(mutant);
    }
    const auto story = only_story(context.get());
    EXPECT_EQ(story.reason, BITEXACT_REASON_REFERENCE) << name_of(mutant);
    print_verdict((std::string("reference too: ") + name_of(mutant)).c_str(), story);
  }
}

// A kernel that computes another numerics than the one it stands for. The story printed is that of the pair
// which fewest elements tell apart.
template <class Args, class Warm>
void expect_told_apart(const char* what, const std::vector<Confusion<Args>>& confusions, Warm&& warm) {
  bitexact_gate_report closest = BITEXACT_GATE_REPORT_INIT;
  for (const auto& confusion : confusions) {
    Context context;
    FaultyBackend* const backend = make_faulty(context, 0);
    const auto wrong = [&, backend](Args a, bitexact_stream s) {
      take_numerics(a, confusion.run);
      return backend->reference(a, s);
    };
    if constexpr (std::is_same<Args, SiluMulArgs>::value) {
      backend->fused_silu_mul = wrong;
    } else {
      backend->fused_rope = wrong;
    }
    const Stream stream;
    warm(context.get(), confusion.named, stream);
    const auto story = only_story(context.get());
    EXPECT_EQ(story.state, BITEXACT_STATE_DECLINED) << confusion.name << ", " << story.kernel_name;
    EXPECT_EQ(story.mismatch_basis, BITEXACT_BASIS_PROBE) << confusion.name;
    if (closest.mismatches == 0 || story.mismatches < closest.mismatches) closest = story;
  }
  char name[64];
  std::snprintf(name, sizeof(name), "%s: %zu confusions", what, confusions.size());
  print_verdict(name, closest);
}

TEST(GateCuda, AnotherNumericsIsDeclined) {
  expect_told_apart("numerics of silu_mul", silu_mul_confusions(true),
                    [](bitexact_context* context, const SiluMulArgs& named, bitexact_stream stream) {
                      SiluMulShape shape = plain;
                      shape.dtype = static_cast<int32_t>(named.dtype);
                      shape.silu = static_cast<int32_t>(named.silu);
                      shape.compute_dtype = named.compute_float32 ? BITEXACT_DTYPE_FLOAT32 : 0;
                      shape.clamp = static_cast<int32_t>(named.clamp);
                      shape.limit = named.limit;
                      const SiluMulCase c = make_case(shape, 1);
                      ASSERT_EQ(bitexact_gate_warm_up(context, nullptr, &c.params, stream),
                                BITEXACT_STATUS_OK);
                    });
  expect_told_apart("numerics of rope", rope_confusions(),
                    [](bitexact_context* context, const RopeArgs& named, bitexact_stream stream) {
                      RopeShape shape{};
                      shape.dtype = static_cast<int32_t>(named.dtype);
                      shape.table_dtype = static_cast<int32_t>(named.table_dtype);
                      const bool own = named.compute_dtype == named.dtype;
                      shape.compute_dtype = own ? 0 : static_cast<int32_t>(named.compute_dtype);
                      shape.combine = static_cast<int32_t>(named.combine);
                      shape.flags = named.sum_from_zero ? BITEXACT_ROPE_SUM_FROM_ZERO : 0;
                      shape.batches = shape.q_heads = 1;
                      shape.tokens = 16;
                      shape.head_dim = shape.rotary_dim = 64;
                      shape.element_stride = 1;
                      const RopeCase c = make_case(shape, 1);
                      ASSERT_EQ(bitexact_gate_warm_up(context, &c.params, nullptr, stream),
                                BITEXACT_STATUS_OK);
                    });
}

TEST(GateCuda, ABlindComparisonIsRefused) {
  for (int i = 0; i < static_cast<int>(Blindness::count); ++i) {
    const auto blindness = static_cast<Blindness>(i);
    Context context;
    FaultyBackend* const backend = make_faulty(context, 0);
    backend->comparison = [=](const CompareArgs& a, Comparison* result, bitexact_stream s) {
      return as_status(launch_blind_compare(a, blindness, result, s));
    };
    const Stream stream;
    OnDevice call;
    ASSERT_EQ(bitexact_fused_silu_mul(context.get(), &call.params, stream), BITEXACT_STATUS_INTERNAL);
    EXPECT_TRUE(call.untouched());
    const auto story = only_story(context.get());
    EXPECT_EQ(story.state, BITEXACT_STATE_DECLINED) << name_of(blindness);
    EXPECT_EQ(story.reason, BITEXACT_REASON_REFERENCE) << name_of(blindness);
    print_verdict(name_of(blindness), story);
  }
}

TEST(GateCuda, ALaunchThatCudaRefusesIsADecline) {
  Context context;
  FaultyBackend* const backend = make_faulty(context, 0);
  backend->fused_silu_mul = [](const SiluMulArgs&, bitexact_stream s) {
    return as_status(launch_impossible(s));
  };
  const Stream stream;
  OnDevice call;
  EXPECT_EQ(bitexact_fused_silu_mul(context.get(), &call.params, stream), BITEXACT_STATUS_OK);
  EXPECT_TRUE(call.right());
  EXPECT_EQ(only_story(context.get()).reason, BITEXACT_REASON_LAUNCH_ERROR);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

// ------------------------------------------------------------------------------- captures --

struct Graph {
  ~Graph() {
    if (exec != nullptr) cudaGraphExecDestroy(exec);
    if (graph != nullptr) cudaGraphDestroy(graph);
  }
  std::vector<cudaGraphNodeType> nodes() const {
    size_t count = 0;
    EXPECT_EQ(cudaGraphGetNodes(graph, nullptr, &count), cudaSuccess);
    std::vector<cudaGraphNode_t> all(count);
    EXPECT_EQ(cudaGraphGetNodes(graph, all.data(), &count), cudaSuccess);
    std::vector<cudaGraphNodeType> types(count);
    for (size_t i = 0; i < count; ++i) EXPECT_EQ(cudaGraphNodeGetType(all[i], &types[i]), cudaSuccess);
    return types;
  }
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
};

TEST(GateCuda, ACapturedCallIsOneKernelNode) {
  for (const auto mode :
       {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed}) {
    for (const bool warm : {false, true}) {
      const Context context = make_context(0);
      const Stream stream;
      OnDevice call;
      if (warm) {
        ASSERT_EQ(bitexact_gate_warm_up(context.get(), nullptr, &call.params, stream), BITEXACT_STATUS_OK);
      }
      Graph g;
      ASSERT_CUDA(cudaStreamBeginCapture(stream, mode));
      EXPECT_EQ(bitexact_fused_silu_mul(context.get(), &call.params, stream), BITEXACT_STATUS_OK);
      ASSERT_CUDA(cudaStreamEndCapture(stream, &g.graph));
      EXPECT_TRUE(call.untouched());
      EXPECT_EQ(g.nodes(), std::vector<cudaGraphNodeType>{cudaGraphNodeTypeKernel});
      ASSERT_CUDA(cudaGraphInstantiate(&g.exec, g.graph, 0));
      ASSERT_CUDA(cudaGraphLaunch(g.exec, stream));
      EXPECT_TRUE(call.right());
      const auto story = only_story(context.get());
      EXPECT_EQ(story.state, warm ? BITEXACT_STATE_ACCEPTED : BITEXACT_STATE_UNDECIDED);
      EXPECT_EQ(story.fused_calls, warm ? 1 : 0);
      EXPECT_EQ(story.reference_calls, warm ? 0 : 1);
    }
  }
}

// Contexts are made and kernels decided in one thread while another captures in the strictest mode.
TEST(GateCuda, ACaptureElsewhereIsLeftAlone) {
  const Context context = make_context(0);
  const Stream capturing, stream;
  OnDevice captured, other;
  ASSERT_EQ(bitexact_gate_warm_up(context.get(), nullptr, &captured.params, capturing), BITEXACT_STATUS_OK);
  Graph g;
  ASSERT_CUDA(cudaStreamBeginCapture(capturing, cudaStreamCaptureModeGlobal));
  std::thread([&] {
    const Context fresh = make_context(0);
    EXPECT_EQ(bitexact_fused_silu_mul(fresh.get(), &other.params, stream), BITEXACT_STATUS_OK)
        << bitexact_last_error();
    EXPECT_EQ(only_story(fresh.get()).state, BITEXACT_STATE_ACCEPTED);
    bitexact_context_info info = BITEXACT_CONTEXT_INFO_INIT;
    EXPECT_EQ(bitexact_context_get_info(fresh.get(), &info), BITEXACT_STATUS_OK) << bitexact_last_error();
  }).join();
  EXPECT_EQ(bitexact_fused_silu_mul(context.get(), &captured.params, capturing), BITEXACT_STATUS_OK);
  ASSERT_CUDA(cudaStreamEndCapture(capturing, &g.graph));
  ASSERT_CUDA(cudaGraphInstantiate(&g.exec, g.graph, 0));
  ASSERT_CUDA(cudaGraphLaunch(g.exec, capturing));
  EXPECT_TRUE(captured.right());
  EXPECT_TRUE(other.right());
}

// A graph may outlive the context it was captured with.
TEST(GateCuda, AGraphOutlivesItsContext) {
  Context context = make_context(0, BITEXACT_POLICY_TRUST);
  const Stream stream;
  OnDevice call;
  Graph g;
  ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  EXPECT_EQ(bitexact_fused_silu_mul(context.get(), &call.params, stream), BITEXACT_STATUS_OK);
  ASSERT_CUDA(cudaStreamEndCapture(stream, &g.graph));
  context.reset();
  ASSERT_CUDA(cudaGraphInstantiate(&g.exec, g.graph, 0));
  ASSERT_CUDA(cudaGraphLaunch(g.exec, stream));
  EXPECT_TRUE(call.right());
}

// -------------------------------------------------------------------------------- streams --

TEST(GateCuda, SpecialStreamHandlesPassThrough) {
  for (uintptr_t handle : {uintptr_t{0}, uintptr_t{1}, uintptr_t{2}}) {
    const Context context = make_context(0);
    for (uint64_t seed = 1; seed < 3; ++seed) {
      OnDevice call(plain, seed);
      EXPECT_EQ(
          bitexact_fused_silu_mul(context.get(), &call.params, reinterpret_cast<bitexact_stream>(handle)),
          BITEXACT_STATUS_OK)
          << bitexact_last_error();
      EXPECT_TRUE(call.right());
    }
  }
}

// Calls follow their stream: an accepted kernel waits for the input that a slow producer still writes.
TEST(GateCuda, CallsAreInStreamOrder) {
  const Context context = make_context(0);
  const Stream stream, other;
  OnDevice first, second(plain, 2), third(plain, 3);
  ASSERT_EQ(bitexact_fused_silu_mul(context.get(), &first.params, stream), BITEXACT_STATUS_OK);
  int* go = nullptr;
  ASSERT_CUDA(cudaHostAlloc(reinterpret_cast<void**>(&go), sizeof(int), cudaHostAllocMapped));
  *go = 0;
  std::vector<uint8_t> inputs = second.c.arena.bytes();
  const DeviceMemory source(inputs);
  ASSERT_CUDA(cudaMemset(second.memory.as(), 0x11, inputs.size()));
  ASSERT_CUDA(launch_wait(go, stream));
  ASSERT_CUDA(
      cudaMemcpyAsync(second.memory.as(), source.as(), inputs.size(), cudaMemcpyDeviceToDevice, stream));
  EXPECT_EQ(bitexact_fused_silu_mul(context.get(), &second.params, stream), BITEXACT_STATUS_OK);
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);  // the call came back before its stream
  // A busy stream does not hold up a call on another one, not even a first use.
  const Context fresh = make_context(0);
  EXPECT_EQ(bitexact_fused_silu_mul(fresh.get(), &third.params, other), BITEXACT_STATUS_OK);
  EXPECT_EQ(cudaStreamSynchronize(other), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
  *go = 1;
  EXPECT_TRUE(second.right());
  EXPECT_TRUE(third.right());
  ASSERT_CUDA(cudaFreeHost(go));
}

// ---------------------------------------------------------------------- the caller's state --

TEST(GateCuda, TheCallersErrorStateIsLeftAlone) {
  const Context context = make_context(0);
  const Stream stream;
  // In this test the runtime is one with the library's, so its slot shows what the library leaves behind.
  OnDevice call;
  EXPECT_EQ(bitexact_fused_silu_mul(context.get(), &call.params, stream), BITEXACT_STATUS_OK);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
  bitexact_context_options options = BITEXACT_CONTEXT_OPTIONS_INIT;
  options.device = 99;
  bitexact_context* none = nullptr;
  EXPECT_EQ(bitexact_context_create(&options, &none), BITEXACT_STATUS_INVALID_DEVICE);
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
}

TEST(GateCuda, TheCurrentContextIsRestored) {
  const Context context = make_context(0);
  CUcontext (*current)() = nullptr;
  static CUresult (*get_current)(CUcontext*) = nullptr;
  cudaDriverEntryPointQueryResult found;
  ASSERT_CUDA(cudaGetDriverEntryPointByVersion("cuCtxGetCurrent", reinterpret_cast<void**>(&get_current),
                                               12000, cudaEnableDefault, &found));
  current = [] {
    CUcontext c = nullptr;
    get_current(&c);
    return c;
  };
  OnDevice call, again(plain, 2);
  std::thread([&] {  // a thread with no context: none afterwards
    ASSERT_EQ(current(), nullptr);
    EXPECT_EQ(bitexact_fused_silu_mul(context.get(), &call.params, nullptr), BITEXACT_STATUS_OK);
    EXPECT_EQ(current(), nullptr);
    EXPECT_EQ(bitexact_fused_silu_mul(context.get(), &again.params, nullptr), BITEXACT_STATUS_OK);
    EXPECT_EQ(current(), nullptr);
    const Context fresh = make_context(0);
    EXPECT_EQ(current(), nullptr);
  })
      .join();
  EXPECT_TRUE(call.right());
  EXPECT_TRUE(again.right());
}

TEST(GateCuda, OneCheckForManyThreads) {
  const Context context = make_context(0);
  constexpr int threads_count = 32;
  std::atomic<int> ready{0}, wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < threads_count; ++i) {
    threads.emplace_back([&, i] {
      const Stream stream;
      OnDevice call(plain, static_cast<uint64_t>(i));
      ++ready;
      while (ready < threads_count) std::this_thread::yield();
      for (int k = 0; k < 20; ++k) {
        if (bitexact_fused_silu_mul(context.get(), &call.params, stream) != 0) ++wrong;
      }
      if (!call.right()) ++wrong;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  const auto story = only_story(context.get());
  EXPECT_EQ(story.checks, 2);
  EXPECT_EQ(story.fused_calls + story.reference_calls, threads_count * 20);
}

TEST(GateCuda, ManyContextsLeaveMemoryFlat) {
  const Stream stream;
  OnDevice call;
  auto round = [&] {
    const Context context = make_context(0);
    EXPECT_EQ(bitexact_fused_silu_mul(context.get(), &call.params, stream), BITEXACT_STATUS_OK);
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  };
  round();
  size_t before = 0, after = 0, total = 0;
  ASSERT_CUDA(cudaMemGetInfo(&before, &total));
  for (int i = 0; i < 100; ++i) round();
  ASSERT_CUDA(cudaMemGetInfo(&after, &total));
  EXPECT_EQ(before, after);
}

}  // namespace
