// A wrong argument of every kind: its status, its text, and nothing touched. No GPU needed: the same checks
// serve every backend, and can_use answers without a context.
#include <functional>
#include <string>

#include "cases.h"
#include "contexts.h"

using namespace bitexact_test;

namespace {

template <class Params>
struct Refusal {
  const char* what;
  std::function<void(Params&)> spoil;
  int32_t status;
  const char* text;  // what the message must name
};

template <class Params>
int32_t run(bitexact_context* context, const Params& p);
template <>
int32_t run(bitexact_context* context, const bitexact_rope_params& p) {
  return bitexact_fused_rope(context, &p, nullptr);
}
template <>
int32_t run(bitexact_context* context, const bitexact_silu_mul_params& p) {
  return bitexact_fused_silu_mul(context, &p, nullptr);
}
int32_t can_use(const bitexact_rope_params& p) { return bitexact_fused_rope_can_use(nullptr, &p); }
int32_t can_use(const bitexact_silu_mul_params& p) { return bitexact_fused_silu_mul_can_use(nullptr, &p); }

template <class Case, class Params>
void expect_refused(Case& c, const std::vector<Refusal<Params>>& refusals) {
  const Context context = make_context(BITEXACT_DEVICE_HOST, BITEXACT_POLICY_TRUST);
  const std::vector<uint8_t> before = c.arena.bytes();
  EXPECT_EQ(can_use(c.params), BITEXACT_STATUS_OK) << bitexact_last_error();
  for (const Refusal<Params>& r : refusals) {
    Params p = c.params;
    r.spoil(p);
    EXPECT_EQ(can_use(p), r.status) << r.what << ": " << bitexact_last_error();
    EXPECT_EQ(run(context.get(), p), r.status) << r.what << ": " << bitexact_last_error();
    const std::string text = bitexact_last_error();
    EXPECT_NE(text.find("bitexact_fused_"), std::string::npos) << r.what << ": " << text;
    EXPECT_NE(text.find(r.text), std::string::npos) << r.what << ": " << text;
    EXPECT_EQ(c.arena.bytes(), before) << r.what;
  }
  EXPECT_TRUE(stories(context.get()).empty());
}

template <class T>
T* shifted(T* pointer, int64_t bytes) {
  return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(pointer) + static_cast<uintptr_t>(bytes));
}

constexpr uint32_t ten = 0x41200000;  // as a float32

TEST(Refusals, SiluMul) {
  using P = bitexact_silu_mul_params;
  SiluMulCase c = make_case({BITEXACT_DTYPE_BFLOAT16, 0, 0, 2, 3, 64, 8, 0, false, InPlace::no}, 1);
  expect_refused<SiluMulCase, P>(
      c,
      {{"size 0", [](P& p) { p.struct_size = 0; }, BITEXACT_STATUS_STRUCT_SIZE, "struct_size is 0"},
       {"flags", [](P& p) { p.flags = 4; }, BITEXACT_STATUS_UNKNOWN_FIELD, "flags is 0x4"},
       {"reserved", [](P& p) { p.reserved = 1; }, BITEXACT_STATUS_UNKNOWN_FIELD, "reserved is 1"},
       {"no dtype", [](P& p) { p.dtype = 0; }, BITEXACT_STATUS_INVALID_VALUE, "dtype is 0"},
       {"dtype float64", [](P& p) { p.dtype = BITEXACT_DTYPE_FLOAT64; }, BITEXACT_STATUS_INVALID_VALUE,
        "dtype is 4"},
       {"compute float64", [](P& p) { p.compute_dtype = 4; }, BITEXACT_STATUS_INVALID_VALUE,
        "compute_dtype is 4"},
       {"silu", [](P& p) { p.silu = 4; }, BITEXACT_STATUS_INVALID_VALUE, "silu is 4"},
       {"negative silu", [](P& p) { p.silu = -1; }, BITEXACT_STATUS_INVALID_VALUE, "silu is -1"},
       {"candle float32", [](P& p) { p.silu = 2, p.dtype = 1; }, BITEXACT_STATUS_UNSUPPORTED, "CANDLE"},
       {"sigmoid in float32", [](P& p) { p.silu = 1, p.compute_dtype = 1; }, BITEXACT_STATUS_UNSUPPORTED,
        "silu 1"},
       {"clamp", [](P& p) { p.clamp = 3, p.limit_bits = ten; }, BITEXACT_STATUS_INVALID_VALUE, "clamp is 3"},
       {"negative clamp", [](P& p) { p.clamp = -1, p.limit_bits = ten; }, BITEXACT_STATUS_INVALID_VALUE,
        "clamp is -1"},
       {"clamped sigmoid", [](P& p) { p.silu = 1, p.clamp = 1, p.limit_bits = ten; },
        BITEXACT_STATUS_UNSUPPORTED, "clamp is 1 with silu 1"},
       {"clamped glu", [](P& p) { p.silu = 3, p.clamp = 2, p.limit_bits = ten; }, BITEXACT_STATUS_UNSUPPORTED,
        "clamp is 2 with silu 3"},
       {"clamp after in float32", [](P& p) { p.clamp = 2, p.compute_dtype = 1, p.limit_bits = ten; },
        BITEXACT_STATUS_UNSUPPORTED, "clamp is AFTER"},
       {"a limit alone", [](P& p) { p.limit_bits = ten; }, BITEXACT_STATUS_INVALID_VALUE,
        "limit_bits is 0x41200000 with clamp 0"},
       {"a clamp alone", [](P& p) { p.clamp = 1; }, BITEXACT_STATUS_INVALID_VALUE,
        "limit_bits is 0x0 with clamp 1"},
       {"negative limit", [](P& p) { p.clamp = 2, p.limit_bits = ten | 0x80000000u; },
        BITEXACT_STATUS_INVALID_VALUE, "limit_bits is 0xc1200000"},
       {"limit -0", [](P& p) { p.clamp = 1, p.limit_bits = 0x80000000u; }, BITEXACT_STATUS_INVALID_VALUE,
        "limit_bits is 0x80000000"},
       {"infinite limit", [](P& p) { p.clamp = 1, p.limit_bits = 0x7f800000; }, BITEXACT_STATUS_INVALID_VALUE,
        "limit_bits is 0x7f800000"},
       {"limit that float16 rounds to 0",
        [](P& p) { p.dtype = BITEXACT_DTYPE_FLOAT16, p.clamp = 1, p.limit_bits = 0x33000000; },
        BITEXACT_STATUS_INVALID_VALUE, "limit_bits is 0x33000000"},
       {"limit that bfloat16 rounds to 0",
        [](P& p) { p.dtype = BITEXACT_DTYPE_BFLOAT16, p.clamp = 2, p.limit_bits = 0x8000; },
        BITEXACT_STATUS_INVALID_VALUE, "limit_bits is 0x8000"},
       {"limit NaN", [](P& p) { p.clamp = 1, p.limit_bits = 0x7fc00000; }, BITEXACT_STATUS_INVALID_VALUE,
        "limit_bits is 0x7fc00000"},
       {"batches", [](P& p) { p.batches = -1; }, BITEXACT_STATUS_INVALID_SHAPE, "batches is -1"},
       {"rows", [](P& p) { p.rows = -7; }, BITEXACT_STATUS_INVALID_SHAPE, "rows is -7"},
       {"cols", [](P& p) { p.cols = INT64_MIN; }, BITEXACT_STATUS_INVALID_SHAPE,
        "cols is -9223372036854775808"},
       {"gate null", [](P& p) { p.gate = nullptr; }, BITEXACT_STATUS_NULL_POINTER, "gate is null"},
       {"up null", [](P& p) { p.up = nullptr; }, BITEXACT_STATUS_NULL_POINTER, "up is null"},
       {"out null", [](P& p) { p.out = nullptr; }, BITEXACT_STATUS_NULL_POINTER, "out is null"},
       {"odd address", [](P& p) { p.up = shifted(p.up, 1); }, BITEXACT_STATUS_UNALIGNED, "up is 0x"},
       {"rows times stride", [](P& p) { p.gate_row_stride = INT64_MAX / 2; }, BITEXACT_STATUS_TOO_LARGE,
        "gate reaches"},
       {"batch stride", [](P& p) { p.out_batch_stride = INT64_MIN; }, BITEXACT_STATUS_TOO_LARGE,
        "out reaches"},
       {"wide", [](P& p) { p.cols = INT64_MAX; }, BITEXACT_STATUS_TOO_LARGE, "gate reaches"},
       {"out row stride 0", [](P& p) { p.out_row_stride = 0; }, BITEXACT_STATUS_INVALID_STRIDE,
        "out: its strides"},
       {"out rows overlap", [](P& p) { p.out_row_stride = 63; }, BITEXACT_STATUS_INVALID_STRIDE,
        "out: its strides"},
       {"out on gate, shifted", [](P& p) { p.out = shifted(const_cast<void*>(p.gate), 16); },
        BITEXACT_STATUS_OVERLAP, "out overlaps gate"},
       {"out on up, shifted", [](P& p) { p.out = shifted(const_cast<void*>(p.up), 16); },
        BITEXACT_STATUS_OVERLAP, "out overlaps up"},
       {"in place, other strides", [](P& p) { p.out = const_cast<void*>(p.gate), p.out_row_stride = 64; },
        BITEXACT_STATUS_OVERLAP, "out overlaps gate"}});
}

TEST(Refusals, Rope) {
  using P = bitexact_rope_params;
  RopeShape shape{};
  shape.dtype = BITEXACT_DTYPE_BFLOAT16;
  shape.batches = 2;
  shape.tokens = 5;
  shape.q_heads = 3;
  shape.k_heads = 2;
  shape.head_dim = 64;
  shape.rotary_dim = 32;
  shape.full_table = true;
  shape.element_stride = 1;
  RopeCase c = make_case(shape, 1);
  std::vector<int32_t> positions(10);
  int32_t* const at = positions.data();
  expect_refused<RopeCase, P>(
      c,
      {{"size 4", [](P& p) { p.struct_size = 4; }, BITEXACT_STATUS_STRUCT_SIZE, "struct_size is 4"},
       {"flags", [](P& p) { p.flags = 8; }, BITEXACT_STATUS_UNKNOWN_FIELD, "flags is 0x8"},
       {"reserved", [](P& p) { p.reserved = 9; }, BITEXACT_STATUS_UNKNOWN_FIELD, "reserved is 9"},
       {"dtype", [](P& p) { p.dtype = 7; }, BITEXACT_STATUS_INVALID_VALUE, "dtype is 7"},
       {"float16 tables", [](P& p) { p.table_dtype = 2; }, BITEXACT_STATUS_INVALID_VALUE, "table_dtype is 2"},
       {"int tables", [](P& p) { p.table_dtype = 5; }, BITEXACT_STATUS_INVALID_VALUE, "table_dtype is 5"},
       {"compute", [](P& p) { p.compute_dtype = 3; }, BITEXACT_STATUS_INVALID_VALUE, "compute_dtype is 3"},
       {"compute below tables", [](P& p) { p.table_dtype = 4, p.compute_dtype = 1; },
        BITEXACT_STATUS_INVALID_VALUE, "compute_dtype is FLOAT32 with FLOAT64 tables"},
       {"combine", [](P& p) { p.combine = 5; }, BITEXACT_STATUS_INVALID_VALUE, "combine is 5"},
       {"zero sum, fused", [](P& p) { p.combine = 1, p.flags = 2; }, BITEXACT_STATUS_UNSUPPORTED,
        "SUM_FROM_ZERO"},
       {"pairing in", [](P& p) { p.pairing_in = 2; }, BITEXACT_STATUS_INVALID_VALUE, "pairing_in is 2"},
       {"pairing out", [](P& p) { p.pairing_out = -1; }, BITEXACT_STATUS_INVALID_VALUE, "pairing_out is -1"},
       {"batches", [](P& p) { p.batches = -1; }, BITEXACT_STATUS_INVALID_SHAPE, "batches is -1"},
       {"tokens", [](P& p) { p.tokens = -2; }, BITEXACT_STATUS_INVALID_SHAPE, "tokens is -2"},
       {"q_heads", [](P& p) { p.q_heads = -3; }, BITEXACT_STATUS_INVALID_SHAPE, "q_heads is -3"},
       {"k_heads", [](P& p) { p.k_heads = -4; }, BITEXACT_STATUS_INVALID_SHAPE, "k_heads is -4"},
       {"heads overflow", [](P& p) { p.q_heads = INT64_MAX; }, BITEXACT_STATUS_TOO_LARGE,
        "q_heads + k_heads"},
       {"head_dim", [](P& p) { p.head_dim = -64; }, BITEXACT_STATUS_INVALID_SHAPE, "head_dim is -64"},
       {"odd rotary", [](P& p) { p.rotary_dim = 33; }, BITEXACT_STATUS_INVALID_SHAPE, "rotary_dim is 33"},
       {"rotary beyond head", [](P& p) { p.rotary_dim = 66; }, BITEXACT_STATUS_INVALID_SHAPE,
        "rotary_dim is 66"},
       {"wide table", [](P& p) { p.table_width = 128; }, BITEXACT_STATUS_INVALID_SHAPE, "table_width is 128"},
       {"no table width", [](P& p) { p.table_width = 0; }, BITEXACT_STATUS_INVALID_SHAPE, "table_width is 0"},
       {"short table", [](P& p) { p.table_rows = 4; }, BITEXACT_STATUS_INVALID_SHAPE, "table_rows is 4"},
       {"negative rows", [](P& p) { p.table_rows = -1; }, BITEXACT_STATUS_INVALID_SHAPE, "table_rows is -1"},
       {"q null", [](P& p) { p.q_in = nullptr; }, BITEXACT_STATUS_NULL_POINTER, "q_in is null"},
       {"q_out null", [](P& p) { p.q_out = nullptr; }, BITEXACT_STATUS_NULL_POINTER, "q_out is null"},
       {"k null, heads 2", [](P& p) { p.k_in = nullptr; }, BITEXACT_STATUS_NULL_POINTER, "k_in is null"},
       {"k_out null", [](P& p) { p.k_out = nullptr; }, BITEXACT_STATUS_NULL_POINTER, "k_out is null"},
       {"cos null", [](P& p) { p.cos = nullptr; }, BITEXACT_STATUS_NULL_POINTER, "cos is null"},
       {"sin null", [](P& p) { p.sin = nullptr; }, BITEXACT_STATUS_NULL_POINTER, "sin is null"},
       {"odd cos", [](P& p) { p.cos = shifted(p.cos, 1); }, BITEXACT_STATUS_UNALIGNED, "cos is 0x"},
       {"positions without dtype", [&](P& p) { p.positions = at; }, BITEXACT_STATUS_INVALID_VALUE,
        "positions_dtype is 0"},
       {"positions float", [&](P& p) { p.positions = at, p.positions_dtype = 1; },
        BITEXACT_STATUS_INVALID_VALUE, "positions_dtype is 1"},
       {"dtype without positions", [](P& p) { p.positions_dtype = 5; }, BITEXACT_STATUS_INVALID_VALUE,
        "positions_dtype is 5 without positions"},
       {"odd positions", [&](P& p) { p.positions = shifted(at, 2), p.positions_dtype = 5; },
        BITEXACT_STATUS_UNALIGNED, "positions is 0x"},
       {"token stride", [](P& p) { p.q_in_token_stride = INT64_MAX; }, BITEXACT_STATUS_TOO_LARGE,
        "q_in reaches"},
       {"table stride", [](P& p) { p.sin_token_stride = INT64_MIN; }, BITEXACT_STATUS_TOO_LARGE,
        "sin reaches"},
       {"expanded output", [](P& p) { p.q_out_head_stride = 0; }, BITEXACT_STATUS_INVALID_STRIDE,
        "q_out: its strides"},
       {"overlapping output", [](P& p) { p.k_out_token_stride = 64; }, BITEXACT_STATUS_INVALID_STRIDE,
        "k_out: its strides"},
       {"q shifted onto itself", [](P& p) { p.q_out = shifted(const_cast<void*>(p.q_in), 16); },
        BITEXACT_STATUS_OVERLAP, "q_out overlaps q_in"},
       {"q onto k", [](P& p) { p.q_out = const_cast<void*>(p.k_in); }, BITEXACT_STATUS_OVERLAP,
        "q_out overlaps k_in"},
       {"outputs onto each other", [](P& p) { p.k_out = p.q_out; }, BITEXACT_STATUS_OVERLAP,
        "q_out overlaps k_out"},
       {"q onto cos", [](P& p) { p.q_out = const_cast<void*>(p.cos); }, BITEXACT_STATUS_OVERLAP,
        "q_out overlaps cos"},
       {"k onto sin", [](P& p) { p.k_out = const_cast<void*>(p.sin); }, BITEXACT_STATUS_OVERLAP,
        "k_out overlaps sin"},
       {"in place with two pairings", [](P& p) { p.q_out = const_cast<void*>(p.q_in), p.pairing_in = 1; },
        BITEXACT_STATUS_OVERLAP, "q_out overlaps q_in"}});
}

TEST(Refusals, NullObjects) {
  bitexact_silu_mul_params silu = BITEXACT_SILU_MUL_PARAMS_INIT;
  bitexact_rope_params rope = BITEXACT_ROPE_PARAMS_INIT;
  EXPECT_EQ(bitexact_fused_silu_mul(nullptr, &silu, nullptr), BITEXACT_STATUS_NULL_POINTER);
  EXPECT_NE(std::string(bitexact_last_error()).find("context is null"), std::string::npos);
  EXPECT_EQ(bitexact_fused_rope(nullptr, &rope, nullptr), BITEXACT_STATUS_NULL_POINTER);
  const Context context = make_context(BITEXACT_DEVICE_HOST);
  EXPECT_EQ(bitexact_fused_silu_mul(context.get(), nullptr, nullptr), BITEXACT_STATUS_NULL_POINTER);
  EXPECT_EQ(bitexact_fused_rope(context.get(), nullptr, nullptr), BITEXACT_STATUS_NULL_POINTER);
  EXPECT_EQ(bitexact_context_get_info(context.get(), nullptr), BITEXACT_STATUS_NULL_POINTER);
  EXPECT_EQ(bitexact_gate_count(context.get(), nullptr), BITEXACT_STATUS_NULL_POINTER);
  EXPECT_EQ(bitexact_gate_get(context.get(), 0, nullptr), BITEXACT_STATUS_NULL_POINTER);
  EXPECT_EQ(bitexact_context_create(nullptr, nullptr), BITEXACT_STATUS_NULL_POINTER);
  bitexact_gate_report report = BITEXACT_GATE_REPORT_INIT;
  int64_t count = 0;
  ASSERT_EQ(bitexact_gate_count(context.get(), &count), BITEXACT_STATUS_OK);
  EXPECT_EQ(bitexact_gate_get(context.get(), -1, &report), BITEXACT_STATUS_INDEX);
  EXPECT_EQ(bitexact_gate_get(context.get(), count, &report), BITEXACT_STATUS_INDEX);
  bitexact_context_destroy(nullptr);
}

TEST(Refusals, ContextOptions) {
  struct Row {
    int32_t bitexact_context_options::*field;
    int32_t value, status;
  };
  for (const Row& row : {Row{&bitexact_context_options::gate_policy, 5, BITEXACT_STATUS_INVALID_VALUE},
                         Row{&bitexact_context_options::reference_mode, 2, BITEXACT_STATUS_INVALID_VALUE},
                         Row{&bitexact_context_options::device, -2, BITEXACT_STATUS_INVALID_DEVICE},
                         Row{&bitexact_context_options::reserved, 1, BITEXACT_STATUS_UNKNOWN_FIELD}}) {
    bitexact_context_options options = BITEXACT_CONTEXT_OPTIONS_INIT;
    options.device = BITEXACT_DEVICE_HOST;
    options.*row.field = row.value;
    bitexact_context* context = nullptr;
    EXPECT_EQ(bitexact_context_create(&options, &context), row.status);
    EXPECT_EQ(context, nullptr);
  }
}

// Nothing to do is success, with null pointers, and leaves no trace in the gate.
TEST(Empty, EachZeroSizeIsSuccess) {
  const Context context = make_context(BITEXACT_DEVICE_HOST);
  for (int64_t bitexact_silu_mul_params::*size :
       {&bitexact_silu_mul_params::batches, &bitexact_silu_mul_params::rows,
        &bitexact_silu_mul_params::cols}) {
    bitexact_silu_mul_params p = BITEXACT_SILU_MUL_PARAMS_INIT;
    p.dtype = BITEXACT_DTYPE_BFLOAT16;
    p.batches = p.rows = p.cols = 4;
    p.*size = 0;
    EXPECT_EQ(bitexact_fused_silu_mul(context.get(), &p, nullptr), BITEXACT_STATUS_OK)
        << bitexact_last_error();
  }
  using P = bitexact_rope_params;
  for (const auto& spoil : std::vector<std::function<void(P&)>>{
           [](P& p) { p.batches = 0; }, [](P& p) { p.tokens = 0; }, [](P& p) { p.q_heads = 0; },
           [](P& p) { p.head_dim = p.rotary_dim = p.table_width = 0; }}) {
    P p = BITEXACT_ROPE_PARAMS_INIT;
    p.dtype = BITEXACT_DTYPE_BFLOAT16;
    p.batches = p.tokens = p.q_heads = 2;
    p.head_dim = p.rotary_dim = p.table_width = 8;
    spoil(p);
    EXPECT_EQ(bitexact_fused_rope(context.get(), &p, nullptr), BITEXACT_STATUS_OK) << bitexact_last_error();
  }
  EXPECT_TRUE(stories(context.get()).empty());
}

// Sizes beyond 32 bits pass as they are: nothing is narrowed on the way.
TEST(Large, SizesBeyond32BitsAreAccepted) {
  bitexact_silu_mul_params p = BITEXACT_SILU_MUL_PARAMS_INIT;
  p.dtype = BITEXACT_DTYPE_BFLOAT16;
  p.batches = 1;
  p.rows = (int64_t{1} << 32) + 8;
  p.cols = 3;
  p.gate = reinterpret_cast<void*>(uintptr_t{1} << 44);
  p.up = reinterpret_cast<void*>(uintptr_t{2} << 44);
  p.out = reinterpret_cast<void*>(uintptr_t{3} << 44);
  p.gate_row_stride = p.up_row_stride = p.out_row_stride = 3;
  EXPECT_EQ(bitexact_fused_silu_mul_can_use(nullptr, &p), BITEXACT_STATUS_OK) << bitexact_last_error();
  p.rows = int64_t{1} << 44;  // 96 TB: runs into the next tensor
  EXPECT_EQ(bitexact_fused_silu_mul_can_use(nullptr, &p), BITEXACT_STATUS_OVERLAP);
}

}  // namespace
