/* A program of the first version, kept as it was: compiled against the header that lies beside it, run with
 * whatever library there is now. It uses every function group once, linked and through the table. */
#include <stdio.h>
#include <string.h>

#include "bitexact.h"

#define MUST(holds)                                                                  \
  do {                                                                               \
    if (!(holds)) {                                                                  \
      fprintf(stderr, "line %d: %s: %s\n", __LINE__, #holds, bitexact_last_error()); \
      return 1;                                                                      \
    }                                                                                \
  } while (0)

static int rotate(bitexact_context* context) {
  uint16_t q[4] = {0x3f80, 0x4000, 0x4040, 0x4080}, cos[4] = {0, 0, 0, 0};
  uint16_t sin[4] = {0x3f80, 0x3f80, 0x3f80, 0x3f80}, out[4] = {0, 0, 0, 0};
  const uint16_t turned[4] = {0xc040, 0xc080, 0x3f80, 0x4000};
  bitexact_rope_params p = BITEXACT_ROPE_PARAMS_INIT;
  p.dtype = BITEXACT_DTYPE_BFLOAT16;
  p.batches = p.tokens = p.q_heads = p.table_rows = 1;
  p.head_dim = p.rotary_dim = p.table_width = 4;
  p.q_in = q;
  p.q_out = out;
  p.cos = cos;
  p.sin = sin;
  p.cos_element_stride = p.sin_element_stride = 1;
  MUST(bitexact_fused_rope_can_use(context, &p) == BITEXACT_STATUS_OK);
  MUST(bitexact_fused_rope(context, &p, NULL) == BITEXACT_STATUS_OK);
  MUST(memcmp(out, turned, sizeof(out)) == 0);
  MUST(bitexact_gate_warm_up(context, &p, NULL, NULL) == BITEXACT_STATUS_OK);
  return 0;
}

static int multiply(const bitexact_api* api, bitexact_context* context) {
  uint16_t gate[2] = {0xbf68, 0xc2b1}, up[2] = {0x3e24, 0x3c24}, out[2] = {0, 0};
  bitexact_silu_mul_params p = BITEXACT_SILU_MUL_PARAMS_INIT;
  p.dtype = BITEXACT_DTYPE_BFLOAT16;
  p.batches = p.rows = 1;
  p.cols = 2;
  p.gate = gate;
  p.up = up;
  p.out = out;
  MUST(api->fused_silu_mul(context, &p, NULL) == BITEXACT_STATUS_OK);
  MUST(out[0] == 0xbd2c && out[1] == 0x8023);
  p.rows = -1;
  MUST(api->fused_silu_mul(context, &p, NULL) == BITEXACT_STATUS_INVALID_SHAPE);
  MUST(strstr(api->last_error(), "rows is -1") != NULL);
  return 0;
}

int main(void) {
  const bitexact_api* api = NULL;
  bitexact_context* context = NULL;
  bitexact_context_options options = BITEXACT_CONTEXT_OPTIONS_INIT;
  bitexact_context_info info = BITEXACT_CONTEXT_INFO_INIT;
  bitexact_gate_report report = BITEXACT_GATE_REPORT_INIT;
  int64_t count = 0;
  MUST(bitexact_version() >= BITEXACT_VERSION);
  MUST(bitexact_get_api(BITEXACT_API_VERSION, &api) == BITEXACT_STATUS_OK);
  MUST(api->struct_size >= sizeof(bitexact_api) && api->api_version == BITEXACT_API_VERSION);
  options.device = BITEXACT_DEVICE_HOST;
  MUST(bitexact_context_create(&options, &context) == BITEXACT_STATUS_OK);
  if (rotate(context) != 0 || multiply(api, context) != 0) return 1;
  MUST(bitexact_context_get_info(context, &info) == BITEXACT_STATUS_OK);
  MUST(info.device == BITEXACT_DEVICE_HOST && strcmp(info.device_name, "host") == 0);
  MUST(bitexact_gate_count(context, &count) == BITEXACT_STATUS_OK && count > 0);
  MUST(bitexact_gate_get(context, count - 1, &report) == BITEXACT_STATUS_OK && report.kernel_name != NULL);
  MUST(bitexact_gate_get(context, count, &report) == BITEXACT_STATUS_INDEX);
  MUST(bitexact_gate_reset(context) == BITEXACT_STATUS_OK);
  bitexact_context_destroy(context);
  return 0;
}
