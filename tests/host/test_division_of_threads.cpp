// Which thread takes what: the numbers that kernels get, applied as kernels apply them.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "fused_rope_lanes.h"
#include "fused_silu_mul_vector.h"

namespace bitexact {
namespace {

uint32_t quotient(uint32_t n, Reciprocal r) {
  return static_cast<uint32_t>(uint64_t{n} * r.factor >> 32) >> r.shift;
}
uint32_t quotient(uint32_t n, uint32_t factor, uint8_t shift) { return quotient(n, {factor, shift}); }

TEST(Reciprocal, IsExactBelow31Bits) {
  std::vector<int64_t> divisors;
  for (int64_t d = 2; d < 3000; ++d) divisors.push_back(d);
  for (int shift = 11; shift < 31; ++shift) {
    for (const int64_t by : {-1, 0, 1}) divisors.push_back((int64_t{1} << shift) + by);
  }
  for (const int64_t d : divisors) {
    const Reciprocal r = reciprocal(d);
    // A quotient is wrong first beside a multiple, and where the numbers are greatest.
    const int64_t last = ((int64_t{1} << 31) - 1) / d;
    for (const int64_t q : {int64_t{0}, int64_t{1}, last / 2, last - 1, last}) {
      for (const int64_t n : {q * d - 1, q * d, q * d + d - 1}) {
        if (n < 0 || n >= int64_t{1} << 31) continue;
        ASSERT_EQ(quotient(static_cast<uint32_t>(n), r), n / d) << n << " / " << d;
      }
    }
  }
  EXPECT_EQ(reciprocal(1).factor, 0u);
}

using Place = std::pair<int64_t, int64_t>;  // of a first byte from the tensor's, and how many elements

// Where the threads of batch 1 find what they read of gate.
std::vector<Place> places(const SiluMulArgs& a, int64_t vector_bytes) {
  const SiluMulVectorArgs v = vector_args(a, vector_bytes);
  const int64_t size = size_of(a.dtype), n = vector_bytes / size;
  std::vector<Place> found;
  for (uint32_t i = 0; i < v.total; ++i) {
    const int64_t r = quotient(i, v.whole_factor, v.whole_shift);
    found.push_back({v.gate_batch + r * v.gate_step + int64_t{i} * vector_bytes, n});
  }
  for (uint32_t j = 0; j < v.rest_total; ++j) {
    const int64_t r = j / v.rest, column = v.whole * n + j - r * v.rest;
    found.push_back({v.gate_batch + r * v.gate_row + column * size, 1});
  }
  return found;
}

TEST(SiluMulThreads, TakeEachElementOnce) {
  for (const Dtype dtype : {Dtype::bfloat16, Dtype::float32}) {
    for (const int64_t rows : {1, 2, 3, 129, 70000}) {
      for (const int64_t cols : {8, 9, 16, 23, 1000, 4099}) {
        for (const int64_t bytes : {8, 16}) {
          if (rows * cols > 1 << 22 || (rows > 1 && cols * size_of(dtype) < 2 * bytes)) continue;
          SiluMulArgs a{};
          a.dtype = dtype;
          a.batches = 2;
          a.rows = rows;
          a.cols = cols;
          const int64_t row = rows == 1 ? 0 : cols + 40, batch = rows * (cols + 40) + 80;
          a.gate = a.up = a.out = {nullptr, batch, row};
          std::vector<bool> taken(static_cast<size_t>(rows * cols));
          int64_t count = 0;
          for (const auto& [at, n] : places(a, bytes)) {
            const int64_t element = at / size_of(dtype) - batch, r = row == 0 ? 0 : element / row,
                          c = element - r * row;
            ASSERT_TRUE(at % size_of(dtype) == 0 && r >= 0 && r < rows && c >= 0 && c + n <= cols) << at;
            for (int64_t k = 0; k < n; ++k, ++count) taken[static_cast<size_t>(r * cols + c + k)] = true;
          }
          EXPECT_EQ(count, rows * cols);
          EXPECT_EQ(std::count(taken.begin(), taken.end(), true), count) << rows << " x " << cols;
        }
      }
    }
  }
}

// Every thread of the form of lanes, as its kernel numbers them.
TEST(RopeLanes, TakeEachVectorOfEachHeadOnce) {
  struct Case {
    int64_t batches, q_heads, k_heads, head_dim, rotary_dim;
    bool in_place;
  };
  std::vector<Case> cases{{1, 32, 8, 128, 128, false}, {1, 1, 1, 128, 64, false}, {3, 0, 5, 128, 128, false},
                          {2, 7, 0, 128, 96, false},   {2, 1, 0, 128, 96, true},  {3, 4, 1, 128, 32, true}};
  for (int64_t vectors = 3; vectors <= rope_lanes; ++vectors)
    cases.push_back({vectors % 3 + 1, vectors % 4, vectors % 3 + 1, 8 * vectors, vectors / 2 * 16, false});
  for (const Case& c : cases) {
    RopeArgs a{};
    a.dtype = a.table_dtype = Dtype::bfloat16;
    a.batches = c.batches;
    a.tokens = 1000;
    a.head_dim = c.head_dim;
    a.rotary_dim = c.rotary_dim;
    a.heads[0] = c.q_heads;
    a.heads[1] = c.k_heads;
    char q[2], k[2];
    const int64_t token = 264 * 64, batch = 1001 * token;
    if (c.q_heads > 0) a.in[0] = {q, batch, token, c.q_heads > 1 ? 264 : 0};
    if (c.k_heads > 0) a.in[1] = {k, 2 * batch, 2 * token, c.k_heads > 1 ? 264 : 0};
    for (int which = 0; which < 2; ++which) {
      a.out[which] = a.in[which];
      if (!c.in_place && a.heads[which] > 0) a.out[which].data = static_cast<char*>(a.in[which].data) + 1;
    }
    a.cos = a.sin = {q, 0, 128, 0, 1};
    ASSERT_TRUE(lanes_fit(a, 16));
    const RopeLanesArgs v = lanes_args(a, 8);
    const int64_t vectors = (c.in_place ? c.rotary_dim : c.head_dim) / 8, heads = c.q_heads + c.k_heads;
    const bool packed = are_packed(vectors);
    EXPECT_EQ(v.rotated, c.rotary_dim / 8);
    EXPECT_EQ(v.batched, c.batches > 1);
    std::vector<bool> taken(static_cast<size_t>(c.batches * a.tokens * heads * vectors));
    for (uint32_t thread = 0; thread < lanes_warps(v) * rope_lanes; ++thread) {
      int64_t unit, head;
      uint32_t divided = thread;
      if (packed) {
        const uint32_t lane = thread % rope_lanes, of_warp = lane * v.lane_factor >> 16;
        ASSERT_EQ(of_warp, lane / vectors);
        head = thread / rope_lanes * v.heads_a_warp + of_warp;
        if (of_warp >= v.heads_a_warp || head >= v.count) continue;
        unit = lane - of_warp * v.vectors;
        divided = static_cast<uint32_t>(2 * head);
      } else {
        if (thread >= v.count) continue;
        unit = thread & v.lane_mask;
        head = thread >> v.log_vectors;
      }
      int64_t t = quotient(divided, v.token_factor, v.token_shift), b = 0;
      const int64_t h = head - t * v.heads;
      if (v.batched) {
        b = quotient(divided, v.of_batch);
        t -= b * v.tokens;
      }
      ASSERT_TRUE(b < c.batches && t < a.tokens && h >= 0 && h < heads) << thread;
      const bool of_k = h >= v.q_heads;
      const int64_t n = of_k ? h - c.q_heads : h, by = of_k ? 2 : 1,
                    place = 2 * (by * (b * batch + t * token) + n * 264);
      ASSERT_EQ((of_k ? v.k : v.q) + b * (of_k ? v.k_batch : v.q_batch) +
                    (t * (of_k ? v.k_token : v.q_token) + h * v.head),
                (of_k ? k : q) + place);
      ASSERT_EQ((of_k ? v.k_out : v.q_out) + b * (of_k ? v.k_out_batch : v.q_out_batch) +
                    (t * (of_k ? v.k_out_token : v.q_out_token) + h * v.out_head),
                (of_k ? k : q) + (c.in_place ? 0 : 1) + place);
      const auto index = static_cast<size_t>(((b * a.tokens + t) * heads + h) * vectors + unit);
      ASSERT_FALSE(taken[index]);
      taken[index] = true;
    }
    EXPECT_EQ(std::count(taken.begin(), taken.end(), true), static_cast<int64_t>(taken.size()));
  }
}

// The partner of an element of the first half changes its sign, or the other way round where the rotation is inverse.
TEST(RopeLanes, NegateOneHalf) {
  RopeArgs a{};
  a.dtype = a.table_dtype = Dtype::bfloat16;
  a.batches = a.tokens = a.heads[0] = 1;
  a.head_dim = a.rotary_dim = 128;
  for (const bool inverse : {false, true}) {
    a.inverse = inverse;
    const RopeLanesArgs v = lanes_args(a, 8);
    for (uint32_t unit = 0; unit < 16; ++unit) {
      EXPECT_EQ(unit - v.first_negated < v.half, (unit >= 8) == inverse) << unit;
    }
  }
}

}  // namespace
}  // namespace bitexact
