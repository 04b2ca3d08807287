// Every golden case that the host can run, through the shared library as it ships: fused and reference kernels,
// without the gate in between. For libraries built with other flags, found through LD_LIBRARY_PATH.
#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "bitexact.h"
#include "golden.h"

namespace {

struct Destroy {
  void operator()(bitexact_context* context) const { bitexact_context_destroy(context); }
};
using Context = std::unique_ptr<bitexact_context, Destroy>;

void check(int32_t status) {
  if (status != BITEXACT_STATUS_OK) throw std::runtime_error(bitexact_last_error());
}

Context host_context(int32_t policy) {
  bitexact_context_options options = BITEXACT_CONTEXT_OPTIONS_INIT;
  options.device = BITEXACT_DEVICE_HOST;
  options.gate_policy = policy;
  bitexact_context* context = nullptr;
  check(bitexact_context_create(&options, &context));
  return Context(context);
}

// How many of the cases were wrong.
int run_all(const std::vector<bitexact_golden::Case>& cases, int32_t policy, const char* kernels) {
  const Context context = host_context(policy);
  bitexact_golden::Backend backend;
  backend.rope = [&](const bitexact_rope_params& p) {
    check(bitexact_fused_rope(context.get(), &p, nullptr));
  };
  backend.silu_mul = [&](const bitexact_silu_mul_params& p) {
    check(bitexact_fused_silu_mul(context.get(), &p, nullptr));
  };
  int run = 0, wrong = 0;
  for (const bitexact_golden::Case& c : cases) {
    if (c.needs_cuda_expf()) continue;
    ++run;
    const std::string difference = c.run(backend);
    if (difference.empty()) continue;
    ++wrong;
    std::printf("%s: %s", c.name.c_str(), difference.c_str());
  }
  std::printf("%s kernels: %d cases, %d wrong\n", kernels, run, wrong);
  return run == 0 ? 1 : wrong;
}

}  // namespace

int main() {
  try {
    const auto cases = bitexact_golden::load_cases(bitexact_golden::golden_directory());
    const int wrong = run_all(cases, BITEXACT_POLICY_TRUST, "fused") +
                      run_all(cases, BITEXACT_POLICY_REFERENCE, "reference");
    return wrong == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    std::printf("golden_client: %s\n", error.what());
    return 1;
  }
}
