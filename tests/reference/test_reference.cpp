// The reference against figures worked out by hand, exact arithmetic on small integers, and whole domains.
#include "reference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "host/sha256.h"

namespace bitexact_reference {
namespace {

constexpr int32_t bf16 = BITEXACT_DTYPE_BFLOAT16, fp16 = BITEXACT_DTYPE_FLOAT16;
constexpr int32_t fp32 = BITEXACT_DTYPE_FLOAT32, fp64 = BITEXACT_DTYPE_FLOAT64;

float as_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

uint32_t as_bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

// Results as bits: gtest's == on floats would call -0 and +0 equal.
uint16_t silu_mul16(int32_t dtype, uint16_t gate, uint16_t up, int32_t silu = BITEXACT_SILU_ATEN,
                    int32_t compute = 0, int32_t clamp = 0, float limit = 0.0f) {
  uint16_t out = 0xdead;
  bitexact_silu_mul_params p = BITEXACT_SILU_MUL_PARAMS_INIT;
  p.dtype = dtype, p.silu = silu, p.compute_dtype = compute;
  p.clamp = clamp, p.limit_bits = as_bits(limit);
  p.batches = p.rows = p.cols = 1;
  p.gate = &gate, p.up = &up, p.out = &out;
  silu_mul(p);
  return out;
}

uint16_t one_of(int32_t dtype) { return dtype == bf16 ? 0x3f80 : 0x3c00; }

// One pair: T is the tensors' carrier, U the tables'.
template <class T>
struct Turned {
  T first, second;
  bool operator==(const Turned& other) const { return first == other.first && second == other.second; }
};

template <class T, class U>
Turned<T> turn(int32_t dtype, int32_t table_dtype, T x1, T x2, U cos, U sin, int32_t combine = 0,
               int32_t compute = 0, uint32_t flags = 0) {
  const T in[2] = {x1, x2};
  T out[2] = {};
  bitexact_rope_params p = BITEXACT_ROPE_PARAMS_INIT;
  p.dtype = dtype, p.table_dtype = table_dtype, p.combine = combine, p.compute_dtype = compute,
  p.flags = flags;
  p.batches = p.tokens = p.q_heads = p.table_width = p.table_rows = 1;
  p.head_dim = p.rotary_dim = 2;
  p.q_in = in, p.q_out = out, p.cos = &cos, p.sin = &sin;
  p.cos_element_stride = p.sin_element_stride = 1;
  rope(p, nullptr);
  return {out[0], out[1]};
}

Turned<uint32_t> turn32(uint32_t x1, uint32_t x2, uint32_t cos, uint32_t sin, int32_t combine = 0,
                        uint32_t flags = 0) {
  return turn(fp32, fp32, x1, x2, cos, sin, combine, 0, flags);
}

// ----------------------------------------------------------------------------- conversions --

struct Format16 {
  const char* name;
  uint16_t (*to)(float);
  float (*from)(uint16_t);
  uint16_t infinity;
};

class Conversion : public testing::TestWithParam<Format16> {};
INSTANTIATE_TEST_SUITE_P(All, Conversion,
                         testing::Values(Format16{"bfloat16", to_bfloat16, from_bfloat16, 0x7f80},
                                         Format16{"float16", to_float16, from_float16, 0x7c00}),
                         [](const auto& info) { return info.param.name; });

TEST_P(Conversion, EveryPatternSurvivesARoundTrip) {
  const Format16& f = GetParam();
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const bool nan = (bits & 0x7fff) > f.infinity;
    const uint16_t expected = nan ? 0x7fff : static_cast<uint16_t>(bits);
    ASSERT_EQ(f.to(f.from(static_cast<uint16_t>(bits))), expected) << std::hex << bits;
  }
}

// A float halfway between neighbours goes to the even one; one float step aside decides. The last pair is the
// largest finite value and the power of two above it, where infinity begins.
TEST_P(Conversion, EveryTieGoesToTheEvenNeighbour) {
  const Format16& f = GetParam();
  for (uint16_t sign : {0x0000, 0x8000}) {
    for (uint16_t low = 0; low < f.infinity; ++low) {
      const uint16_t high = static_cast<uint16_t>(low + 1);
      const double step =
          static_cast<double>(f.from(low)) - f.from(static_cast<uint16_t>(low == 0 ? 0 : low - 1));
      const double above = high == f.infinity ? f.from(low) + step : f.from(high);
      const float middle = static_cast<float>((f.from(low) + above) / 2);
      const float s = sign != 0 ? -1.0f : 1.0f;
      ASSERT_EQ(f.to(s * middle), sign | (low % 2 == 0 ? low : high)) << std::hex << low;
      ASSERT_EQ(f.to(s * std::nextafter(middle, 0.0f)), sign | low) << std::hex << low;
      ASSERT_EQ(f.to(s * std::nextafter(middle, INFINITY)), sign | high) << std::hex << low;
    }
  }
}

TEST(ConversionToBfloat16, EveryUpperHalfWithATieAndOneStepAround) {
  for (uint32_t upper = 0; upper < 0x10000; ++upper) {
    if ((upper & 0x7fff) >= 0x7f80) continue;  // infinities and NaN have no lower half to round
    const uint32_t even = upper + (upper & 1);
    EXPECT_EQ(to_bfloat16(as_float(upper << 16 | 0x7fff)), upper);
    EXPECT_EQ(to_bfloat16(as_float(upper << 16 | 0x8000)), even);
    EXPECT_EQ(to_bfloat16(as_float(upper << 16 | 0x8001)), upper + 1);
  }
}

TEST(ConversionToBfloat16, EveryNanStaysNan) {
  for (uint32_t bits : {0x7f800001u, 0x7fffffffu, 0x7fc00000u, 0xff800001u, 0xffffffffu}) {
    EXPECT_EQ(to_bfloat16(as_float(bits)), 0x7fff);
    EXPECT_EQ(to_float16(as_float(bits)), 0x7fff);
  }
}

TEST(Conversion, KnownValues) {
  EXPECT_EQ(to_float16(65504.0f), 0x7bff);
  EXPECT_EQ(to_float16(65519.0f), 0x7bff);
  EXPECT_EQ(to_float16(65520.0f), 0x7c00);
  EXPECT_EQ(to_float16(-1e30f), 0xfc00);
  EXPECT_EQ(to_float16(0x1p-24f), 0x0001);
  EXPECT_EQ(to_float16(0x1p-25f), 0x0000);
  EXPECT_EQ(to_float16(-0x1.8p-25f), 0x8001);
  EXPECT_EQ(to_float16(1e-40f), 0x0000);
  EXPECT_EQ(to_bfloat16(3.4028235e38f), 0x7f80);
  EXPECT_EQ(to_bfloat16(as_float(1)), 0x0000);
  EXPECT_EQ(to_bfloat16(-0.0f), 0x8000);
  EXPECT_EQ(to_bfloat16(1e-40f), 0x0001);
  EXPECT_EQ(from_bfloat16(0x3f80), 1.0f);
  EXPECT_EQ(from_float16(0x0001), 0x1p-24f);
  EXPECT_EQ(from_float16(0xc000), -2.0f);
}

// Two paths to one answer: integer rounding here, the machine's own conversion there.
TEST(ConversionToFloat32, EqualsTheMachines) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 4000000; ++i) {
    uint64_t bits = random();
    // Half of them near float's range, ties and subnormals included, where a random exponent seldom falls.
    if (i % 2 == 0) bits = (bits & 0x800fffffffffffff) | (800 + bits % 400) << 52;
    if (i % 4 == 0) bits = (bits & ~uint64_t{0x1fffffff}) | (random() % 2 << 28);
    double value;
    std::memcpy(&value, &bits, sizeof value);
    if (std::isnan(value)) continue;
    ASSERT_EQ(as_bits(to_float32(value)), as_bits(static_cast<float>(value))) << std::hexfloat << value;
  }
  EXPECT_EQ(as_bits(to_float32(std::nan(""))), 0x7fffffffu);
}

// ------------------------------------------------------------------------- single operations --

// Flags such as -ffp-contract=fast or a flush of subnormals would show here.
TEST(Arithmetic, NeitherFusesNorFlushes) {
  volatile float a = 1.0f + 0x1p-12f;
  volatile float b = 0x1p-100f;
  const float x = a, tiny = b;
  // x * x - x * x cancels to +0 exactly unless one product skipped its rounding.
  EXPECT_EQ(turn32(as_bits(x), as_bits(x), as_bits(x), as_bits(x)).first, 0u);
  EXPECT_EQ(turn32(as_bits(tiny), 0, as_bits(0x1p-40f), 0).first, as_bits(0x1p-140f));
  EXPECT_EQ(turn32(as_bits(0x1p-140f), 0, as_bits(1.0f), 0).first, as_bits(0x1p-140f));
}

// ------------------------------------------------------------------------------- silu_mul --

TEST(SiluMul, RoundsSiluBeforeTheMultiply) {
  EXPECT_EQ(silu_mul16(bf16, 0xbf68, 0x3e24), 0xbd2c);
  EXPECT_EQ(silu_mul16(fp16, 0xbf73, 0x3ff0), 0xb7f2);
}

TEST(SiluMul, Float32ComputeRoundsOnce) {
  EXPECT_EQ(silu_mul16(bf16, 0xbf68, 0x3e24, BITEXACT_SILU_ATEN, fp32), 0xbd2b);
  EXPECT_EQ(silu_mul16(fp16, 0xbf73, 0x3ff0, BITEXACT_SILU_ATEN, fp32), 0xb7f3);
}

TEST(SiluMul, KeepsSubnormalResults) {
  EXPECT_EQ(silu_mul16(bf16, 0xc2b1, 0x3f80), 0x82dd);
  EXPECT_EQ(silu_mul16(bf16, 0xc2b1, 0x3c24), 0x8023);
}

TEST(SiluMul, TailOfLargeNegativeGates) {
  const float gates[] = {-87.0f, -87.5f, -88.0f, -88.5f, -89.0f, -100.0f};
  const uint16_t expected[] = {0x83f4, 0x8395, 0x8335, 0x82dd, 0x8000, 0x8000};
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(from_bfloat16(to_bfloat16(gates[i])), gates[i]) << "the gate must be exact in bfloat16";
    EXPECT_EQ(silu_mul16(bf16, to_bfloat16(gates[i]), 0x3f80), expected[i]) << gates[i];
  }
}

TEST(SiluMul, SpecialValues) {
  for (int32_t dtype : {bf16, fp16}) {
    const uint16_t one = one_of(dtype), inf = dtype == bf16 ? 0x7f80 : 0x7c00;
    const uint16_t minus_inf = static_cast<uint16_t>(0x8000 | inf);
    EXPECT_EQ(silu_mul16(dtype, 0x0000, one), 0x0000);
    EXPECT_EQ(silu_mul16(dtype, 0x8000, one), 0x8000);
    EXPECT_EQ(silu_mul16(dtype, inf, one), inf);
    EXPECT_EQ(silu_mul16(dtype, minus_inf, one), 0x7fff);
    EXPECT_EQ(silu_mul16(dtype, 0x0000, inf), 0x7fff);
    EXPECT_EQ(silu_mul16(dtype, 0xffff, one), 0x7fff);
    EXPECT_EQ(silu_mul16(dtype, one, static_cast<uint16_t>(inf + 1)), 0x7fff);
  }
}

// 1.0234375: the sigmoid is 0.73564..., 0.734375 in bfloat16; times 1.0234375 it is 0.75158..., 0.75. Rounded once,
// 0.75288... becomes 0.75390625.
TEST(SiluMul, GluRoundsTheSigmoidBeforeItsProduct) {
  const uint16_t x = to_bfloat16(1.0234375f);
  EXPECT_EQ(silu_mul16(bf16, x, x, BITEXACT_SILU_GLU), to_bfloat16(0.75f));
  EXPECT_EQ(silu_mul16(bf16, x, x, BITEXACT_SILU_GLU, fp32), to_bfloat16(0.75390625f));
  EXPECT_EQ(silu_mul16(bf16, 0xff80, x, BITEXACT_SILU_GLU), 0x0000);
  EXPECT_EQ(silu_mul16(fp16, 0x8000, 0xc200, BITEXACT_SILU_GLU), 0xbe00);  // half of -3
}

// Where PyTorch on a GPU gives 0x37f6 for the sigmoid: with the nearest exponential it would be 0x37f5.
TEST(SiluMul, ASigmoidThatShowsTheLastBitOfCudasExpf) {
  EXPECT_EQ(silu_mul16(fp16, 0xa140, 0x3c00, BITEXACT_SILU_GLU), 0x37f6);
}

// silu(2) is 1.76159..., 1.765625 in bfloat16; silu(1.5) is 1.22636..., 1.2265625.
TEST(SiluMul, ClampsWhereTheyStand) {
  const uint16_t one = 0x3f80, two = to_bfloat16(2.0f), minus_two = to_bfloat16(-2.0f);
  const auto clamped = [](uint16_t gate, uint16_t up, int32_t clamp, float limit, int32_t compute = 0) {
    return silu_mul16(bf16, gate, up, BITEXACT_SILU_ATEN, compute, clamp, limit);
  };
  EXPECT_EQ(clamped(two, one, BITEXACT_CLAMP_BEFORE, 1.5f), to_bfloat16(1.2265625f));
  EXPECT_EQ(clamped(two, one, BITEXACT_CLAMP_AFTER, 1.5f), to_bfloat16(1.5f));
  for (const int32_t clamp : {BITEXACT_CLAMP_BEFORE, BITEXACT_CLAMP_AFTER}) {
    EXPECT_EQ(clamped(one, two, clamp, 1.5f), silu_mul16(bf16, one, to_bfloat16(1.5f)));
    EXPECT_EQ(clamped(one, minus_two, clamp, 1.5f), silu_mul16(bf16, one, to_bfloat16(-1.5f)));
    EXPECT_EQ(clamped(minus_two, one, clamp, 1.5f),
              silu_mul16(bf16, minus_two, one));  // not limited from below
    EXPECT_EQ(clamped(0x7fc0, one, clamp, 1.5f), 0x7fff);
    EXPECT_EQ(clamped(one, 0x7fc0, clamp, 1.5f), 0x7fff);
    EXPECT_EQ(clamped(0x8000, one, clamp, 1.5f), 0x8000);
  }
  // 1.503 is 1.5 in bfloat16, but not in float32, where 1.503 times silu(1), 0.73105..., is 1.09878..., and 1.5 times
  // it 1.09658...; the middle of two bfloat16 numbers, 1.09765625, lies between.
  EXPECT_EQ(clamped(one, two, BITEXACT_CLAMP_BEFORE, 1.503f), clamped(one, two, BITEXACT_CLAMP_BEFORE, 1.5f));
  EXPECT_EQ(clamped(one, two, BITEXACT_CLAMP_BEFORE, 1.503f, fp32), to_bfloat16(1.1015625f));
  EXPECT_EQ(clamped(one, two, BITEXACT_CLAMP_BEFORE, 1.5f, fp32), to_bfloat16(1.09375f));
}

// What PyTorch's silu(x) and x * sigmoid(x) gave on a GPU over all inputs.
TEST(SiluMul, WholeTables) {
  const struct {
    int32_t dtype, silu;
    const char* sha256;
  } tables[] = {
      {bf16, BITEXACT_SILU_ATEN, "5f48cf06e46dc6cfd0977367a6a09d01eb4794c3b6c1fcd9338f52a8859ab5e2"},
      {fp16, BITEXACT_SILU_ATEN, "589977e32de09fe30ef836ffcfe55831b0f26fe46efaf8ec6c4e57d7b0d247c8"},
      {bf16, BITEXACT_SILU_SIGMOID, "6fbfdd2923d0a0f3132a7f3fe87f768c36650884871e35f0dbb3ba9a246a2058"},
      {fp16, BITEXACT_SILU_SIGMOID, "65b232e893e42b98692f019d2ac50b392f6c0dfc98683036d42f636babf7593c"}};
  for (const auto& table : tables) {
    std::vector<uint16_t> gate(0x10000), up(0x10000, one_of(table.dtype)), out(0x10000);
    for (size_t i = 0; i < gate.size(); ++i) gate[i] = static_cast<uint16_t>(i);
    bitexact_silu_mul_params p = BITEXACT_SILU_MUL_PARAMS_INIT;
    p.dtype = table.dtype, p.silu = table.silu, p.batches = p.rows = 1, p.cols = 0x10000;
    p.gate = gate.data(), p.up = up.data(), p.out = out.data();
    silu_mul(p);
    EXPECT_EQ(bitexact::sha256(out.data(), out.size() * 2), table.sha256) << table.dtype << ' ' << table.silu;
  }
}

// CUDA's expf is a step off there, and it shows: correctly rounded it would be 0x997d and 0x9cbb.
TEST(SiluMul, TwoSigmoidsShowTheLastBitOfCudasExpf) {
  EXPECT_EQ(silu_mul16(fp16, 0x9d80, 0x3c00, BITEXACT_SILU_SIGMOID), 0x997c);
  EXPECT_EQ(silu_mul16(fp16, 0xa0c0, 0x3c00, BITEXACT_SILU_SIGMOID), 0x9cba);
}

// 1.8828125: exp(-x) is 0.15216..., 0.15234375 in bfloat16; 1.15234375 becomes 1.15625; x / that is
// 1.62838..., 1.625. Without the middle rounding 1.640625, with float32 inside 1.6328125.
TEST(SiluMul, CandleRoundsEveryStep) {
  const uint16_t gate = to_bfloat16(1.8828125f);
  EXPECT_EQ(silu_mul16(bf16, gate, 0x3f80, BITEXACT_SILU_CANDLE), to_bfloat16(1.625f));
  EXPECT_EQ(silu_mul16(bf16, gate, 0x3f80), to_bfloat16(1.6328125f));
}

// 1.0234375: sigmoid is 0.73564..., 0.734375 in bfloat16; x * that is 0.75158..., 0.75. With float32 inside
// 0.75390625.
TEST(SiluMul, SigmoidIsRoundedBeforeItsProduct) {
  const uint16_t gate = to_bfloat16(1.0234375f);
  EXPECT_EQ(silu_mul16(bf16, gate, 0x3f80, BITEXACT_SILU_SIGMOID), to_bfloat16(0.75f));
  EXPECT_EQ(silu_mul16(bf16, gate, 0x3f80), to_bfloat16(0.75390625f));
}

TEST(SiluMul, StridesAndInPlace) {
  // Packed gate and up, rows of 2 * cols, a batch gap of 3; up equals 1 so that silu itself is visible.
  constexpr int64_t batches = 2, rows = 3, cols = 5, row = 2 * cols, batch = rows * row + 3;
  std::vector<uint16_t> packed(batches * batch, 0x3f80);
  for (size_t i = 0; i < packed.size(); ++i) {
    if (static_cast<int64_t>(i) % batch % row < cols) packed[i] = static_cast<uint16_t>(0x3f00 + i);
  }
  std::vector<uint16_t> before = packed;
  bitexact_silu_mul_params p = BITEXACT_SILU_MUL_PARAMS_INIT;
  p.dtype = bf16, p.batches = batches, p.rows = rows, p.cols = cols;
  p.gate = packed.data(), p.up = packed.data() + cols, p.out = packed.data();
  p.gate_batch_stride = p.up_batch_stride = p.out_batch_stride = batch;
  p.gate_row_stride = p.up_row_stride = p.out_row_stride = row;
  silu_mul(p);
  for (int64_t i = 0; i < batches * batch; ++i) {
    const size_t at = static_cast<size_t>(i);
    const bool gate = i % batch < rows * row && i % batch % row < cols;
    ASSERT_EQ(packed[at], gate ? silu_mul16(bf16, before[at], 0x3f80) : before[at]) << i;
  }
  bitexact_silu_mul_params nothing = BITEXACT_SILU_MUL_PARAMS_INIT;
  nothing.dtype = bf16, nothing.batches = 1, nothing.rows = 4;
  silu_mul(nothing);  // null pointers, zero columns
}

TEST(SiluMul, Float32) {
  float gate[] = {1.0f, -1.0f, 0.0f, -0.0f, 100.0f, -INFINITY};
  float up[] = {2.0f, 2.0f, 1.0f, 1.0f, 1.0f, 1.0f}, out[6];
  bitexact_silu_mul_params p = BITEXACT_SILU_MUL_PARAMS_INIT;
  p.dtype = fp32, p.batches = p.rows = 1, p.cols = 6;
  p.gate = gate, p.up = up, p.out = out;
  silu_mul(p);
  EXPECT_EQ(as_bits(out[0]), as_bits(2.0f * silu32(1.0f)));
  EXPECT_EQ(as_bits(out[1]), as_bits(2.0f * silu32(-1.0f)));
  EXPECT_EQ(as_bits(out[2]), 0u);
  EXPECT_EQ(as_bits(out[3]), 0x80000000u);
  EXPECT_EQ(as_bits(out[4]), as_bits(100.0f));
  EXPECT_EQ(as_bits(out[5]), 0x7fffffffu);
}

// ----------------------------------------------------------------------------------- rope --

TEST(Rope, RoundsEveryStepInTheTensorsDtype) {
  EXPECT_EQ((turn<uint16_t, uint16_t>(bf16, 0, 0x3e10, 0xbef5, 0xbf1f, 0x3f49).first), 0x3e93);
  EXPECT_EQ((turn<uint16_t, uint16_t>(fp16, 0, 0xbe82, 0xb3a3, 0xb79d, 0xbb09).first), 0x3883);
}

TEST(Rope, Float32ComputeRoundsOnce) {
  EXPECT_EQ((turn<uint16_t, uint16_t>(bf16, 0, 0x3e10, 0xbef5, 0xbf1f, 0x3f49, 0, fp32).first), 0x3e94);
  EXPECT_EQ((turn<uint16_t, uint16_t>(fp16, 0, 0xbe82, 0xb3a3, 0xb79d, 0xbb09, 0, fp32).first), 0x3884);
  // float32 tables of the same values: the promotion says float32 without being asked.
  const uint32_t cos = 0xbf1fu << 16, sin = 0x3f49u << 16;
  EXPECT_EQ((turn<uint16_t, uint32_t>(bf16, fp32, 0x3e10, 0xbef5, cos, sin).first), 0x3e94);
}

TEST(Rope, TheFusedFormsDifferFromTwoRoundings) {
  const uint32_t x1 = 0xc0023096, x2 = 0x3ff51c56, cos = 0xbf02bb02, sin = 0x3f5c1a7d;
  EXPECT_EQ(turn32(x1, x2, cos, sin).first, 0xbf1b8c52u);
  EXPECT_EQ(turn32(x1, x2, cos, sin, BITEXACT_COMBINE_COMPLEX).first, 0xbf1b8c51u);
}

// (1 + e)^2 with e = 2^-12 is 1 + 2e + e^2, rounded 1 + 2e. The difference e^2 shows which product was fused.
TEST(Rope, EachFormNamesWhichProductIsFused) {
  const float e = 0x1p-12f;
  const uint32_t a = as_bits(1 + e), minus = as_bits(-(1 + e)), left = as_bits(e * e), less = as_bits(-e * e);
  // First result x1*c - x2*s with equal members; second x2*c + x1*s with x1 = -x2.
  EXPECT_EQ(turn32(a, a, a, a).first, 0u);
  EXPECT_EQ(turn32(a, a, a, a, BITEXACT_COMBINE_COMPLEX).first, left);
  EXPECT_EQ(turn32(a, a, a, a, BITEXACT_COMBINE_COMPLEX_ALT).first, left);
  EXPECT_EQ(turn32(a, a, a, a, BITEXACT_COMBINE_ADDCMUL_COS).first, less);
  EXPECT_EQ(turn32(a, a, a, a, BITEXACT_COMBINE_ADDCMUL_X1).first, less);
  EXPECT_EQ(turn32(a, minus, a, a).second, 0u);
  EXPECT_EQ(turn32(a, minus, a, a, BITEXACT_COMBINE_COMPLEX).second, left);
  EXPECT_EQ(turn32(a, minus, a, a, BITEXACT_COMBINE_COMPLEX_ALT).second, less);
  EXPECT_EQ(turn32(a, minus, a, a, BITEXACT_COMBINE_ADDCMUL_COS).second, left);
  EXPECT_EQ(turn32(a, minus, a, a, BITEXACT_COMBINE_ADDCMUL_X1).second, less);
}

TEST(Rope, OnePointOneCancelsExactly) {
  const uint32_t v = as_bits(1.1f);
  EXPECT_EQ(turn32(v, v, v, v).first, 0u);
  // The rest of 1.1f * 1.1f beyond its float32.
  EXPECT_EQ(turn32(v, v, v, v, BITEXACT_COMBINE_COMPLEX).first, 0x3275c290u);
  EXPECT_EQ(turn32(v, v, v, v, BITEXACT_COMBINE_COMPLEX).first ^ 0x80000000u,
            turn32(v, v, v, v, BITEXACT_COMBINE_ADDCMUL_COS).first);
}

TEST(Rope, SixteenBitFusedSumsRoundTwice) {
  // (1 + 2^-7)^2 = 1 + 2^-6 + 2^-14; rounded first: 1 + 2^-6. Fused with a cancelling -(1 + 2^-6): 2^-14.
  const uint16_t one = 0x3f80, a = to_bfloat16(1 + 0x1p-7f), b = to_bfloat16(1 + 0x1p-6f);
  EXPECT_EQ((turn<uint16_t, uint16_t>(bf16, 0, a, b, a, one).first), 0x0000);
  EXPECT_EQ((turn<uint16_t, uint16_t>(bf16, 0, a, b, a, one, BITEXACT_COMBINE_COMPLEX).first),
            to_bfloat16(0x1p-14f));
  // 1 + 2^-10 plus 2^-11 * (1 - 2^-20) lies just below a tie of float16, but float32 lands on the tie, and
  // the even neighbour is above.
  const uint16_t x1 = 0x3c01, x2 = to_float16(-(1 + 0x1p-10f) * 0x1p-5f), cos = 0x3c00;
  const uint16_t sin = to_float16((1 - 0x1p-10f) * 0x1p-6f);
  EXPECT_EQ((turn<uint16_t, uint16_t>(fp16, 0, x1, x2, cos, sin, BITEXACT_COMBINE_ADDCMUL_COS).first),
            0x3c02);
}

TEST(Rope, Float64EndsThroughFloat32) {
  // x1 * c = 1 + 2^-8 + 2^-30: above the bfloat16 tie, but float32 drops 2^-30 and the tie goes to even.
  const double cos = 1 + 0x1p-8 + 0x1p-30, sin = 0;
  EXPECT_EQ((turn<uint16_t, double>(bf16, fp64, 0x3f80, 0, cos, sin).first), 0x3f80);
  const double more = 1 + 0x1p-8 + 0x1p-23;
  EXPECT_EQ((turn<uint16_t, double>(bf16, fp64, 0x3f80, 0, more, sin).first), 0x3f81);
  // Sums keep float64's digits until the end: 1 + 2^-30 - (1 + 2^-29).
  const double a = 1 + 0x1p-30;
  const uint32_t one = as_bits(1.0f);
  EXPECT_EQ((turn<uint32_t, double>(fp32, fp64, one, one, a, 1 + 0x1p-29).first), as_bits(-0x1p-30f));
}

// The product lies just below half a step of the sum: seen from float64 it is the tie.
TEST(Rope, FusedSumsRoundOnce) {
  const float x1 = 1 + 0x1p-23f, x2 = -(1 + 0x1p-23f) * 0x1p-12f, sin = (1 - 0x1p-23f) * 0x1p-12f;
  EXPECT_EQ(turn32(as_bits(x1), as_bits(x2), as_bits(1.0f), as_bits(sin), BITEXACT_COMBINE_ADDCMUL_COS).first,
            as_bits(1 + 0x1p-23f));
}

// fma in float64: 1.1f * 1.1 needs 77 digits.
TEST(Rope, Float64FusedForms) {
  const uint32_t v = as_bits(1.1f);
  const double table = 1.1;
  EXPECT_EQ((turn<uint32_t, double>(fp32, fp64, v, v, table, table).first), 0u);
  const __float128 exact = static_cast<__float128>(1.1f) * table;
  const double product = 1.1f * table;
  const float left = static_cast<float>(static_cast<double>(exact - product));
  ASSERT_NE(left, 0.0f);
  EXPECT_EQ((turn<uint32_t, double>(fp32, fp64, v, v, table, table, BITEXACT_COMBINE_COMPLEX).first),
            as_bits(left));
  EXPECT_EQ((turn<uint32_t, double>(fp32, fp64, v, v, table, table, BITEXACT_COMBINE_ADDCMUL_X1).first),
            as_bits(-left));
}

TEST(Rope, ZeroSigns) {
  const uint32_t one = as_bits(1.0f), zero = 0, minus_zero = 0x80000000u;
  // -0 * 1 - (0 * 1) = -0 - 0 = -0; a sum from +0 makes it +0.
  EXPECT_EQ(turn32(minus_zero, zero, one, one).first, minus_zero);
  EXPECT_EQ(turn32(minus_zero, zero, one, one, 0, BITEXACT_ROPE_SUM_FROM_ZERO).first, 0u);
  EXPECT_EQ(turn32(minus_zero, minus_zero, one, one).second, minus_zero);
  EXPECT_EQ(turn32(minus_zero, minus_zero, one, one, 0, BITEXACT_ROPE_SUM_FROM_ZERO).second, 0u);
  for (int32_t combine = BITEXACT_COMBINE_COMPLEX; combine <= BITEXACT_COMBINE_ADDCMUL_X1; ++combine) {
    EXPECT_EQ(turn32(minus_zero, zero, one, one, combine).first, minus_zero);
    EXPECT_EQ(turn32(minus_zero, zero, one, one, combine, BITEXACT_ROPE_SUM_FROM_ZERO).first, 0u);
  }
  // In float64 too, whose sums are its own.
  const auto first64 = [&](int32_t combine, uint32_t flags) {
    return turn<uint32_t, double>(fp32, fp64, minus_zero, zero, 1.0, 1.0, combine, 0, flags).first;
  };
  for (int32_t combine = 0; combine <= BITEXACT_COMBINE_ADDCMUL_X1; ++combine) {
    EXPECT_EQ(first64(combine, 0), minus_zero);
    EXPECT_EQ(first64(combine, BITEXACT_ROPE_SUM_FROM_ZERO), 0u);
  }
  // A sum that is not zero but rounds to it keeps its sign.
  const uint32_t tiny = as_bits(-1e-42f);
  EXPECT_EQ(
      (turn<uint16_t, uint32_t>(bf16, fp32, 0x3f80, 0, tiny, 0, 0, 0, BITEXACT_ROPE_SUM_FROM_ZERO).first),
      0x8000);
}

TEST(Rope, InverseNegatesTheSine) {
  const uint32_t a = as_bits(3.0f), b = as_bits(5.0f), c = as_bits(7.0f), s = as_bits(2.0f);
  EXPECT_EQ(turn32(a, b, c, s), (Turned<uint32_t>{as_bits(21 - 10.0f), as_bits(35 + 6.0f)}));
  EXPECT_EQ(turn32(a, b, c, s, 0, BITEXACT_ROPE_INVERSE), (Turned<uint32_t>{as_bits(31.0f), as_bits(29.0f)}));
  for (int32_t combine = 0; combine <= BITEXACT_COMBINE_ADDCMUL_X1; ++combine) {
    EXPECT_EQ(turn32(a, b, c, s ^ 0x80000000u, combine), turn32(a, b, c, s, combine, BITEXACT_ROPE_INVERSE));
  }
}

TEST(Rope, NanAndInfinity) {
  const uint32_t inf = 0x7f800000, one = as_bits(1.0f);
  EXPECT_EQ(turn32(inf, inf, one, one).first, 0x7fffffffu);
  EXPECT_EQ(turn32(inf, inf, one, one).second, inf);
  EXPECT_EQ(turn32(0xff800001u, 0, one, one), (Turned<uint32_t>{0x7fffffffu, 0x7fffffffu}));
  EXPECT_EQ(turn32(inf, 0, 0, one).first, 0x7fffffffu);
  EXPECT_EQ((turn<uint16_t, uint16_t>(fp16, 0, 0x7bff, 0xfbff, 0x3c00, 0x3c00).first), 0x7c00);
  EXPECT_EQ((turn<uint16_t, uint16_t>(fp16, 0, 0xfc01, 0, 0x3c00, 0).first), 0x7fff);
}

// ------------------------------------------------------------------------- addressing of rope --

// Small integers make every step exact, so the expected value needs no rounding, only the right addresses.
struct Layout {
  std::vector<uint16_t> data;
  int64_t batch, token, head;
  int64_t at(int64_t b, int64_t t, int64_t h, int64_t d) const {
    return b * batch + t * token + h * head + d;
  }
};

int value_of(uint16_t bits) { return static_cast<int>(from_bfloat16(bits)); }

struct Pairings {
  const char* name;
  int32_t in, out;
  bool in_place;
};

// Pairings, a table entry for each element or pair, dtype of the positions (0: none).
class Addressing : public testing::TestWithParam<std::tuple<Pairings, bool, int32_t>> {};

std::string addressing_name(const testing::TestParamInfo<Addressing::ParamType>& info) {
  const int32_t positions = std::get<2>(info.param);
  return std::string(std::get<0>(info.param).name) + (std::get<1>(info.param) ? "FullTable" : "HalfTable") +
         (positions == 0                      ? ""
          : positions == BITEXACT_DTYPE_INT32 ? "Int32"
                                              : "Int64");
}

constexpr int32_t half = BITEXACT_PAIRING_HALF, interleaved = BITEXACT_PAIRING_INTERLEAVED;
INSTANTIATE_TEST_SUITE_P(
    All, Addressing,
    testing::Combine(testing::Values(Pairings{"Half", half, half, false},
                                     Pairings{"Interleaved", interleaved, interleaved, false},
                                     Pairings{"HalfToInterleaved", half, interleaved, false},
                                     Pairings{"InterleavedToHalf", interleaved, half, false},
                                     Pairings{"HalfInPlace", half, half, true},
                                     Pairings{"InterleavedInPlace", interleaved, interleaved, true}),
                     testing::Bool(), testing::Values(0, BITEXACT_DTYPE_INT32, BITEXACT_DTYPE_INT64)),
    addressing_name);

TEST_P(Addressing, SmallIntegers) {
  const int32_t pairing_in = std::get<0>(GetParam()).in, pairing_out = std::get<0>(GetParam()).out;
  const bool in_place = std::get<0>(GetParam()).in_place, full = std::get<1>(GetParam());
  const int32_t positions_dtype = std::get<2>(GetParam());
  constexpr int64_t batches = 2, tokens = 5, head_dim = 11, rotary = 6, rows = 7, q_heads = 3, k_heads = 1;
  std::mt19937 random(7);
  auto integers = [&](int64_t count) {
    std::vector<uint16_t> values(static_cast<size_t>(count));
    for (auto& v : values) v = to_bfloat16(static_cast<float>(static_cast<int>(random() % 9) - 4));
    return values;
  };
  // q is (b, h, t, d) with padding, k is (t, b, h, d).
  Layout q{integers(2000), 500, 13, 80}, k{integers(2000), 12, 2 * 12, 12}, q_out = q, k_out = k;
  q_out.token = 12, q_out.head = 70;
  if (in_place) q_out = q;
  const int64_t width = full ? rotary : rotary / 2;
  // Tables with an element stride, a head stride and a batch stride.
  Layout cos{integers(4000), 1000, 40, 13}, sin{integers(4000), 900, 37, 12};
  constexpr int64_t cos_element = 2, sin_element = 3;
  const int64_t rows_wanted[batches][tokens] = {{6, 0, 3, 3, 1}, {2, -1, 4, 7, 5}};
  std::vector<int32_t> positions32(100);
  std::vector<int64_t> positions64(100);
  for (int64_t b = 0; b < batches; ++b) {
    for (int64_t t = 0; t < tokens; ++t) {
      positions32[static_cast<size_t>(b * 20 + t * 3)] = static_cast<int32_t>(rows_wanted[b][t]);
      positions64[static_cast<size_t>(b * 20 + t * 3)] = rows_wanted[b][t];
    }
  }
  bitexact_rope_params p = BITEXACT_ROPE_PARAMS_INIT;
  p.dtype = bf16, p.pairing_in = pairing_in, p.pairing_out = pairing_out;
  p.batches = batches, p.tokens = tokens, p.q_heads = q_heads, p.k_heads = k_heads;
  p.head_dim = head_dim, p.rotary_dim = rotary, p.table_width = width, p.table_rows = rows;
  p.q_in_batch_stride = q.batch, p.q_in_token_stride = q.token, p.q_in_head_stride = q.head;
  p.q_out_batch_stride = q_out.batch, p.q_out_token_stride = q_out.token, p.q_out_head_stride = q_out.head;
  p.k_in_batch_stride = k.batch, p.k_in_token_stride = k.token, p.k_in_head_stride = k.head;
  p.k_out_batch_stride = k_out.batch, p.k_out_token_stride = k_out.token, p.k_out_head_stride = k_out.head;
  p.cos = cos.data.data(), p.sin = sin.data.data();
  p.cos_batch_stride = cos.batch, p.cos_token_stride = cos.token, p.cos_head_stride = cos.head;
  p.sin_batch_stride = sin.batch, p.sin_token_stride = sin.token, p.sin_head_stride = sin.head;
  p.cos_element_stride = cos_element, p.sin_element_stride = sin_element;
  p.positions_dtype = positions_dtype;
  p.positions_batch_stride = 20, p.positions_token_stride = 3;
  if (positions_dtype == BITEXACT_DTYPE_INT32) p.positions = positions32.data();
  if (positions_dtype == BITEXACT_DTYPE_INT64) p.positions = positions64.data();

  Layout q_expected = q_out, k_expected = k_out;
  for (const bool is_q : {true, false}) {
    const Layout& in = is_q ? q : k;
    Layout& expected = is_q ? q_expected : k_expected;
    for (int64_t b = 0; b < batches; ++b) {
      for (int64_t t = 0; t < tokens; ++t) {
        const int64_t row = positions_dtype != 0 ? rows_wanted[b][t] : t;
        for (int64_t h = 0; h < (is_q ? q_heads : k_heads); ++h) {
          for (int64_t d = rotary; d < head_dim; ++d) {
            expected.data[static_cast<size_t>(expected.at(b, t, h, d))] =
                in.data[static_cast<size_t>(in.at(b, t, h, d))];
          }
          for (int64_t j = 0; j < rotary / 2; ++j) {
            const int64_t d1 = pairing_in == BITEXACT_PAIRING_HALF ? j : 2 * j;
            const int64_t d2 = pairing_in == BITEXACT_PAIRING_HALF ? j + 3 : 2 * j + 1;
            const int64_t o1 = pairing_out == BITEXACT_PAIRING_HALF ? j : 2 * j;
            const int64_t o2 = pairing_out == BITEXACT_PAIRING_HALF ? j + 3 : 2 * j + 1;
            uint16_t* to1 = &expected.data[static_cast<size_t>(expected.at(b, t, h, o1))];
            uint16_t* to2 = &expected.data[static_cast<size_t>(expected.at(b, t, h, o2))];
            if (row < 0 || row >= rows) {
              *to1 = *to2 = 0x7fff;
              continue;
            }
            auto entry = [&](const Layout& table, int64_t d, int64_t element) {
              return value_of(table.data[static_cast<size_t>(table.at(b, row, h, (full ? d : j) * element))]);
            };
            const int x1 = value_of(in.data[static_cast<size_t>(in.at(b, t, h, d1))]);
            const int x2 = value_of(in.data[static_cast<size_t>(in.at(b, t, h, d2))]);
            const int c1 = entry(cos, d1, cos_element), c2 = entry(cos, d2, cos_element);
            const int s1 = entry(sin, d1, sin_element), s2 = entry(sin, d2, sin_element);
            *to1 = to_bfloat16(static_cast<float>(x1 * c1 - x2 * s1));
            *to2 = to_bfloat16(static_cast<float>(x2 * c2 + x1 * s2));
          }
        }
      }
    }
  }
  // Sums start at +0 so that the integers' one zero is the expected one.
  p.flags = BITEXACT_ROPE_SUM_FROM_ZERO;
  p.q_in = in_place ? q_out.data.data() : q.data.data(), p.q_out = q_out.data.data();
  p.k_in = in_place ? k_out.data.data() : k.data.data(), p.k_out = k_out.data.data();
  int64_t errors = 0;
  rope(p, &errors);
  EXPECT_EQ(errors, positions_dtype != 0 ? 2 : 0);
  EXPECT_EQ(q_out.data, q_expected.data);
  EXPECT_EQ(k_out.data, k_expected.data);
}

TEST(Rope, TailKeepsNanPayloads) {
  const uint16_t in[4] = {0x3f80, 0x0000, 0xff81, 0x7fc1}, cos = 0x3f80, sin = 0;
  uint16_t out[4] = {};
  bitexact_rope_params p = BITEXACT_ROPE_PARAMS_INIT;
  p.dtype = bf16, p.batches = p.tokens = p.q_heads = p.table_width = p.table_rows = 1;
  p.head_dim = 4, p.rotary_dim = 2;
  p.q_in = in, p.q_out = out, p.cos = &cos, p.sin = &sin;
  rope(p, nullptr);
  EXPECT_EQ(out[0], 0x3f80);
  EXPECT_EQ(out[2], 0xff81);
  EXPECT_EQ(out[3], 0x7fc1);
  p.rotary_dim = p.table_width = 0;
  p.cos = p.sin = nullptr;
  rope(p, nullptr);
  EXPECT_EQ(std::memcmp(in, out, sizeof in), 0);
}

TEST(Rope, ZeroSizesTouchNothing) {
  for (int which = 0; which < 3; ++which) {
    bitexact_rope_params p = BITEXACT_ROPE_PARAMS_INIT;
    p.dtype = bf16, p.batches = p.tokens = p.q_heads = p.k_heads = 2, p.head_dim = 4, p.rotary_dim = 4;
    p.table_width = 4, p.table_rows = 2;
    if (which == 0) p.batches = 0;
    if (which == 1) p.tokens = 0;
    if (which == 2) p.q_heads = p.k_heads = 0;
    rope(p, nullptr);  // every pointer is null
  }
}

}  // namespace
}  // namespace bitexact_reference
