#include "context.h"

#include <cstdlib>
#include <cstring>

#include "check_common.h"
#include "cuda_backend.h"
#include "host/host_backend.h"
#include "kernel_table.h"
#include "params.h"
#include "variants.h"

namespace bitexact {
namespace {

constexpr const char* policy_names[] = {"verify", "reference", "trust", "audit", "strict"};

int32_t apply_environment(int32_t& policy) {
  const char* value = std::getenv("BITEXACT_GATE");
  if (value == nullptr || *value == '\0') return BITEXACT_STATUS_OK;
  for (int32_t i = 0; i <= BITEXACT_POLICY_STRICT; ++i) {
    if (std::strcmp(value, policy_names[i]) == 0) {
      policy = i;
      return BITEXACT_STATUS_OK;
    }
  }
  return fail(
      BITEXACT_STATUS_ENVIRONMENT,
      "the environment variable BITEXACT_GATE is \"%s\"; accepted: verify, reference, trust, audit, strict",
      value);
}

// Without checks nothing else loads the kernels before their first use, which may be in a capture; fast ones are
// not used. A kernel has code of its own for full tables, and for heads that lanes pack.
int32_t load_all(Backend& backend) {
  const Backend::Scope scope(backend);
  BITEXACT_TRY(scope.status());
  for (int k = 0; k < kernel_count; ++k) {
    if (successor_of(k) != k) continue;
    if (!is_rope(k)) {
      BITEXACT_TRY(backend.load(silu_mul_kernel(k).args, silu_mul_kernel(k).variant));
      continue;
    }
    RopeKernel kernel = rope_kernel(k);
    for (const bool full : {false, true}) {
      for (const int64_t head_dim : {128, 96}) {
        kernel.args.full_table = full;
        kernel.args.head_dim = kernel.args.rotary_dim = head_dim;
        BITEXACT_TRY(backend.load(kernel.args, kernel.variant));
      }
    }
  }
  return BITEXACT_STATUS_OK;
}

}  // namespace

int32_t create_context(const bitexact_context_options* options, bitexact_context** out) {
  if (out == nullptr)
    return fail(BITEXACT_STATUS_NULL_POINTER, "out is null; a bitexact_context** is required");
  *out = nullptr;
  bitexact_context_options o;
  initialise(&o);
  if (options != nullptr) BITEXACT_TRY(copy_in(options, "options", o));
  BITEXACT_TRY(check_flags(o.flags, 0));
  BITEXACT_TRY(check_zero(o.reserved, "reserved"));
  BITEXACT_TRY(check_range(o.gate_policy, BITEXACT_POLICY_STRICT, "gate_policy"));
  BITEXACT_TRY(check_range(o.reference_mode, BITEXACT_REFERENCE_CALLER, "reference_mode"));
  if (o.device < BITEXACT_DEVICE_HOST) {
    return fail(BITEXACT_STATUS_INVALID_DEVICE, "device is %d; accepted: a CUDA ordinal, or -1 for the host",
                o.device);
  }
  BITEXACT_TRY(apply_environment(o.gate_policy));
  std::unique_ptr<Backend> backend;
  BITEXACT_TRY(o.device == BITEXACT_DEVICE_HOST ? open_host_backend(backend)
                                                : open_cuda_backend(o.device, backend));
  if (o.gate_policy == BITEXACT_POLICY_TRUST) BITEXACT_TRY(load_all(*backend));
  *out = new bitexact_context(std::move(backend), GateOptions{o.gate_policy, o.reference_mode});
  return BITEXACT_STATUS_OK;
}

}  // namespace bitexact
