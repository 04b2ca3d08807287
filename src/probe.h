// Probe inputs: chosen to tell every known wrong rounding, flush, contraction, pairing and addressing from
// the right one, on the smallest real shape. Whoever changes them runs tests/golden/probes.py.
#pragma once

#include <cstdint>
#include <vector>

#include "args.h"
#include "operation.h"

namespace bitexact {

// Calls for one kernel. Input pointers are offsets into `inputs`; outputs are to be redirected.
template <class Args>
struct Probe {
  std::vector<unsigned char> inputs;
  std::vector<Args> cases;
};

// `kernel` carries the dtypes, numerics and pairings; sizes are chosen here.
Probe<SiluMulArgs> make_probe(const SiluMulArgs& kernel);
Probe<RopeArgs> make_probe(const RopeArgs& kernel);

// Turns the offsets of a case into pointers.
SiluMulArgs located(SiluMulArgs a, void* inputs);
RopeArgs located(RopeArgs a, void* inputs);

}  // namespace bitexact
