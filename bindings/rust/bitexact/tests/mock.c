/* A stand-in for libbitexact that records what it is given. Every entry of the table is here; only the two
 * permanent symbols are exported, so that it can be loaded beside the real library. */
#include <stdio.h>
#include <string.h>

#define BITEXACT_NO_PROTOTYPES
#include "bitexact.h"

#ifndef MOCK_VERSION
#define MOCK_VERSION BITEXACT_VERSION
#endif

static int32_t next_status;
static bitexact_stream last_stream;
static bitexact_rope_params last_rope;
static bitexact_silu_mul_params last_silu_mul;
static bitexact_context_options last_options;
static int32_t destroyed;
static bitexact_log_fn log_function;
static void* log_user;
static char text[128];

static uint32_t version(void) { return MOCK_VERSION; }
static const char* build_info(void) { return "mock"; }
static const char* status_string(int32_t status) { return status == 0 ? "OK" : "not OK"; }
static const char* last_error(void) {
  snprintf(text, sizeof(text), "mock failed with %d", (int)next_status);
  return text;
}
static int32_t last_cuda_error(void) { return next_status == BITEXACT_STATUS_CUDA_ERROR ? 700 : 0; }

#define INIT(name)                                  \
  static void name##_init(bitexact_##name* value) { \
    memset(value, 0, sizeof(*value));               \
    value->struct_size = sizeof(*value);            \
  }
INIT(context_options)
INIT(context_info)
INIT(silu_mul_params)
INIT(silu_mul_reference)
INIT(rope_params)
INIT(rope_reference)
INIT(gate_report)
INIT(certify_params)
INIT(certify_report)

static int32_t context_create(const bitexact_context_options* options, bitexact_context** out) {
  last_options = *options;
  *out = (bitexact_context*)&next_status;
  return 0;
}
static void context_destroy(bitexact_context* context) {
  (void)context;
  ++destroyed;
}
static int32_t context_set_log(bitexact_context* context, bitexact_log_fn function, void* user) {
  (void)context;
  log_function = function;
  log_user = user;
  return 0;
}
static int32_t context_get_info(bitexact_context* context, bitexact_context_info* info) {
  (void)context;
  info->device = last_options.device;
  info->gate_policy = last_options.gate_policy;
  info->reference_mode = last_options.reference_mode;
  info->image = 99; /* newer than the crate */
  info->position_errors = 5;
  info->device_name = "mock device";
  return 0;
}
static int32_t silu_mul(bitexact_context* c, const bitexact_silu_mul_params* params, bitexact_stream stream) {
  (void)c;
  last_silu_mul = *params;
  last_stream = stream;
  return next_status;
}
static int32_t silu_mul_can_use(bitexact_context* c, const bitexact_silu_mul_params* params) {
  (void)c;
  last_silu_mul = *params;
  return next_status;
}
static int32_t silu_mul_verify(bitexact_context* c, const bitexact_silu_mul_params* params,
                               const bitexact_silu_mul_reference* reference, bitexact_stream stream,
                               int32_t* verdict) {
  (void)c;
  (void)reference;
  last_silu_mul = *params;
  last_stream = stream;
  *verdict = BITEXACT_STATE_DECLINED;
  return next_status;
}
static int32_t rope(bitexact_context* c, const bitexact_rope_params* params, bitexact_stream stream) {
  (void)c;
  last_rope = *params;
  last_stream = stream;
  if (log_function != NULL) {
    log_function(BITEXACT_LOG_WARNING, "mock line", log_user);
  }
  return next_status;
}
static int32_t rope_can_use(bitexact_context* c, const bitexact_rope_params* params) {
  (void)c;
  last_rope = *params;
  return next_status;
}
static int32_t rope_verify(bitexact_context* c, const bitexact_rope_params* params,
                           const bitexact_rope_reference* reference, bitexact_stream stream,
                           int32_t* verdict) {
  (void)c;
  (void)reference;
  last_rope = *params;
  last_stream = stream;
  *verdict = BITEXACT_STATE_ACCEPTED;
  return next_status;
}
static int32_t gate_warm_up(bitexact_context* c, const bitexact_rope_params* r,
                            const bitexact_silu_mul_params* s, bitexact_stream stream) {
  (void)c;
  (void)r;
  (void)s;
  last_stream = stream;
  return next_status;
}
static int32_t gate_count(bitexact_context* c, int64_t* count) {
  (void)c;
  *count = 2;
  return 0;
}
static int32_t gate_get(bitexact_context* c, int64_t index, bitexact_gate_report* report) {
  (void)c;
  report->operation = index == 0 ? BITEXACT_OPERATION_FUSED_ROPE : 77;
  report->state = BITEXACT_STATE_DECLINED;
  report->reason = BITEXACT_REASON_MISMATCH;
  report->basis = BITEXACT_BASIS_PROBE | BITEXACT_BASIS_LIVE;
  report->dtype = BITEXACT_DTYPE_BFLOAT16;
  report->numerics = BITEXACT_COMBINE_COMPLEX;
  report->mismatches = 3;
  report->mismatch_index = 17;
  report->mismatch_expected = 0x3f80;
  report->mismatch_actual = 0x3f81;
  report->kernel_name = "mock kernel";
  return 0;
}
static int32_t gate_reset(bitexact_context* c) {
  (void)c;
  return 0;
}
static int32_t certify(bitexact_context* c, const bitexact_certify_params* params,
                       bitexact_certify_report* report) {
  (void)c;
  report->parts_total = 9;
  report->parts_done += params->part_count;
  return 0;
}

static const bitexact_api table = {
    sizeof(bitexact_api),
    1,
    version,
    build_info,
    status_string,
    last_error,
    last_cuda_error,
    context_options_init,
    context_info_init,
    silu_mul_params_init,
    silu_mul_reference_init,
    rope_params_init,
    rope_reference_init,
    gate_report_init,
    certify_params_init,
    certify_report_init,
    context_create,
    context_destroy,
    context_set_log,
    context_get_info,
    silu_mul,
    silu_mul_can_use,
    silu_mul_verify,
    rope,
    rope_can_use,
    rope_verify,
    gate_warm_up,
    gate_count,
    gate_get,
    gate_reset,
#ifdef MOCK_HOLE
    NULL,
#else
    certify,
#endif
};

uint32_t bitexact_version(void) { return version(); }

#ifndef MOCK_NO_TABLE
int32_t bitexact_get_api(uint32_t api_version, const bitexact_api** out) {
  *out = api_version == 1 ? &table : NULL;
  return api_version == 1 ? 0 : BITEXACT_STATUS_API_VERSION;
}
#endif

/* What the tests ask and set. */
void mock_set_status(int32_t status) { next_status = status; }
void* mock_stream(void) { return last_stream; }
const bitexact_rope_params* mock_rope(void) { return &last_rope; }
const bitexact_silu_mul_params* mock_silu_mul(void) { return &last_silu_mul; }
const bitexact_context_options* mock_options(void) { return &last_options; }
int32_t mock_destroyed(void) { return destroyed; }
