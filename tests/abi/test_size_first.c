/* The size-first rule, for every struct that a caller fills, through every function that takes it: a shorter
 * one reads as zero beyond its end, a longer one is taken if it is zero there and refused if not. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "bitexact.h"
#include "check.h"
#include "edge.h"

enum { ROWS = 3, COLS = 8, TOKENS = 3, HEADS = 2, DIM = 8, EXTRA = 64 };

static bitexact_context* builtin = NULL;
static bitexact_context* caller = NULL;

/* Inputs are never zero; outputs are looked at as bytes. */
static uint16_t inputs[64];
static const int64_t positions[TOKENS] = {2, 0, 1};
static uint16_t outputs[2][TOKENS * HEADS * DIM];
static const uint16_t reference[TOKENS * HEADS * DIM];

static bitexact_context_options options = BITEXACT_CONTEXT_OPTIONS_INIT;
static bitexact_silu_mul_params silu_mul = BITEXACT_SILU_MUL_PARAMS_INIT;
static bitexact_silu_mul_reference silu_mul_reference = BITEXACT_SILU_MUL_REFERENCE_INIT;
static bitexact_rope_params rope = BITEXACT_ROPE_PARAMS_INIT;
static bitexact_rope_reference rope_reference = BITEXACT_ROPE_REFERENCE_INIT;
static bitexact_certify_params certify_params = BITEXACT_CERTIFY_PARAMS_INIT;
static bitexact_certify_report certify_report = BITEXACT_CERTIFY_REPORT_INIT;

/* ------------------------------------------------------------------------------ callers -- */

static int32_t create(const void* s) {
  bitexact_context* context = builtin; /* must be overwritten */
  const int32_t status = bitexact_context_create((const bitexact_context_options*)s, &context);
  CHECK(context != builtin);
  CHECK((context != NULL) == (status == BITEXACT_STATUS_OK));
  bitexact_context_destroy(context);
  return status;
}
static int32_t run_silu_mul(const void* s) {
  return bitexact_fused_silu_mul(builtin, (const bitexact_silu_mul_params*)s, NULL);
}
static int32_t can_use_silu_mul(const void* s) {
  return bitexact_fused_silu_mul_can_use(builtin, (const bitexact_silu_mul_params*)s);
}
static int32_t check_silu_mul(const void* s) {
  return bitexact_fused_silu_mul_can_use(NULL, (const bitexact_silu_mul_params*)s);
}
static int32_t verify_silu_mul(const void* s) {
  return bitexact_fused_silu_mul_verify(caller, (const bitexact_silu_mul_params*)s, &silu_mul_reference, NULL,
                                        NULL);
}
static int32_t verify_silu_mul_reference(const void* s) {
  return bitexact_fused_silu_mul_verify(caller, &silu_mul, (const bitexact_silu_mul_reference*)s, NULL, NULL);
}
static int32_t warm_up_silu_mul(const void* s) {
  return bitexact_gate_warm_up(builtin, &rope, (const bitexact_silu_mul_params*)s, NULL);
}
static int32_t run_rope(const void* s) {
  return bitexact_fused_rope(builtin, (const bitexact_rope_params*)s, NULL);
}
static int32_t can_use_rope(const void* s) {
  return bitexact_fused_rope_can_use(builtin, (const bitexact_rope_params*)s);
}
static int32_t check_rope(const void* s) {
  return bitexact_fused_rope_can_use(NULL, (const bitexact_rope_params*)s);
}
static int32_t verify_rope(const void* s) {
  return bitexact_fused_rope_verify(caller, (const bitexact_rope_params*)s, &rope_reference, NULL, NULL);
}
static int32_t verify_rope_reference(const void* s) {
  return bitexact_fused_rope_verify(caller, &rope, (const bitexact_rope_reference*)s, NULL, NULL);
}
static int32_t warm_up_rope(const void* s) {
  return bitexact_gate_warm_up(builtin, (const bitexact_rope_params*)s, &silu_mul, NULL);
}
static int32_t run_certify(const void* s) {
  return bitexact_certify(builtin, (const bitexact_certify_params*)s, &certify_report);
}
static int32_t report_certify(const void* s) {
  bitexact_certify_report* report = (bitexact_certify_report*)(uintptr_t)s; /* in and out */
  return bitexact_certify(builtin, &certify_params, report);
}

/* ------------------------------------------------------------------------------ targets -- */

#define DEFAULTS (-1) /* null stands for a default, which is not tested here */

typedef struct {
  const char* name;
  int32_t (*call)(const void* structure);
  const void* good; /* a full struct that `call` takes */
  size_t size;
  int32_t status;         /* what it answers then */
  int32_t status_of_null; /* what it answers to null */
} target;

#define TARGET(call, good, status) \
  { #call, call, &good, sizeof(good), BITEXACT_STATUS_##status, BITEXACT_STATUS_NULL_POINTER }
#define OPTIONAL_TARGET(call, good, status_of_null) \
  { #call, call, &good, sizeof(good), BITEXACT_STATUS_OK, status_of_null }

static const target targets[] = {
    TARGET(run_silu_mul, silu_mul, OK),
    TARGET(can_use_silu_mul, silu_mul, OK),
    TARGET(check_silu_mul, silu_mul, OK),
    TARGET(verify_silu_mul, silu_mul, OK),
    TARGET(verify_silu_mul_reference, silu_mul_reference, OK),
    OPTIONAL_TARGET(warm_up_silu_mul, silu_mul, BITEXACT_STATUS_OK),
    TARGET(run_rope, rope, OK),
    TARGET(can_use_rope, rope, OK),
    TARGET(check_rope, rope, OK),
    TARGET(verify_rope, rope, OK),
    TARGET(verify_rope_reference, rope_reference, OK),
    OPTIONAL_TARGET(warm_up_rope, rope, BITEXACT_STATUS_OK),
    OPTIONAL_TARGET(create, options, DEFAULTS),
    TARGET(run_certify, certify_params, OK), /* no parts: asks how many there are */
    TARGET(report_certify, certify_report, OK),
};

/* -------------------------------------------------------------------------------- tests -- */

/* The first `kept` bytes of the good struct, then zeros, in a struct of `size`; at the edge of memory. */
static void* copy_of(const target* t, size_t kept, size_t size) {
  void* structure = edge_of_memory(size);
  memset(structure, 0, size);
  memcpy(structure, t->good, kept);
  set_struct_size(structure, size);
  return structure;
}

/* Calls with outputs that nobody has written to; on an error nobody may have. */
static int32_t call(const target* t, const void* structure) {
  uint16_t untouched[TOKENS * HEADS * DIM];
  int32_t status;
  memset(untouched, 0x5a, sizeof(untouched));
  memset(outputs, 0x5a, sizeof(outputs));
  status = t->call(structure);
  if (status != BITEXACT_STATUS_OK) {
    CHECK(memcmp(outputs[0], untouched, sizeof(untouched)) == 0);
    CHECK(memcmp(outputs[1], untouched, sizeof(untouched)) == 0);
  }
  return status;
}

static void test_equal(const target* t) {
  CHECK_EQUAL(call(t, copy_of(t, t->size, t->size)), t->status);
  if (t->status_of_null != DEFAULTS) CHECK_EQUAL(call(t, NULL), t->status_of_null);
}

static void test_no_size(const target* t) {
  size_t size;
  for (size = 0; size < 8; ++size) {
    void* structure = copy_of(t, t->size, t->size);
    set_struct_size(structure, size);
    CHECK_EQUAL(call(t, structure), BITEXACT_STATUS_STRUCT_SIZE);
    CHECK(strstr(bitexact_last_error(), "struct_size") != NULL);
  }
}

/* A struct cut at `size` is the same call as a whole one with zeros from there on. */
static void test_shorter(const target* t) {
  size_t size;
  for (size = 8; size < t->size; size += 8) {
    static uint16_t expected[2][TOKENS * HEADS * DIM];
    const int32_t status = call(t, copy_of(t, size, t->size));
    memcpy(expected, outputs, sizeof(expected));
    CHECK_EQUAL(call(t, copy_of(t, size, size)), status);
    CHECK(memcmp(outputs, expected, sizeof(expected)) == 0);
  }
}

static void test_longer(const target* t) {
  static const size_t last[] = {0, 1, EXTRA / 2, EXTRA - 1};
  size_t i;
  CHECK_EQUAL(call(t, copy_of(t, t->size, t->size + 8)), t->status);
  CHECK_EQUAL(call(t, copy_of(t, t->size, t->size + EXTRA)), t->status);
  for (i = 0; i < sizeof(last) / sizeof(last[0]); ++i) {
    unsigned char* structure = (unsigned char*)copy_of(t, t->size, t->size + EXTRA);
    structure[t->size + last[i]] = 1;
    CHECK_EQUAL(call(t, structure), BITEXACT_STATUS_UNKNOWN_FIELD);
  }
}

/* Reserved members and unknown flags of every struct that is only read. */
static void test_flags(const target* t) {
  bitexact_context_options* structure;
  structure = (bitexact_context_options*)copy_of(t, t->size, t->size);
  structure->flags = 0x80000000u;
  CHECK_EQUAL(call(t, structure), BITEXACT_STATUS_UNKNOWN_FIELD);
}

/* ------------------------------------------------------------------------------- set-up -- */

static void fill_silu_mul(void) {
  silu_mul.dtype = BITEXACT_DTYPE_BFLOAT16;
  silu_mul.batches = 1;
  silu_mul.rows = ROWS;
  silu_mul.cols = COLS;
  silu_mul.gate = inputs;
  silu_mul.gate_row_stride = COLS;
  silu_mul.up = inputs + 8;
  silu_mul.up_row_stride = COLS;
  silu_mul.out = outputs[0];
  silu_mul.out_row_stride = COLS;
  silu_mul_reference.out = reference;
  silu_mul_reference.out_row_stride = COLS;
}

static void fill_rope(void) {
  rope.dtype = BITEXACT_DTYPE_BFLOAT16;
  rope.batches = 1;
  rope.tokens = TOKENS;
  rope.q_heads = HEADS;
  rope.k_heads = 1;
  rope.head_dim = DIM;
  rope.rotary_dim = DIM;
  rope.table_width = DIM / 2;
  rope.table_rows = TOKENS;
  rope.q_in = inputs;
  rope.q_out = outputs[0];
  rope.q_in_token_stride = rope.q_out_token_stride = HEADS * DIM;
  rope.q_in_head_stride = rope.q_out_head_stride = DIM;
  rope.k_in = inputs + 4;
  rope.k_out = outputs[1];
  rope.k_in_token_stride = rope.k_out_token_stride = DIM;
  rope.cos = inputs + 2;
  rope.sin = inputs + 6;
  rope.cos_token_stride = rope.sin_token_stride = DIM / 2;
  rope.cos_element_stride = rope.sin_element_stride = 1;
  rope.positions = positions;
  rope.positions_token_stride = 1;
  rope.positions_dtype = BITEXACT_DTYPE_INT64;
  rope_reference.q = reference;
  rope_reference.q_token_stride = HEADS * DIM;
  rope_reference.q_head_stride = DIM;
  rope_reference.k = reference;
  rope_reference.k_token_stride = DIM;
}

int main(void) {
  bitexact_context_options for_caller;
  size_t i;
  for (i = 0; i < sizeof(inputs) / sizeof(inputs[0]); ++i) inputs[i] = (uint16_t)(0x3f00 + 7 * i);
  fill_silu_mul();
  fill_rope();
  options.device = BITEXACT_DEVICE_HOST;
  options.gate_policy = BITEXACT_POLICY_TRUST;
  for_caller = options;
  for_caller.gate_policy = BITEXACT_POLICY_VERIFY;
  for_caller.reference_mode = BITEXACT_REFERENCE_CALLER;
  CHECK_EQUAL(bitexact_context_create(&options, &builtin), BITEXACT_STATUS_OK);
  CHECK_EQUAL(bitexact_context_create(&for_caller, &caller), BITEXACT_STATUS_OK);
  if (builtin == NULL || caller == NULL) return EXIT_FAILURE;
  for (i = 0; i < sizeof(targets) / sizeof(targets[0]); ++i) {
    const int before = check_failures;
    test_equal(&targets[i]);
    test_no_size(&targets[i]);
    test_shorter(&targets[i]);
    test_longer(&targets[i]);
    test_flags(&targets[i]);
    if (check_failures != before) fprintf(stderr, "^ in %s\n", targets[i].name);
  }
  bitexact_context_destroy(builtin);
  bitexact_context_destroy(caller);
  return CHECK_RESULT();
}
