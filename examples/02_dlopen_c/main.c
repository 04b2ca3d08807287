/* Uses bitexact if it is there, and works without. Needs the header and -ldl; links nothing of bitexact.
 * Usage: dlopen_c LIBRARY [host|cuda]    host: not on a GPU; cuda: on a GPU or fail */
#include <stdio.h>
#include <string.h>

#include "eager.h"
#include "load.h"
#include "memory.h"

enum { TOKENS = 64, HEADS = 4, DIM = 64, COUNT = TOKENS * HEADS * DIM, TABLE = TOKENS * DIM / 2 };

static uint16_t x[COUNT], cos_table[TABLE], sin_table[TABLE]; /* on the host */
static void *d_x, *d_cos, *d_sin, *d_out, *d_eager;           /* where the library computes */

static bitexact_rope_params rope_params(void) {
  bitexact_rope_params p = BITEXACT_ROPE_PARAMS_INIT;
  p.dtype = BITEXACT_DTYPE_BFLOAT16;
  p.batches = 1;
  p.tokens = p.table_rows = TOKENS;
  p.q_heads = HEADS;
  p.head_dim = p.rotary_dim = DIM;
  p.table_width = DIM / 2;
  p.q_in = d_x;
  p.q_out = d_out;
  p.q_in_token_stride = p.q_out_token_stride = HEADS * DIM;
  p.q_in_head_stride = p.q_out_head_stride = DIM;
  p.cos = d_cos;
  p.sin = d_sin;
  p.cos_token_stride = p.sin_token_stride = DIM / 2;
  p.cos_element_stride = p.sin_element_stride = 1;
  return p;
}

static bitexact_context* new_context(const bitexact_api* api, int32_t device, int32_t reference_mode) {
  bitexact_context_options options = BITEXACT_CONTEXT_OPTIONS_INIT;
  bitexact_context* context = NULL;
  options.device = device;
  options.reference_mode = reference_mode;
  if (api->context_create(&options, &context) != BITEXACT_STATUS_OK) printf("%s\n", api->last_error());
  return context;
}

/* Runs the chain of this program's own; the result is left where the library can compare it. */
static void run_eager(uint16_t* result, int round_each) {
  eager_rope(x, cos_table, sin_table, result, TOKENS, HEADS, DIM, round_each);
  memory_upload(d_eager, result, COUNT * sizeof(uint16_t));
}

/*! [caller] */
/* CALLER mode, at the place where the framework rotates: fused if this chain is proven, else eager. */
static const char* rotate(const bitexact_api* api, bitexact_context* context, uint16_t* result,
                          int round_each) {
  bitexact_rope_params params = rope_params();
  bitexact_rope_reference reference = BITEXACT_ROPE_REFERENCE_INIT;
  int32_t verdict = BITEXACT_STATE_UNDECIDED;
  const int32_t status = api->fused_rope(context, &params, NULL);
  if (status == BITEXACT_STATUS_OK) {
    memory_download(result, d_out, COUNT * sizeof(uint16_t));
    return "fused";
  }
  run_eager(result, round_each);
  if (status == BITEXACT_STATUS_DECLINED) return "eager";
  if (status != BITEXACT_STATUS_UNVERIFIED) return api->last_error();
  reference.q = d_eager;
  reference.q_token_stride = HEADS * DIM;
  reference.q_head_stride = DIM;
  if (api->fused_rope_verify(context, &params, &reference, NULL, &verdict) != 0) return api->last_error();
  return verdict == BITEXACT_STATE_ACCEPTED ? "eager, accepted" : "eager, declined";
}
/*! [caller] */

/* Two calls on one context; 0 if each went as expected and gave the bits of this chain. */
static int run_caller_mode(const bitexact_api* api, int32_t device, int round_each, const char* first,
                           const char* second) {
  static uint16_t expected[COUNT], result[COUNT];
  bitexact_context* context = new_context(api, device, BITEXACT_REFERENCE_CALLER);
  const char* expected_way[2];
  int i, bad = context == NULL;
  expected_way[0] = first;
  expected_way[1] = second;
  run_eager(expected, round_each);
  for (i = 0; i < 2 && !bad; ++i) {
    const char* way = rotate(api, context, result, round_each);
    printf("caller mode, %s: call %d was %s\n", round_each ? "the named chain" : "another chain", i + 1, way);
    bad = strcmp(way, expected_way[i]) != 0 || memcmp(result, expected, sizeof(expected)) != 0;
  }
  api->context_destroy(context);
  return bad;
}

/* BUILTIN mode: one call; the library checks against its own reference, and falls back by itself. */
static int run_builtin_mode(const bitexact_api* api, int32_t device) {
  static uint16_t expected[COUNT], result[COUNT];
  bitexact_rope_params params = rope_params();
  bitexact_context* context = new_context(api, device, BITEXACT_REFERENCE_BUILTIN);
  int bad = context == NULL || api->fused_rope(context, &params, NULL) != BITEXACT_STATUS_OK;
  run_eager(expected, 1);
  memory_download(result, d_out, sizeof(result));
  bad = bad || memcmp(result, expected, sizeof(expected)) != 0;
  printf("builtin mode: the bits %s\n", bad ? "differ" : "are those of the named chain");
  api->context_destroy(context);
  return bad;
}

static void* on_device(const uint16_t* from, size_t count) {
  void* memory = memory_allocate(count * sizeof(uint16_t));
  memory_upload(memory, from, count * sizeof(uint16_t));
  return memory;
}

int main(int argc, char** argv) {
  const bitexact_api* api = load_bitexact(argc > 1 ? argv[1] : "libbitexact.so.1");
  const char* where = argc > 2 ? argv[2] : "";
  const int32_t device = strcmp(where, "host") != 0 && memory_use_cuda() ? 0 : BITEXACT_DEVICE_HOST;
  int i, bad = 0;
  if (strcmp(where, "cuda") == 0 && device == BITEXACT_DEVICE_HOST) return 2;
  for (i = 0; i < COUNT; ++i) x[i] = (uint16_t)((i % 2 ? 0xbf00 : 0x3f00) + i * 37 % 200);
  for (i = 0; i < TABLE; ++i) cos_table[i] = (uint16_t)(0x3e80 + i * 91 % 256);
  for (i = 0; i < TABLE; ++i) sin_table[i] = (uint16_t)(0xbe80 + i * 53 % 256);
  d_x = on_device(x, COUNT);
  d_cos = on_device(cos_table, TABLE);
  d_sin = on_device(sin_table, TABLE);
  d_out = on_device(x, COUNT);
  d_eager = on_device(x, COUNT);
  if (api == NULL) {
    static uint16_t result[COUNT];
    run_eager(result, 1);
    printf("without bitexact: eager\n");
  } else {
    bad = run_builtin_mode(api, device);
    bad |= run_caller_mode(api, device, 1, "eager, accepted", "fused");
    bad |= run_caller_mode(api, device, 0, "eager, declined", "eager");
  }
  memory_free(d_x), memory_free(d_cos), memory_free(d_sin), memory_free(d_out), memory_free(d_eager);
  return bad;
}
