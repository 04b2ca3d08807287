// The overlap solver against marking bytes one by one.
#include "overlap.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <utility>
#include <vector>

using bitexact::Region;

namespace {

struct Tensor {
  int64_t base, run;
  std::vector<std::pair<int64_t, int64_t>> axes;  // count and stride
};

// Every byte of a tensor, with the number of times it is visited.
std::map<int64_t, int> bytes_of(const Tensor& tensor) {
  std::vector<int64_t> places{tensor.base};
  for (const auto& [count, stride] : tensor.axes) {
    std::vector<int64_t> more;
    for (const int64_t place : places) {
      for (int64_t i = 0; i < count; ++i) more.push_back(place + i * stride);
    }
    places = more;
  }
  std::map<int64_t, int> bytes;
  for (const int64_t place : places) {
    for (int64_t k = 0; k < 2 * tensor.run; ++k) ++bytes[place + k];
  }
  return bytes;
}

Region region(const Tensor& tensor) {
  Region r;
  r.base = static_cast<uintptr_t>(tensor.base);
  EXPECT_TRUE(r.set_run(tensor.run, 2));
  for (const auto& [count, stride] : tensor.axes) EXPECT_TRUE(r.add_axis(count, stride, 1));
  return r;
}

TEST(Overlap, EqualsMarkingBytes) {
  std::mt19937 random(7);
  int met = 0, selves = 0, shares = 0;
  for (int round = 0; round < 20000; ++round) {
    auto any = [&] {
      auto stride = [&] { return static_cast<int64_t>(random() % 41) * 2 - 40; };
      auto count = [&] { return static_cast<int64_t>(random() % 4) + 1; };
      return Tensor{static_cast<int64_t>(1000 + 2 * (random() % 60)),
                    static_cast<int64_t>(1 + random() % 4),
                    {{count(), stride()}, {count(), stride()}, {count(), stride()}}};
    };
    const Tensor one = any();
    Tensor other = any();
    if (round % 2 == 0) other.axes = one.axes;  // parts of the same rows, and what only looks so
    if (round % 4 == 0) other.axes[random() % 3].first = static_cast<int64_t>(random() % 4) + 1;
    const auto bytes_a = bytes_of(one), bytes_b = bytes_of(other);
    const Region a = region(one), b = region(other);
    bool meets = false, self = false;
    for (const auto& [at, times] : bytes_a) {
      meets = meets || bytes_b.count(at) > 0;
      self = self || times > 1;
    }
    ASSERT_EQ(bitexact::overlap(a, b), meets) << round;
    ASSERT_EQ(bitexact::overlaps_itself(a), self) << round;
    const bool shared = bitexact::share_rows(a, b);
    ASSERT_FALSE(shared && meets) << round;
    shares += shared;
    met += meets;
    selves += self;
  }
  EXPECT_GT(met, 1000);
  EXPECT_GT(shares, 500);
  EXPECT_GT(selves, 1000);
}

// q and k of one packed (tokens, q | k | v) buffer share no byte, though their spans interleave.
TEST(Overlap, TellsInterleavedSlicesApart) {
  const int64_t token = 3 * 4 * 64 * 2;
  const Region q = region({4096, 64, {{4, 128}, {1000, token}}}),
               k = region({4096 + 4 * 128, 64, {{4, 128}, {1000, token}}});
  EXPECT_FALSE(bitexact::overlap(q, k));
  EXPECT_TRUE(bitexact::share_rows(q, k));
  EXPECT_TRUE(bitexact::share_rows(k, q));
  const Region shifted = region({4096 + 4 * 128 - 2, 64, {{4, 128}, {1000, token}}});
  EXPECT_TRUE(bitexact::overlap(q, shifted));
  const std::pair<int64_t, int64_t> batches{3, 1001 * token};
  const Region q3 = region({4096, 64, {{4, 128}, {1000, token}, batches}}),
               k3 = region({4096 + 4 * 128, 64, {{4, 128}, {1000, token}, batches}});
  EXPECT_TRUE(bitexact::share_rows(q3, k3));
  EXPECT_TRUE(bitexact::share_rows(k3, q3));
}

TEST(Overlap, RefusesOffsetsBeyond63Bits) {
  Region r;
  EXPECT_TRUE(r.set_run(8, 2));
  EXPECT_FALSE(r.add_axis(int64_t{1} << 40, int64_t{1} << 40, 1));
  EXPECT_FALSE(Region{}.set_run(INT64_MAX, 2));
  // Products that leave 128 bits, one of them to come back as 0.
  EXPECT_FALSE(r.add_axis((int64_t{1} << 62) + 1, INT64_MIN, 8));
  EXPECT_FALSE(r.add_axis(INT64_MAX, INT64_MIN, 8));
  // The ends themselves: 2^63 - 1 bytes either way, and not one more.
  EXPECT_FALSE(Region{}.add_axis(2, INT64_MIN, 1));
  EXPECT_FALSE(Region{}.add_axis(2, (int64_t{1} << 62), 2));
  Region far;
  EXPECT_TRUE(far.add_axis(2, -INT64_MAX, 1));
  EXPECT_FALSE(far.add_axis(2, -1, 1));
  EXPECT_TRUE(far.add_axis(2, INT64_MAX, 1));
  EXPECT_FALSE(far.add_axis(2, 1, 1));
}

}  // namespace
