// What the right outputs of every probe come to: the sum of digest_share(place, bits) over all its cases, q before
// k, in flat order. From PyTorch's operators, by tests/golden/probes.py; a reference that gives another sum is wrong.
#pragma once

#include <cstdint>

namespace bitexact {

// Compute capability of the GPU that those of SiLU-mul were captured on.
constexpr int digests_architecture = 90;
// By probe_of(kernel).
extern const uint64_t probe_digests[];

}  // namespace bitexact
