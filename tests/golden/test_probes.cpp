// The library's table of digests is that of the inputs which its probes have today.
#include <gtest/gtest.h>

#include "probe_digests.h"
#include "probes.h"

using namespace bitexact;

namespace {

constexpr char how[] = ": run tests/golden/probes.py";

class ProbeDigests : public testing::TestWithParam<int> {};

// Every sixteenth, so that the tests run beside each other.
TEST_P(ProbeDigests, AreThoseOfTheReference) {
  for (int probe = GetParam(); probe < probe_count; probe += 16) {
    const int kernel = bitexact_golden::kernel_of_probe(probe);
    EXPECT_NE(probe_digests[probe], 0u) << kernel_name(kernel) << how;
    if (bitexact_golden::needs_cuda(kernel)) continue;  // test_gate_cuda
    EXPECT_EQ(bitexact_golden::digest_by_reference(kernel), probe_digests[probe])
        << kernel_name(kernel) << how;
  }
}
INSTANTIATE_TEST_SUITE_P(All, ProbeDigests, testing::Range(0, 16));

TEST(Probes, AreSharedByVariants) {
  for (int kernel = 0; kernel < kernel_count; ++kernel) {
    const std::string name = kernel_name(kernel),
                      first = kernel_name(bitexact_golden::kernel_of_probe(probe_of(kernel)));
    EXPECT_EQ(name.substr(0, name.rfind(' ')), first.substr(0, first.rfind(' ')));
  }
}

}  // namespace
