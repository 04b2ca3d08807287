/* Links the library and runs both operations on the host: create a context, fill in what you want, call.
 * On a GPU the same calls take device pointers and a stream. */
#include <bitexact.h>
#include <stdio.h>

enum { TOKENS = 2, HEADS = 2, DIM = 8, COLS = 8 };

/* bfloat16 is the upper half of a float. */
static float float_of(uint16_t bits) {
  union {
    uint32_t bits;
    float value;
  } wide;
  wide.bits = (uint32_t)bits << 16;
  return wide.value;
}

static void print(const char* name, const uint16_t* bits, int count) {
  int i;
  printf("%s", name);
  for (i = 0; i < count; ++i) printf(" %04x (%g)", (unsigned)bits[i], (double)float_of(bits[i]));
  printf("\n");
}

/* Anything but 0 comes with a text that names the argument and what is accepted. */
static int failed(const char* what, int32_t status) {
  if (status == BITEXACT_STATUS_OK) return 0;
  fprintf(stderr, "%s: %s (%s)\n", what, bitexact_last_error(), bitexact_status_string(status));
  return 1;
}

/*! [silu_mul] */
static int32_t run_silu_mul(bitexact_context* context, const uint16_t* gate, const uint16_t* up,
                            uint16_t* out) {
  bitexact_silu_mul_params params = BITEXACT_SILU_MUL_PARAMS_INIT;
  params.dtype = BITEXACT_DTYPE_BFLOAT16;
  params.batches = 1;
  params.rows = 1;
  params.cols = COLS;
  params.gate = gate;
  params.up = up;
  params.out = out;
  return bitexact_fused_silu_mul(context, &params, NULL);
}
/*! [silu_mul] */

/*! [rope] */
/* Rotates q and k, both (token, head, DIM), in place. The tables hold DIM / 2 entries for each token. */
static int32_t run_rope(bitexact_context* context, uint16_t* q, uint16_t* k, const uint16_t* cos,
                        const uint16_t* sin) {
  bitexact_rope_params params = BITEXACT_ROPE_PARAMS_INIT;
  params.dtype = BITEXACT_DTYPE_BFLOAT16;
  params.batches = 1;
  params.tokens = TOKENS;
  params.q_heads = HEADS;
  params.k_heads = 1;
  params.head_dim = DIM;
  params.rotary_dim = DIM;
  params.q_in = params.q_out = q;
  params.q_in_token_stride = params.q_out_token_stride = HEADS * DIM;
  params.q_in_head_stride = params.q_out_head_stride = DIM;
  params.k_in = params.k_out = k;
  params.k_in_token_stride = params.k_out_token_stride = DIM;
  params.cos = cos;
  params.sin = sin;
  params.table_width = DIM / 2;
  params.table_rows = TOKENS;
  params.cos_token_stride = params.sin_token_stride = DIM / 2;
  params.cos_element_stride = params.sin_element_stride = 1;
  return bitexact_fused_rope(context, &params, NULL);
}
/*! [rope] */

int main(void) {
  const uint16_t gate[COLS] = {0x3f80, 0xbf80, 0x4000, 0xc000, 0x3f00, 0x0000, 0x8000, 0x4120};
  const uint16_t up[COLS] = {0x3f80, 0x3f80, 0x3f80, 0x3f80, 0x4040, 0x4040, 0x4040, 0x4040};
  /* Angles 0 and about 0.5, 0.25, 0.125, 0.0625. */
  const uint16_t cos[TOKENS * DIM / 2] = {0x3f80, 0x3f80, 0x3f80, 0x3f80, 0x3f61, 0x3f78, 0x3f7e, 0x3f80};
  const uint16_t sin[TOKENS * DIM / 2] = {0x0000, 0x0000, 0x0000, 0x0000, 0x3ef5, 0x3e7d, 0x3dff, 0x3d80};
  uint16_t q[TOKENS * HEADS * DIM], k[TOKENS * DIM], out[COLS];
  int i, bad = 0;
  /*! [context] */
  bitexact_context_options options = BITEXACT_CONTEXT_OPTIONS_INIT;
  bitexact_context* context = NULL;
  options.device = BITEXACT_DEVICE_HOST;
  if (failed("context", bitexact_context_create(&options, &context))) return 1;
  /*! [context] */
  for (i = 0; i < TOKENS * HEADS * DIM; ++i) q[i] = (uint16_t)(0x3f80 + i);
  for (i = 0; i < TOKENS * DIM; ++i) k[i] = (uint16_t)(0xbf80 + i);

  bad = failed("silu_mul", run_silu_mul(context, gate, up, out));
  bad = failed("rope", run_rope(context, q, k, cos, sin)) || bad;
  if (!bad) {
    print("silu_mul", out, 4);
    print("rope q, token 1", q + HEADS * DIM, 4);
    print("rope k, token 1", k + DIM, 4);
  }
  bitexact_context_destroy(context);
  return bad;
}
