/* Links the library and runs one operation on the host; prints its version. */
#include <bitexact.h>
#include <stdio.h>

int main(void) {
  const uint16_t one = 0x3f80;
  uint16_t out = 0;
  bitexact_context_options options = BITEXACT_CONTEXT_OPTIONS_INIT;
  bitexact_silu_mul_params params = BITEXACT_SILU_MUL_PARAMS_INIT;
  bitexact_context* context;
  options.device = BITEXACT_DEVICE_HOST;
  params.dtype = BITEXACT_DTYPE_BFLOAT16;
  params.batches = params.rows = params.cols = 1;
  params.gate = params.up = &one;
  params.out = &out;
  if (bitexact_context_create(&options, &context) != 0) return 1;
  if (bitexact_fused_silu_mul(context, &params, NULL) != 0) return 2;
  bitexact_context_destroy(context);
  printf("version %u silu(1) 0x%04x\n", (unsigned)bitexact_version(), (unsigned)out);
  return out != 0x3f3b;
}
