// Host cost of an accepted call against a bare launch of the very same kernel, and what a context costs.
#include <algorithm>
#include <chrono>

#include "bitexact.h"
#include "check.h"
#include "fused_rope.h"
#include "fused_silu_mul.h"
#include "harness.h"

namespace {

using Clock = std::chrono::steady_clock;

// Times batches that never fill the launch queue, one work after the other; nanoseconds a call, median.
std::vector<bench::Measurement> time_calls(const std::vector<bench::Work>& works) {
  constexpr int batch = 200, rounds = 301;
  std::vector<std::vector<double>> times(works.size());
  for (int round = 0; round < rounds; ++round) {
    for (size_t w = 0; w < works.size(); ++w) {
      const auto begin = Clock::now();
      for (int i = 0; i < batch; ++i) works[w].enqueue(0);
      const double us = std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / batch;
      bench::check_cuda(cudaStreamSynchronize(bench::stream()), works[w].name.c_str());
      if (round > 0) times[w].push_back(us);
    }
  }
  std::vector<bench::Measurement> result;
  for (size_t w = 0; w < works.size(); ++w) {
    std::sort(times[w].begin(), times[w].end());
    const size_t n = times[w].size();
    result.push_back({works[w].name, times[w][n / 2], times[w][n / 10], times[w][n * 9 / 10]});
  }
  return result;
}

double create_ms(bitexact_context** context) {
  const auto begin = Clock::now();
  bench::check_status(bitexact_context_create(nullptr, context), "making a context");
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

}  // namespace

int main(int argc, char** argv) {
  bench::check_cuda(cudaFree(nullptr), "opening the device");
  bench::stream();
  size_t before = 0, after = 0, total = 0;
  bench::check_cuda(cudaMemGetInfo(&before, &total), "reading free memory");
  bitexact_context *context = nullptr, *second = nullptr;
  const double first_ms = create_ms(&context), second_ms = create_ms(&second);
  bench::check_cuda(cudaMemGetInfo(&after, &total), "reading free memory");

  bench::Report report(argc, argv, "host cost of a call");
  report.add({"first context on the device", 0, "", {{"create", first_ms * 1000, 0, 0}}});
  report.add({"second context", 0, "", {{"create", second_ms * 1000, 0, 0}}});
  report.add({"device memory of both contexts, in KiB",
              0,
              "",
              {{"create", static_cast<double>(before - after) / 1024, 0, 0}}});

  char* const memory = static_cast<char*>(bench::activations(1 << 20, BITEXACT_DTYPE_BFLOAT16));
  bitexact_silu_mul_params s = BITEXACT_SILU_MUL_PARAMS_INIT;
  s.dtype = BITEXACT_DTYPE_BFLOAT16;
  s.batches = 1;
  s.rows = 16;
  s.cols = 128;
  s.gate = memory;
  s.up = memory + 8192;
  s.out = memory + 16384;
  s.gate_row_stride = s.up_row_stride = s.out_row_stride = 128;
  bench::check_status(bitexact_fused_silu_mul(context, &s, bench::stream()), "first use");
  bitexact::SiluMulArgs silu_args;
  bool empty = false;
  bench::check_status(bitexact::check(&s, silu_args, empty), "checking");
  report.add(
      {"fused_silu_mul 16 x 128 bfloat16", 0, "bare launch",
       time_calls({{"bare launch",
                    [&](int) {
                      bench::check_cuda(bitexact::launch_fused_silu_mul(
                                            silu_args, bitexact::SiluMulVariant::vec16, bench::stream()),
                                        "launching");
                    }},
                   {"bitexact",
                    [&](int) {
                      bench::check_status(bitexact_fused_silu_mul(context, &s, bench::stream()), "calling");
                    }},
                   {"empty kernel", [](int) { bench::empty_kernel(); }},
                   {"can_use", [&](int) {
                      bench::check_status(bitexact_fused_silu_mul_can_use(context, &s), "asking");
                    }}})});

  bitexact_rope_params r = BITEXACT_ROPE_PARAMS_INIT;
  r.dtype = BITEXACT_DTYPE_BFLOAT16;
  r.batches = 1;
  r.tokens = r.table_rows = 4;
  r.q_heads = 8;
  r.k_heads = 4;
  r.head_dim = r.rotary_dim = r.table_width = 128;
  r.q_in = r.q_out = memory;
  r.k_in = r.k_out = memory + 65536;
  r.q_in_token_stride = r.q_out_token_stride = 1024;
  r.k_in_token_stride = r.k_out_token_stride = 512;
  r.q_in_head_stride = r.q_out_head_stride = r.k_in_head_stride = r.k_out_head_stride = 128;
  r.cos = memory + 131072;
  r.sin = memory + 196608;
  r.cos_token_stride = r.sin_token_stride = 128;
  r.cos_element_stride = r.sin_element_stride = 1;
  bench::check_status(bitexact_fused_rope(context, &r, bench::stream()), "first use");
  bitexact::RopeArgs rope_args;
  bench::check_status(bitexact::check(&r, rope_args, empty), "checking");
  report.add(
      {"fused_rope 4 x (8,4) x 128 bfloat16 in place", 0, "bare launch",
       time_calls({{"bare launch",
                    [&](int) {
                      bench::check_cuda(bitexact::launch_fused_rope(
                                            rope_args, bitexact::RopeVariant::vec16_table, bench::stream()),
                                        "launching");
                    }},
                   {"bitexact", [&](int) {
                      bench::check_status(bitexact_fused_rope(context, &r, bench::stream()), "calling");
                    }}})});
  bench::check_cuda(cudaFree(memory), "freeing");
  bitexact_context_destroy(second);
  bitexact_context_destroy(context);
  return 0;
}
