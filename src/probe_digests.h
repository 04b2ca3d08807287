// What the right outputs of every probe come to: the sum of digest_share(place, bits) over all its cases, q before
// k, in flat order. From PyTorch's operators, by tests/golden/probes.py; a reference that gives another sum is wrong.
#pragma once

#include <cstdint>

namespace bitexact {

extern const uint64_t probe_digests[];  // by probe_of(kernel)

}  // namespace bitexact
