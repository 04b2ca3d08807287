// The function table for callers that dlopen, and the promise that its members never move.
#include <cstddef>

#include "bitexact.h"
#include "status.h"

namespace {

constexpr bitexact_api make_table(uint32_t api_version) {
  return {sizeof(bitexact_api),
          api_version,
          bitexact_version,
          bitexact_build_info,
          bitexact_status_string,
          bitexact_last_error,
          bitexact_last_cuda_error,
          bitexact_context_options_init,
          bitexact_context_info_init,
          bitexact_silu_mul_params_init,
          bitexact_silu_mul_reference_init,
          bitexact_rope_params_init,
          bitexact_rope_reference_init,
          bitexact_gate_report_init,
          bitexact_certify_params_init,
          bitexact_certify_report_init,
          bitexact_context_create,
          bitexact_context_destroy,
          bitexact_context_set_log,
          bitexact_context_get_info,
          bitexact_fused_silu_mul,
          bitexact_fused_silu_mul_can_use,
          bitexact_fused_silu_mul_verify,
          bitexact_fused_rope,
          bitexact_fused_rope_can_use,
          bitexact_fused_rope_verify,
          bitexact_gate_warm_up,
          bitexact_gate_count,
          bitexact_gate_get,
          bitexact_gate_reset,
          bitexact_certify};
}

// One table for each version from 1 on: what a caller of that version reads.
constexpr bitexact_api tables[BITEXACT_API_VERSION] = {make_table(1)};

// The last member of each version stays where it is.
static_assert(offsetof(bitexact_api, certify) == 8 + 8 * 28, "members of API version 1 cannot move");

}  // namespace

extern "C" int32_t bitexact_get_api(uint32_t api_version, const bitexact_api** out) noexcept {
  bitexact::set_function("bitexact_get_api");
  if (out == nullptr) {
    return bitexact::fail(BITEXACT_STATUS_NULL_POINTER, "out is null; a const bitexact_api** is required");
  }
  *out = nullptr;
  if (api_version == 0 || api_version > BITEXACT_API_VERSION) {
    return bitexact::fail(BITEXACT_STATUS_API_VERSION,
                          "api_version is %u; accepted: 1 to %d, the version of this library", api_version,
                          BITEXACT_API_VERSION);
  }
  *out = &tables[api_version - 1];
  return BITEXACT_STATUS_OK;
}
