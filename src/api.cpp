// Every exported function: name itself, check, call, catch. No other file knows the C boundary.
#include <exception>
#include <new>

#include "bitexact.h"
#include "build_info.h"
#include "check.h"
#include "check_common.h"
#include "context.h"
#include "cuda_backend.h"
#include "params.h"
#include "variants.h"

using namespace bitexact;

namespace {

template <class Body>
int32_t guarded(const char* function, Body&& body) noexcept {
  set_function(function);
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return fail(BITEXACT_STATUS_OUT_OF_MEMORY, "host memory is exhausted");
  } catch (const std::exception& error) {
    return fail(BITEXACT_STATUS_INTERNAL, "unexpected exception: %s", error.what());
  } catch (...) {
    return fail(BITEXACT_STATUS_INTERNAL, "unexpected exception");
  }
}

int32_t check_context(const bitexact_context* context) {
  if (context != nullptr) return BITEXACT_STATUS_OK;
  return fail(BITEXACT_STATUS_NULL_POINTER, "context is null; accepted: one from bitexact_context_create");
}

int32_t supports(Backend& backend, const SiluMulArgs& args) { return backend.supports(args); }
int32_t supports(Backend&, const RopeArgs&) { return BITEXACT_STATUS_OK; }

// The call counts positions outside its table where the backend keeps that count.
void count_positions(Backend&, SiluMulArgs&) {}
void count_positions(Backend& backend, RopeArgs& args) { args.position_errors = backend.position_errors(); }

template <class Args, class Params>
int32_t run(bitexact_context* context, const Params* params, bitexact_stream stream) {
  BITEXACT_TRY(check_context(context));
  Args args;
  bool empty = false;
  BITEXACT_TRY(check(params, args, empty));
  if (empty) return BITEXACT_STATUS_OK;
  BITEXACT_TRY(supports(*context->backend, args));
  count_positions(*context->backend, args);
  return context->gate.run(args, stream);
}

template <class Args, class Params>
int32_t can_use(bitexact_context* context, const Params* params) {
  Args args;
  bool empty = false;
  BITEXACT_TRY(check(params, args, empty));
  if (empty || context == nullptr) return BITEXACT_STATUS_OK;
  BITEXACT_TRY(supports(*context->backend, args));
  return context->gate.can_use(args);
}

template <class Args, class Params, class Reference>
int32_t verify(bitexact_context* context, const Params* params, const Reference* reference,
               bitexact_stream stream, int32_t* verdict) {
  BITEXACT_TRY(check_context(context));
  Args args, expected;
  bool empty = false;
  BITEXACT_TRY(check(params, args, empty));
  if (empty) {
    if (verdict != nullptr) *verdict = BITEXACT_STATE_UNDECIDED;
    return BITEXACT_STATUS_OK;
  }
  BITEXACT_TRY(supports(*context->backend, args));
  BITEXACT_TRY(check(reference, params, expected));
  return context->gate.verify(args, expected, stream, verdict);
}

template <class Args, class Params>
int32_t warm_up(bitexact_context* context, const Params* params, bitexact_stream stream) {
  Args args;
  bool empty = false;
  BITEXACT_TRY(check(params, args, empty));
  if (empty) return BITEXACT_STATUS_OK;
  BITEXACT_TRY(supports(*context->backend, args));
  return context->gate.warm_up(kernel_of(args, choose_variant(args)), stream);
}

int32_t warm_up_all(bitexact_context* context, bitexact_stream stream) {
  for (int kernel = 0; kernel < kernel_count; ++kernel) {
    // What the device does not support cannot be called, and so needs no verdict.
    if (!is_rope(kernel) && context->backend->supports(silu_mul_kernel(kernel).args) != BITEXACT_STATUS_OK)
      continue;
    BITEXACT_TRY(context->gate.warm_up(kernel, stream));
  }
  return BITEXACT_STATUS_OK;
}

}  // namespace

extern "C" {

uint32_t bitexact_version(void) noexcept { return BITEXACT_VERSION; }
const char* bitexact_build_info(void) noexcept { return build_info; }
const char* bitexact_status_string(int32_t status) noexcept { return status_string(status); }
const char* bitexact_last_error(void) noexcept { return last_error(); }
int32_t bitexact_last_cuda_error(void) noexcept { return last_cuda_error(); }

void bitexact_context_options_init(bitexact_context_options* options) noexcept { initialise(options); }
void bitexact_context_info_init(bitexact_context_info* info) noexcept { initialise(info); }
void bitexact_silu_mul_params_init(bitexact_silu_mul_params* params) noexcept { initialise(params); }
void bitexact_silu_mul_reference_init(bitexact_silu_mul_reference* reference) noexcept {
  initialise(reference);
}
void bitexact_rope_params_init(bitexact_rope_params* params) noexcept { initialise(params); }
void bitexact_rope_reference_init(bitexact_rope_reference* reference) noexcept { initialise(reference); }
void bitexact_gate_report_init(bitexact_gate_report* report) noexcept { initialise(report); }
void bitexact_certify_params_init(bitexact_certify_params* params) noexcept { initialise(params); }
void bitexact_certify_report_init(bitexact_certify_report* report) noexcept { initialise(report); }

int32_t bitexact_context_create(const bitexact_context_options* options, bitexact_context** out) noexcept {
  return guarded("bitexact_context_create", [&] { return create_context(options, out); });
}

void bitexact_context_destroy(bitexact_context* context) noexcept { delete context; }

int32_t bitexact_context_set_log(bitexact_context* context, bitexact_log_fn log, void* user) noexcept {
  return guarded("bitexact_context_set_log", [&] {
    BITEXACT_TRY(check_context(context));
    context->gate.set_log(log, user);
    return BITEXACT_STATUS_OK;
  });
}

int32_t bitexact_context_get_info(bitexact_context* context, bitexact_context_info* info) noexcept {
  return guarded("bitexact_context_get_info", [&] {
    BITEXACT_TRY(check_context(context));
    bitexact_context_info facts;
    initialise(&facts);
    context->backend->describe(facts);
    facts.gate_policy = context->gate.options().policy;
    facts.reference_mode = context->gate.options().reference_mode;
    facts.runtime_version = cuda_runtime_version();
    const Backend::Scope scope(*context->backend);
    BITEXACT_TRY(scope.status());
    BITEXACT_TRY(context->backend->read_position_errors(facts.position_errors));
    return copy_out(facts, "info", info);
  });
}

int32_t bitexact_fused_silu_mul(bitexact_context* context, const bitexact_silu_mul_params* params,
                                bitexact_stream stream) noexcept {
  return guarded("bitexact_fused_silu_mul", [&] { return run<SiluMulArgs>(context, params, stream); });
}

int32_t bitexact_fused_rope(bitexact_context* context, const bitexact_rope_params* params,
                            bitexact_stream stream) noexcept {
  return guarded("bitexact_fused_rope", [&] { return run<RopeArgs>(context, params, stream); });
}

int32_t bitexact_fused_silu_mul_can_use(bitexact_context* context,
                                        const bitexact_silu_mul_params* params) noexcept {
  return guarded("bitexact_fused_silu_mul_can_use", [&] { return can_use<SiluMulArgs>(context, params); });
}

int32_t bitexact_fused_rope_can_use(bitexact_context* context, const bitexact_rope_params* params) noexcept {
  return guarded("bitexact_fused_rope_can_use", [&] { return can_use<RopeArgs>(context, params); });
}

int32_t bitexact_fused_silu_mul_verify(bitexact_context* context, const bitexact_silu_mul_params* params,
                                       const bitexact_silu_mul_reference* reference, bitexact_stream stream,
                                       int32_t* verdict) noexcept {
  return guarded("bitexact_fused_silu_mul_verify",
                 [&] { return verify<SiluMulArgs>(context, params, reference, stream, verdict); });
}

int32_t bitexact_fused_rope_verify(bitexact_context* context, const bitexact_rope_params* params,
                                   const bitexact_rope_reference* reference, bitexact_stream stream,
                                   int32_t* verdict) noexcept {
  return guarded("bitexact_fused_rope_verify",
                 [&] { return verify<RopeArgs>(context, params, reference, stream, verdict); });
}

int32_t bitexact_gate_warm_up(bitexact_context* context, const bitexact_rope_params* rope,
                              const bitexact_silu_mul_params* silu_mul, bitexact_stream stream) noexcept {
  return guarded("bitexact_gate_warm_up", [&] {
    BITEXACT_TRY(check_context(context));
    if (rope == nullptr && silu_mul == nullptr) return warm_up_all(context, stream);
    if (rope != nullptr) BITEXACT_TRY(warm_up<RopeArgs>(context, rope, stream));
    if (silu_mul != nullptr) BITEXACT_TRY(warm_up<SiluMulArgs>(context, silu_mul, stream));
    return BITEXACT_STATUS_OK;
  });
}

int32_t bitexact_gate_count(bitexact_context* context, int64_t* count) noexcept {
  return guarded("bitexact_gate_count", [&] {
    BITEXACT_TRY(check_context(context));
    if (count == nullptr) return fail(BITEXACT_STATUS_NULL_POINTER, "count is null; an int64_t* is required");
    *count = kernel_count;
    return BITEXACT_STATUS_OK;
  });
}

int32_t bitexact_gate_get(bitexact_context* context, int64_t index, bitexact_gate_report* report) noexcept {
  return guarded("bitexact_gate_get", [&] {
    BITEXACT_TRY(check_context(context));
    if (index < 0 || index >= kernel_count) {
      return fail(BITEXACT_STATUS_INDEX, "index is %lld; accepted: 0 to %d", static_cast<long long>(index),
                  kernel_count - 1);
    }
    bitexact_gate_report story;
    initialise(&story);
    context->gate.report(static_cast<int>(index), story);
    return copy_out(story, "report", report);
  });
}

int32_t bitexact_gate_reset(bitexact_context* context) noexcept {
  return guarded("bitexact_gate_reset", [&] {
    BITEXACT_TRY(check_context(context));
    context->gate.reset();
    return BITEXACT_STATUS_OK;
  });
}

int32_t bitexact_certify(bitexact_context* context, const bitexact_certify_params* params,
                         bitexact_certify_report* report) noexcept {
  return guarded("bitexact_certify", [&] {
    BITEXACT_TRY(check_context(context));
    bitexact_certify_params p;
    BITEXACT_TRY(copy_in(params, "params", p));
    bitexact_certify_report r;
    BITEXACT_TRY(copy_in<bitexact_certify_report>(report, "report", r));
    return fail(BITEXACT_STATUS_UNSUPPORTED, "this version has no certificates; nothing was swept");
  });
}

}  // extern "C"
