#include <gtest/gtest.h>

#include <set>
#include <string>

#include "kernel_table.h"
#include "probe.h"
#include "variants.h"

using namespace bitexact;

namespace {

TEST(KernelTable, NumbersAndPropertiesAreInverse) {
  for (int k = 0; k < kernel_count; ++k) {
    if (is_rope(k)) {
      EXPECT_EQ(kernel_of(rope_kernel(k).args, rope_kernel(k).variant), k) << kernel_name(k);
    } else {
      EXPECT_EQ(kernel_of(silu_mul_kernel(k).args, silu_mul_kernel(k).variant), k) << kernel_name(k);
    }
  }
}

TEST(KernelTable, TheSuccessorOfAFastKernelIsTheIeeeOneBesideIt) {
  int fast = 0;
  for (int k = 0; k < kernel_count; ++k) {
    const int next = successor_of(k);
    if (next == k) continue;
    ++fast;
    EXPECT_EQ(successor_of(next), next);
    EXPECT_EQ(probe_of(next), probe_of(k));
    EXPECT_EQ(std::string(kernel_name(next)) + "_fast", kernel_name(k));
    EXPECT_TRUE(may_be_fast(silu_mul_kernel(k).args));
  }
  EXPECT_EQ(fast, silu_mul_fast_count * 3);
}

TEST(KernelTable, NamesAreUnique) {
  std::set<std::string> names;
  for (int k = 0; k < kernel_count; ++k) names.insert(kernel_name(k));
  EXPECT_EQ(names.size(), static_cast<size_t>(kernel_count));
}

// What the self-check would run for a kernel is that very kernel: its probe holds calls that meet the demands
// of the variant, full and half tables and heads that lanes align and pack among them, so forcing the variant on those
// is sound.
TEST(KernelTable, EveryProbeFitsItsKernel) {
  void* const aligned = reinterpret_cast<void*>(uintptr_t{1} << 20);
  for (int k = 0; k < kernel_count; ++k) {
    int fitting = 0, full[2] = {}, half[2] = {};
    auto look = [&](const auto& kernel) {
      for (const auto& a : make_probe(kernel.args).cases) {
        const auto call = redirected(located(a, aligned), aligned);
        if (!fits(call, kernel.variant)) continue;
        EXPECT_EQ(kernel_of(call, kernel.variant), k);
        ++fitting;
        if constexpr (std::is_same<decltype(kernel.args), RopeArgs>::value) {
          const int64_t elements =
              vector_bytes(size_of(a.dtype), size_of(a.table_dtype), a.pairing_in, kernel.variant) /
              size_of(a.dtype);
          ++(a.full_table ? full : half)[are_packed(lane_vectors(call, elements)) ? 1 : 0];
        }
      }
    };
    if (is_rope(k)) {
      look(rope_kernel(k));
      for (const int* found : {full, half}) {
        EXPECT_GE(found[0], 1) << kernel_name(k);
        EXPECT_GE(found[1], 1) << kernel_name(k);
      }
    } else {
      look(silu_mul_kernel(k));
      EXPECT_GE(fitting, 9) << kernel_name(k);
    }
  }
}

struct VariantCase {
  int64_t address, row;
  SiluMulVariant variant;
};

TEST(Dispatch, SiluMulVariantFollowsRealAlignment) {
  for (const VariantCase& c : {VariantCase{256, 64, SiluMulVariant::vec16},
                               {264, 64, SiluMulVariant::vec8},
                               {256, 68, SiluMulVariant::vec8},
                               {258, 64, SiluMulVariant::scalar},
                               {256, 65, SiluMulVariant::scalar}}) {
    SiluMulArgs a{};
    a.dtype = Dtype::float16;
    a.batches = 1;
    a.cols = 64;
    a.rows = silu_mul_many / a.cols;
    a.gate = a.up = a.out = {reinterpret_cast<void*>(c.address), 0, c.row};
    EXPECT_EQ(choose_variant(a), c.variant) << c.address << " " << c.row;
    a.dtype = Dtype::bfloat16;
    EXPECT_EQ(choose_variant(a), with_fast(c.variant));
    for (Rows SiluMulArgs::*one :
         {&SiluMulArgs::gate, &SiluMulArgs::up, &SiluMulArgs::out}) {  // each pointer counts
      SiluMulArgs b = a;
      b.gate = b.up = b.out = {reinterpret_cast<void*>(int64_t{256}), 0, 64};
      b.*one = {reinterpret_cast<void*>(c.address), 0, c.row};
      EXPECT_EQ(choose_variant(b), with_fast(c.variant));
    }
    a.cols *= a.rows;
    a.rows = 1;  // then row strides do not matter
    a.gate.row = a.up.row = a.out.row = 65;
    if (c.address == 256) {
      EXPECT_EQ(choose_variant(a), SiluMulVariant::vec16_fast);
    }
  }
}

TEST(Dispatch, FewSixteenBitElementsTakeNarrowVectors) {
  const auto n8 = SiluMulVariant::vec8, n16 = SiluMulVariant::vec16;
  struct Case {
    Dtype dtype;
    bool compute_float32;
    int64_t many;
    SiluMulVariant few, enough;
  };
  for (const Case& c : {Case{Dtype::bfloat16, false, silu_mul_many_fast, with_fast(n8), with_fast(n16)},
                        Case{Dtype::bfloat16, true, silu_mul_many, n8, n16},
                        Case{Dtype::float16, false, silu_mul_many, n8, n16},
                        Case{Dtype::float32, false, silu_mul_many, n16, n16}}) {
    SiluMulArgs a{};
    a.dtype = c.dtype;
    a.compute_float32 = c.compute_float32;
    a.batches = a.rows = 1;
    a.gate = a.up = a.out = {reinterpret_cast<void*>(int64_t{256}), 0, 0};
    a.cols = c.many;
    EXPECT_EQ(choose_variant(a), c.enough);
    a.cols = c.many - 1;
    EXPECT_EQ(choose_variant(a), c.few);
  }
}

// Kernels number the vectors of a row in 32 bits.
TEST(Dispatch, SiluMulOfVeryLongRowsIsScalar) {
  SiluMulArgs a{};
  a.dtype = Dtype::float32;
  a.batches = a.rows = 1;
  a.gate = a.up = a.out = {reinterpret_cast<void*>(int64_t{256}), 0, 0};
  a.cols = 4 * int64_t{INT32_MAX};
  EXPECT_EQ(choose_variant(a), SiluMulVariant::vec16);
  ++a.cols;
  EXPECT_EQ(choose_variant(a), SiluMulVariant::scalar);
}

// Rows of one vector, whose number no factor divides by, and more vectors than one number names.
TEST(Dispatch, SiluMulOfVeryShortOrTooManyRows) {
  SiluMulArgs a{};
  a.dtype = Dtype::float32;
  a.batches = 1;
  a.rows = 2;
  a.gate = a.up = a.out = {reinterpret_cast<void*>(int64_t{256}), 0, 64};
  for (const auto& [cols, variant] : {std::pair<int64_t, SiluMulVariant>{8, SiluMulVariant::vec16},
                                      {7, SiluMulVariant::vec8},
                                      {4, SiluMulVariant::vec8},
                                      {3, SiluMulVariant::scalar}}) {
    a.cols = cols;
    EXPECT_EQ(choose_variant(a), variant) << cols;
  }
  a.cols = INT32_MAX / 8;  // a row that both inputs have once for all: its bytes still name a step
  a.gate.row = a.up.row = 0;
  a.out.row = a.cols / 4 * 4;
  EXPECT_EQ(choose_variant(a), SiluMulVariant::vec16);
  ++a.cols;
  EXPECT_EQ(choose_variant(a), SiluMulVariant::scalar);
  a.gate.row = a.up.row = a.out.row = 64;
  a.cols = 64;
  a.rows = most_divided / 16;
  EXPECT_EQ(choose_variant(a), SiluMulVariant::vec16);
  ++a.rows;
  EXPECT_EQ(choose_variant(a), SiluMulVariant::scalar);
}

TEST(Dispatch, RopeVariantFollowsRotaryWidthAndAlignment) {
  struct Case {
    int64_t head_dim, rotary_dim, head_stride, address;
    Pairing in, out;
    RopeVariant variant;
    int64_t table_address = 256, table_stride = 1, tokens = rope_few_tokens;
  };
  constexpr int64_t few = rope_few_tokens - 1;
  const Pairing h = Pairing::half, i = Pairing::interleaved;
  const RopeVariant l = RopeVariant::vec16_lanes, n = RopeVariant::vec8_table, v = RopeVariant::vec16_table,
                    t = RopeVariant::vec16, s = RopeVariant::scalar;
  for (const Case& c : {Case{128, 128, 128, 256, h, h, l},
                        Case{128, 64, 128, 256, h, h, l},
                        Case{256, 256, 256, 256, h, h, l},
                        Case{80, 80, 80, 256, h, h, l},
                        Case{512, 512, 512, 256, h, h, v},
                        Case{132, 128, 136, 256, h, h, v},
                        Case{100, 100, 100, 256, h, h, s},
                        Case{96, 24, 96, 256, h, h, n},
                        Case{96, 24, 96, 256, i, i, v},
                        Case{128, 128, 128, 258, h, h, s},
                        Case{128, 128, 132, 256, h, h, n},
                        Case{72, 72, 72, 256, h, h, n},
                        Case{128, 128, 128, 264, h, h, n},
                        Case{128, 128, 132, 256, i, i, s},
                        Case{64, 64, 64, 256, i, h, v},
                        Case{64, 64, 64, 256, h, i, s},
                        Case{64, 64, 64, 256, h, h, t, 258},
                        Case{64, 64, 64, 256, h, h, t, 256, 2},
                        Case{64, 64, 64, 256, h, h, n, 264},
                        Case{72, 72, 72, 256, h, h, n, 256, 1, few},
                        Case{80, 80, 80, 256, h, h, l, 256, 1, few},
                        Case{512, 512, 512, 256, h, h, n, 256, 1, few},
                        Case{64, 64, 64, 256, h, h, l, 256, 1, few},
                        Case{64, 64, 64, 256, i, i, v, 256, 1, few}}) {
    RopeArgs a{};
    a.dtype = Dtype::bfloat16;
    a.batches = 1;
    a.tokens = c.tokens;
    a.heads[0] = 32;
    a.head_dim = c.head_dim;
    a.rotary_dim = c.rotary_dim;
    a.pairing_in = c.in;
    a.pairing_out = c.out;
    a.in[0] = a.out[0] = {reinterpret_cast<void*>(c.address), 0, 32 * c.head_stride, c.head_stride};
    a.cos = a.sin = {reinterpret_cast<void*>(c.table_address), 0, 0, 0, c.table_stride};
    a.table_dtype = a.compute_dtype = a.dtype;
    EXPECT_EQ(choose_variant(a), c.variant) << c.head_dim << "/" << c.rotary_dim;
  }
}

// Lanes of many tokens: where each head's entries are at hand.
TEST(Dispatch, LanesServeWhatIsAtHand) {
  RopeArgs a{};
  a.dtype = a.table_dtype = a.compute_dtype = Dtype::bfloat16;
  a.batches = 1;
  a.tokens = 4096;
  a.heads[0] = 8;
  a.head_dim = a.rotary_dim = 128;
  a.full_table = true;
  void* const data = reinterpret_cast<void*>(int64_t{256});
  a.in[0] = a.out[0] = {data, 0, 8 * 128, 128};
  a.cos = a.sin = {data, 0, 128, 0, 1};
  EXPECT_EQ(choose_variant(a), RopeVariant::vec16_lanes);
  // Packed heads: of 10 and 14 vectors 2 and 4 of 32 lanes are idle, of 12 vectors 8, of 20 vectors 12.
  for (const auto& [vectors, most] : {std::pair{10, int64_t{0}}, std::pair{14, int64_t{0}},
                                      std::pair{12, int64_t{1} << 20}, std::pair{20, int64_t{1} << 18}}) {
    RopeArgs packed = a;
    packed.head_dim = packed.rotary_dim = 8 * vectors;
    packed.in[0].token = packed.out[0].token = 8 * packed.head_dim;
    packed.cos.token = packed.sin.token = packed.head_dim;
    packed.tokens = most == 0 ? 15000 : most / 8 / vectors;
    EXPECT_EQ(choose_variant(packed), RopeVariant::vec16_lanes) << vectors;
    ++packed.tokens;
    EXPECT_EQ(choose_variant(packed), most == 0 ? RopeVariant::vec16_lanes : RopeVariant::vec16_table)
        << vectors;
  }
  RopeArgs heads_first = a, wide = a, large = a, one_head = a;
  one_head.heads[0] = 1;
  EXPECT_EQ(choose_variant(one_head), RopeVariant::vec16_lanes);
  heads_first.in[0] = {data, 0, 128, 4096 * 128};
  EXPECT_EQ(choose_variant(heads_first), RopeVariant::vec16_table);
  wide.table_dtype = wide.compute_dtype = Dtype::float32;
  EXPECT_EQ(choose_variant(wide), RopeVariant::vec16_table);
  wide.tokens = rope_few_tokens - 1;
  EXPECT_EQ(choose_variant(wide), RopeVariant::vec16_lanes);
  large.tokens = rope_kept_bytes / (2 * 128 * 2);
  EXPECT_EQ(choose_variant(large), RopeVariant::vec16_lanes);
  ++large.tokens;
  EXPECT_EQ(choose_variant(large), RopeVariant::vec16_table);
}

// Vectors have strides of 29 bits, and between batches of 32 bits in units of 8 bytes.
TEST(Dispatch, TableVectorsHaveTheirLimits) {
  RopeArgs a{};
  a.dtype = a.table_dtype = a.compute_dtype = Dtype::bfloat16;
  a.batches = a.tokens = 2;
  a.heads[0] = a.heads[1] = 2;
  a.head_dim = a.rotary_dim = 128;
  a.full_table = true;
  void* const data = reinterpret_cast<void*>(int64_t{256});
  for (Heads* x : {&a.in[0], &a.in[1], &a.out[0], &a.out[1]}) *x = {data, 1024, 256, 128};
  a.cos = a.sin = {data, 256, 128, 0, 1};
  ASSERT_TRUE(fits(a, RopeVariant::vec16_table));
  // `alone`: of single elements, else of whole vectors.
  auto expect_limits = [&](int64_t& stride, int64_t half, bool alone = false) {
    const int64_t before = stride;
    for (const auto& [value, fit] :
         {std::pair{half - 8, true}, std::pair{half, false}, std::pair{-half, true},
          std::pair{-half - 8, false}, std::pair{before + 4, alone}}) {
      stride = value;
      EXPECT_EQ(fits(a, RopeVariant::vec16_table), fit) << value;
    }
    stride = before;
  };
  constexpr int64_t most = int64_t{1} << 28, most_batch = int64_t{1} << 33;
  for (Heads* x : {&a.in[0], &a.in[1], &a.out[0], &a.out[1]}) {
    expect_limits(x->token, most);
    expect_limits(x->head, most);
    expect_limits(x->batch, most_batch);
  }
  for (Table* x : {&a.cos, &a.sin}) {
    expect_limits(x->token, most);
    expect_limits(x->batch, most);
  }
  a.positions = {data, 2, 1, Dtype::int32};
  a.table_rows = 1;
  ASSERT_TRUE(fits(a, RopeVariant::vec16_table));
  a.cos.token = 129;  // of one row, which no call walks
  EXPECT_TRUE(fits(a, RopeVariant::vec16_table));
  expect_limits(a.positions.token, most, true);
  expect_limits(a.positions.batch, most, true);
  a.table_rows = 2;
  EXPECT_FALSE(fits(a, RopeVariant::vec16_table));
}

// Lanes number threads and places in 32 bits and have one stride for all heads and one for both tables.
TEST(Dispatch, LanesHaveTheirLimits) {
  RopeArgs a{};
  a.dtype = a.table_dtype = a.compute_dtype = Dtype::bfloat16;
  a.batches = 1;
  a.tokens = 16;
  a.heads[0] = a.heads[1] = 8;
  a.head_dim = a.rotary_dim = 128;
  a.full_table = true;
  void* const data = reinterpret_cast<void*>(int64_t{256});
  for (Heads* x : {&a.in[0], &a.in[1], &a.out[0], &a.out[1]}) *x = {data, 0, 8 * 128, 128};
  a.cos = a.sin = {data, 0, 128, 0, 1};
  ASSERT_EQ(choose_variant(a), RopeVariant::vec16_lanes);
  auto fits_changed = [&](auto change) {
    RopeArgs b = a;
    change(b);
    return fits(b, RopeVariant::vec16_lanes);
  };
  // Threads: all strides 0, since as many tokens would not fit otherwise.
  auto of_tokens = [](RopeArgs& b, int64_t tokens) {
    for (Heads* x : {&b.in[0], &b.in[1], &b.out[0], &b.out[1]}) x->token = 0;
    b.cos.token = b.sin.token = 0;
    b.tokens = tokens;
  };
  const int64_t most_tokens = most_divided / rope_lanes / 16;
  EXPECT_TRUE(fits_changed([&](RopeArgs& b) { of_tokens(b, most_tokens); }));
  EXPECT_FALSE(fits_changed([&](RopeArgs& b) { of_tokens(b, most_tokens + 1); }));
  EXPECT_FALSE(fits_changed([&](RopeArgs& b) { of_tokens(b, most_tokens / 2 + 1), b.batches = 2; }));
  // Places: the heads of k are counted behind those of q.
  constexpr int64_t elements = int64_t{1} << 31, rest = 16 * 128 + 128;
  for (const bool out : {false, true}) {
    for (const int which : {0, 1}) {
      auto heads = [&](RopeArgs& b) -> Heads& { return out ? b.out[which] : b.in[which]; };
      EXPECT_TRUE(fits_changed([&](RopeArgs& b) { heads(b).token = (elements - rest - 8) / 15 / 8 * 8; }));
      EXPECT_FALSE(fits_changed([&](RopeArgs& b) { heads(b).token = (elements - 128) / 15 / 8 * 8; }));
      EXPECT_FALSE(fits_changed([&](RopeArgs& b) { heads(b).token = -8 * 128; }));
      EXPECT_FALSE(fits_changed([&](RopeArgs& b) { heads(b).head = 136; }));
      EXPECT_TRUE(fits_changed([&](RopeArgs& b) { heads(b).head = 0, b.heads[which] = 1; }));
      EXPECT_FALSE(fits_changed([&](RopeArgs& b) { b.batches = 2, heads(b).batch = elements; }));
      EXPECT_FALSE(fits_changed([&](RopeArgs& b) { b.batches = 2, heads(b).batch = -16 * 8 * 128; }));
      EXPECT_TRUE(fits_changed([&](RopeArgs& b) { b.batches = 2, heads(b).batch = 16 * 8 * 128; }));
    }
    EXPECT_FALSE(fits_changed([&](RopeArgs& b) {
      for (Heads& x : out ? b.out : b.in) x.head = -128;
    }));
  }
  // Tables.
  EXPECT_FALSE(fits_changed([](RopeArgs& b) { b.cos.token = 136; }));
  EXPECT_FALSE(fits_changed([](RopeArgs& b) { b.cos.token = b.sin.token = -128; }));
  EXPECT_FALSE(fits_changed([](RopeArgs& b) { b.batches = 2, b.sin.batch = 16 * 128; }));
  EXPECT_TRUE(fits_changed([](RopeArgs& b) { b.batches = 2, b.cos.batch = b.sin.batch = 16 * 128; }));
  auto by_position = [&](RopeArgs& b, int64_t rows) {
    b.positions = {data, 0, 1, Dtype::int32}, b.table_rows = rows;
  };
  EXPECT_TRUE(fits_changed([&](RopeArgs& b) { by_position(b, elements / 128); }));
  EXPECT_FALSE(fits_changed([&](RopeArgs& b) { by_position(b, elements / 128 + 1); }));
  EXPECT_FALSE(fits_changed([&](RopeArgs& b) { by_position(b, 0); }));
}

// What is never walked may be anything; what is may be long.
TEST(Dispatch, StridesOfAxesOfOneDoNotMatter) {
  auto variant_of = [](auto a) {
    collapse(a);
    return choose_variant(a);
  };
  constexpr int64_t any = INT64_MAX;
  SiluMulArgs s{};
  s.dtype = Dtype::bfloat16;
  s.batches = s.rows = 1;
  s.cols = silu_mul_many;
  s.gate = s.up = s.out = {reinterpret_cast<void*>(int64_t{256}), any, any};
  EXPECT_EQ(variant_of(s), SiluMulVariant::vec16_fast);

  RopeArgs a{};
  a.dtype = a.table_dtype = a.compute_dtype = Dtype::bfloat16;
  a.batches = a.tokens = a.heads[0] = 1;
  a.head_dim = a.rotary_dim = 128;
  void* const data = reinterpret_cast<void*>(int64_t{256});
  a.in[0] = a.out[0] = {data, any, any, any};
  a.in[1] = a.out[1] = {nullptr, any, any, any};
  a.cos = a.sin = {data, any, any, any, 1};
  EXPECT_EQ(variant_of(a), RopeVariant::vec16_lanes);
  a.tokens = 75600;
  a.heads[0] = 40;
  a.in[0] = a.out[0] = {data, any, 40 * 128, 128};
  a.cos = a.sin = {data, any, 128, 0, 1};
  EXPECT_EQ(variant_of(a), RopeVariant::vec16_table);
  a.batches = 2;  // with the same tables, so that batches do not fold into tokens
  a.in[0].batch = a.out[0].batch = a.tokens * 40 * 128;
  a.cos.batch = a.sin.batch = 0;
  EXPECT_EQ(variant_of(a), RopeVariant::vec16_table);
}

}  // namespace
