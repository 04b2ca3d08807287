// Host cost of an accepted call against a bare launch of the very same kernel, and what a context costs.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "bitexact.h"
#include "inputs.h"
#include "plain.h"
#include "report.h"

namespace {

using Clock = std::chrono::steady_clock;

// A million calls each, in batches that never fill the launch queue, one work after the other.
std::vector<bench::Measurement> time_calls(const std::vector<bench::Work>& works) {
  constexpr int batch = 250, rounds = 4000;
  std::vector<std::vector<double>> times(works.size());
  for (int round = -10; round < rounds; ++round) {  // the first ones warm up
    for (size_t w = 0; w < works.size(); ++w) {
      const auto begin = Clock::now();
      for (int i = 0; i < batch; ++i) works[w].enqueue(0);
      const double us = std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / batch;
      bench::check_cuda(cudaStreamSynchronize(bench::stream()), works[w].name);
      if (round >= 0) times[w].push_back(us);
    }
  }
  std::vector<bench::Measurement> result;
  for (size_t w = 0; w < works.size(); ++w) {
    std::sort(times[w].begin(), times[w].end());
    const size_t n = times[w].size();
    result.push_back({works[w].name, times[w][n / 2], times[w][n / 10], times[w][n - 1 - n / 10]});
  }
  return result;
}

// The kernel that a call launches, with its arguments, as a graph captured them: to be launched with nothing around it.
class BareLaunch {
 public:
  explicit BareLaunch(const std::function<void()>& call) {
    bench::check_cuda(cudaStreamBeginCapture(bench::stream(), cudaStreamCaptureModeThreadLocal), "capturing");
    call();
    bench::check_cuda(cudaStreamEndCapture(bench::stream(), &graph_), "capturing");
    cudaGraphNode_t node;
    size_t nodes = 1;
    bench::check_cuda(cudaGraphGetNodes(graph_, &node, &nodes), "reading a graph");
    bench::check_cuda(cudaGraphKernelNodeGetParams(node, &kernel_), "reading a graph");
  }
  ~BareLaunch() { cudaGraphDestroy(graph_); }
  BareLaunch(const BareLaunch&) = delete;
  BareLaunch& operator=(const BareLaunch&) = delete;
  void operator()() const {
    bench::check_cuda(cudaLaunchKernel(kernel_.func, kernel_.gridDim, kernel_.blockDim, kernel_.kernelParams,
                                       kernel_.sharedMemBytes, bench::stream()),
                      "launching");
  }

 private:
  cudaGraph_t graph_ = nullptr;
  cudaKernelNodeParams kernel_ = {};
};

struct Calls {
  bitexact_context* context;
  const bench::Memory& memory;
  std::vector<bench::Measurement> silu_mul() const;
  std::vector<bench::Measurement> rope(bool packed) const;
};

std::vector<bench::Measurement> Calls::silu_mul() const {
  bitexact_silu_mul_params p = BITEXACT_SILU_MUL_PARAMS_INIT;
  p.dtype = BITEXACT_DTYPE_BFLOAT16;
  p.batches = 1;
  p.rows = 16;
  p.cols = 128;
  p.gate = memory.data();
  p.up = memory.data() + 8192;
  p.out = memory.data() + 16384;
  p.gate_row_stride = p.up_row_stride = p.out_row_stride = 128;
  auto call = [&] { bench::check_status(bitexact_fused_silu_mul(context, &p, bench::stream()), "calling"); };
  call();  // the first use
  const BareLaunch bare(call);
  return time_calls({{"plain launch", [&](int) { bare(); }},
                     {"bitexact", [&](int) { call(); }},
                     {"empty kernel", [](int) { bench::empty_kernel(); }},
                     {"can_use", [&](int) {
                        bench::check_status(bitexact_fused_silu_mul_can_use(context, &p), "asking");
                      }}});
}

std::vector<bench::Measurement> Calls::rope(bool packed) const {
  bitexact_rope_params p = BITEXACT_ROPE_PARAMS_INIT;
  p.dtype = BITEXACT_DTYPE_BFLOAT16;
  p.batches = 1;
  p.tokens = p.table_rows = 4;
  p.q_heads = 8;
  p.k_heads = 4;
  p.head_dim = p.rotary_dim = p.table_width = 128;
  p.q_in = p.q_out = memory.data();
  p.k_in = p.k_out = memory.data() + (packed ? 2048 : 65536);
  p.q_in_token_stride = p.q_out_token_stride = packed ? 2048 : 1024;
  p.k_in_token_stride = p.k_out_token_stride = packed ? 2048 : 512;
  p.q_in_head_stride = p.q_out_head_stride = p.k_in_head_stride = p.k_out_head_stride = 128;
  p.cos = memory.data() + 131072;
  p.sin = memory.data() + 196608;
  p.cos_token_stride = p.sin_token_stride = 128;
  p.cos_element_stride = p.sin_element_stride = 1;
  bench::fill_rotations({memory.data() + 131072, memory.data() + 196608, 4, 128, p.dtype, true, false});
  auto call = [&] { bench::check_status(bitexact_fused_rope(context, &p, bench::stream()), "calling"); };
  call();  // the first use
  const BareLaunch bare(call);
  return time_calls({{"plain launch", [&](int) { bare(); }}, {"bitexact", [&](int) { call(); }}});
}

// Milliseconds and KiB, of the first context on the device and of a second one beside it.
std::vector<bench::Measurement> contexts() {
  std::vector<bench::Measurement> result;
  bitexact_context* made[2] = {};
  size_t before = 0, after = 0, total = 0;
  bench::check_cuda(cudaMemGetInfo(&before, &total), "reading free memory");
  for (int i = 0; i < 2; ++i) {
    const auto begin = Clock::now();
    bench::check_status(bitexact_context_create(nullptr, &made[i]), "making a context");
    const double us = std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
    result.push_back({i == 0 ? "first context" : "second context", us, us, us});
  }
  bench::check_cuda(cudaMemGetInfo(&after, &total), "reading free memory");
  const double kib = static_cast<double>(before - after) / 1024;
  result.push_back({"KiB of device memory", kib, kib, kib});
  for (bitexact_context* context : made) bitexact_context_destroy(context);
  return result;
}

}  // namespace

int main(int argc, char** argv) try {
  bench::Report report(argc, argv, "host cost of a call");
  bench::check_cuda(cudaFree(nullptr), "opening the device");
  bench::stream();
  report.shape("contexts", 0, [](bench::Rotation&) { return contexts(); });
  bench::Context context;
  const bench::Memory memory(1 << 20);
  bench::fill_activations(memory.data(), 1 << 20, BITEXACT_DTYPE_BFLOAT16);
  const Calls calls{context.get(), memory};
  report.shape("fused_silu_mul 16 x 128 bfloat16", 0, [&](bench::Rotation&) { return calls.silu_mul(); });
  for (const bool packed : {false, true}) {
    report.shape(
        std::string("fused_rope 4 x (8,4) x 128 bfloat16 in place") + (packed ? ", packed with v" : ""), 0,
        [&](bench::Rotation&) { return calls.rope(packed); });
  }
  return report.exit_code();
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
