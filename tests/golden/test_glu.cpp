// The sigmoid over all 16-bit inputs, from what PyTorch on a GPU gave for two other functions of the same exponential.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>
#include <vector>

#include "golden.h"
#include "host/sha256.h"
#include "host/silu_table.h"
#include "reference/reference.h"

namespace {

using bitexact::Dtype;
using namespace bitexact_reference;

float value_of(Dtype dtype, uint16_t bits) {
  return dtype == Dtype::bfloat16 ? from_bfloat16(bits) : from_float16(bits);
}
uint16_t bits_of(Dtype dtype, float value) {
  return dtype == Dtype::bfloat16 ? to_bfloat16(value) : to_float16(value);
}

// Every sigmoid that some exponential gives with which silu in float32 is what was captured. CUDA's is within a
// step of the nearest; here six are tried.
std::set<uint16_t> possible_sigmoids(Dtype dtype, float x, uint32_t silu) {
  std::set<uint16_t> found;
  float e = std::exp(-x);
  for (int step = 0; step < 6; ++step) e = std::nextafter(e, 0.0f);
  for (int step = -6; step <= 6; ++step, e = std::nextafter(e, HUGE_VALF)) {
    const float d = 1.0f + e, s = x / d;
    uint32_t bits;
    std::memcpy(&bits, &s, sizeof(bits));
    if (std::isnan(s) ? silu == 0x7fffffff : bits == silu) found.insert(bits_of(dtype, 1.0f / d));
  }
  return found;
}

TEST(Glu, TheHostsTableFollowsFromWhatWasCaptured) {
  const std::string directory = bitexact_golden::golden_directory();
  for (const Dtype dtype : {Dtype::bfloat16, Dtype::float16}) {
    const std::vector<uint32_t> silu =
        bitexact_golden::load_silu32_table(directory, static_cast<int32_t>(dtype));
    const bitexact::SiluTable& table = bitexact::silu_table(dtype, bitexact::Silu::glu);
    EXPECT_TRUE(table.proven);
    std::vector<uint16_t> undecided, product(0x10000);
    for (uint32_t gate = 0; gate < 0x10000; ++gate) {
      const float x = value_of(dtype, static_cast<uint16_t>(gate));
      const std::set<uint16_t> possible = possible_sigmoids(dtype, x, silu[gate]);
      EXPECT_EQ(possible.count(table.at[gate]), 1u) << std::hex << gate;
      if (possible.size() != 1) undecided.push_back(static_cast<uint16_t>(gate));
      product[gate] = bits_of(dtype, x * value_of(dtype, table.at[gate]));
    }
    // There x * sigmoid(x) decides, which shows a step of the sigmoid.
    EXPECT_EQ(undecided, dtype == Dtype::float16 ? std::vector<uint16_t>{0x1f00} : std::vector<uint16_t>{});
    EXPECT_EQ(bitexact::sha256(product.data(), product.size() * 2),
              bitexact_golden::load_table_sha256(directory, "silu_sigmoid", static_cast<int32_t>(dtype)));
  }
}

}  // namespace
