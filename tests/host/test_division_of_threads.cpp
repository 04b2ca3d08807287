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
    const int64_t r = quotient(i, v.of_whole);
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

TEST(RopeLanes, AreTheHeadsOfQThenThoseOfK) {
  for (const auto& [q_heads, k_heads] : {std::pair<int64_t, int64_t>{32, 8}, {1, 1}, {0, 5}, {7, 0}}) {
    RopeArgs a{};
    a.dtype = a.table_dtype = Dtype::bfloat16;
    a.batches = 1;
    a.tokens = 1000;
    a.head_dim = a.rotary_dim = 128;
    a.heads[0] = q_heads;
    a.heads[1] = k_heads;
    char q[1], k[1];
    a.in[0] = a.out[0] = {q, 0, 128 * 64, 128};
    a.in[1] = a.out[1] = {k, 0, 128 * 96, 136};
    const RopeLanesArgs v = lanes_args(a, 0, 8);
    const RopeTensors& x = v.tensors;
    EXPECT_EQ(v.log_width, 4);
    ASSERT_EQ(v.total, a.tokens * (q_heads + k_heads));
    for (uint32_t n = 0; n < v.total; ++n) {
      const int64_t t = quotient(n, v.of_heads), h = n - t * v.heads;
      ASSERT_TRUE(t < a.tokens && h < q_heads + k_heads);
      if (h < v.q_heads) {
        ASSERT_EQ(x.q + t * x.q_token + h * x.q_head, q + 2 * (t * 128 * 64 + h * 128));
        ASSERT_EQ(x.q_out + t * x.q_out_token + h * x.q_out_head, q + 2 * (t * 128 * 64 + h * 128));
      } else {
        const int64_t at = 2 * (t * 128 * 96 + (h - q_heads) * 136);
        ASSERT_EQ(x.k + t * x.k_token + h * x.k_head, k + at);
        ASSERT_EQ(x.k_out + t * x.k_out_token + h * x.k_out_head, k + at);
      }
    }
  }
}

}  // namespace
}  // namespace bitexact
