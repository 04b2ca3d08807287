// The main job on real tensors: RoPE and SiLU-mul of one layer, as a transformers model ran them, through the
// public C ABI, on the host and on every CUDA device; every output bit is held against PyTorch's own.
#include <CLI/CLI.hpp>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "bitexact.h"
#include "demo_device.h"
#include "demo_run.h"
#include "golden.h"

namespace bitexact_demo {
namespace {

using bitexact_golden::Case;

constexpr int64_t many = 128;  // copies of the layer's tensors, so that the time is not all overhead

struct Destroy {
  void operator()(bitexact_context* context) const { bitexact_context_destroy(context); }
};
using Context = std::unique_ptr<bitexact_context, Destroy>;

int32_t make_context(int32_t device, Context& context) {
  bitexact_context_options options = BITEXACT_CONTEXT_OPTIONS_INIT;
  options.device = device;
  bitexact_context* made = nullptr;
  const int32_t status = bitexact_context_create(&options, &made);
  context.reset(made);
  return status;
}

std::string title_of(bitexact_context* context) {
  bitexact_context_info info = BITEXACT_CONTEXT_INFO_INIT;
  check(bitexact_context_get_info(context, &info));
  if (info.device == BITEXACT_DEVICE_HOST) return "Host";
  return "CUDA device " + std::to_string(info.device) + ": " + info.device_name;
}

// ---------------------------------------------------------------------------------- report --

void print(const std::string& title, const std::vector<Result>& results) {
  std::printf("\n%s\n  %-14s %-18s %-8s %11s %8s %8s  %s\n", title.c_str(), "operation", "shape", "dtype",
              "time", "GB/s", "bits off", "gate's verdict; kernel");
  for (const Result& r : results) {
    std::printf("  %-14s %-18s %-8s %8.1f us %8.1f %8" PRIu64 "  %s; %s\n",
                r.is_rope ? "fused_rope" : "fused_silu_mul", r.shape.c_str(), "bfloat16", r.seconds * 1e6,
                r.seconds > 0 ? r.bytes / r.seconds * 1e-9 : 0.0, r.differing_bits, r.verdict.c_str(),
                r.kernel.c_str());
    if (!r.problem.empty()) std::printf("  FAILED: %s", r.problem.c_str());
  }
  for (const Result& r : {results[0], results[1]}) {
    std::printf("  first 8 values of %s:", r.is_rope ? "q after fused_rope" : "fused_silu_mul");
    for (const uint16_t bits : r.first) {
      const uint32_t word = uint32_t{bits} << 16;
      float value;
      std::memcpy(&value, &word, sizeof(value));
      std::printf(" %04x=%.4g", bits, static_cast<double>(value));
    }
    std::printf("\n");
  }
}

struct Total {
  uint64_t values = 0, differing_bits = 0;
  int problems = 0, cuda_devices = 0;
};

void run_all(int32_t device_number, const Device& device, const std::vector<Case>& cases, Total& total) {
  std::vector<Result> results;
  std::string title;
  for (const Case& c : cases) {
    Context context;
    check(make_context(device_number, context));
    title = title_of(context.get());
    results.push_back(run(c, device, context.get()));
    total.values += results.back().values;
    total.differing_bits += results.back().differing_bits;
    total.problems += results.back().problem.empty() ? 0 : 1;
  }
  print(title, results);
}

// Every CUDA device, or a line that says why there is none.
void run_cuda(const std::vector<Case>& cases, Total& total) {
  for (int32_t number = 0;; ++number) {
    Context context;
    const int32_t status = make_context(number, context);
    if (status == BITEXACT_STATUS_INVALID_DEVICE && number > 0) return;  // that was the last one
    if (status == BITEXACT_STATUS_NO_CUDA_BACKEND || status == BITEXACT_STATUS_NO_DRIVER ||
        status == BITEXACT_STATUS_NO_DEVICE) {
      std::printf("\nSkipped: CUDA devices. %s\n", bitexact_status_string(status));
      return;
    }
    check(status);
    run_all(number, cuda_device(number), cases, total);
    ++total.cuda_devices;
  }
}

int demo(const std::string& directory) {
  std::vector<Case> cases;
  for (const Case& c : bitexact_golden::load_cases(directory)) {
    if (c.name.rfind("demo/", 0) == 0) cases.push_back(c);
  }
  if (cases.size() != 2) throw std::runtime_error(directory + " holds no capture of a model");
  for (size_t i = 0; i < 2; ++i) cases.push_back(repeated(cases[i], many));
  const auto facts = bitexact_golden::captured_with(directory);
  const std::string origin = "PyTorch " + facts.at("torch") + " eager on " + facts.at("device");
  std::printf("%s\nTensors of one layer of %s, captured from %s.\n", bitexact_build_info(),
              cases[0].chain.c_str(), origin.c_str());

  Total total;
  run_all(BITEXACT_DEVICE_HOST, host_device(), cases, total);
  run_cuda(cases, total);

  const std::string where =
      "the host" +
      (total.cuda_devices > 0 ? " and " + std::to_string(total.cuda_devices) + " CUDA device(s)" : "");
  if (total.differing_bits == 0 && total.problems == 0) {
    std::printf("\nAll %" PRIu64 " output values, computed on %s, equal those of %s bit for bit.\n",
                total.values, where.c_str(), origin.c_str());
    return 0;
  }
  std::printf("\nFAILED: %" PRIu64 " bits of %" PRIu64 " output values differ from %s; %d runs went wrong.\n",
              total.differing_bits, total.values, origin.c_str(), total.problems);
  return 1;
}

}  // namespace
}  // namespace bitexact_demo

int main(int argc, char** argv) {
  CLI::App app("Both operations on tensors captured from a model, compared bit for bit");
  std::string directory = bitexact_golden::golden_directory();
  app.add_option("--data", directory, "folder with a capture");
  CLI11_PARSE(app, argc, argv);
  try {
    return bitexact_demo::demo(directory);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "demo: %s\n", error.what());
    return 1;
  }
}
