// Kernels with one fault each, for the calls of a FaultyBackend on the host.
#pragma once

#include "bitexact.h"
#include "mutants.h"

namespace bitexact_test {

inline auto silu_mul_with(Mutant mutant) {
  return [mutant](const SiluMulArgs& a, bitexact_stream) {
    for (int64_t i = 0; i < reference::count(a); ++i) mutant_silu_mul_at(a, mutant, i);
    return BITEXACT_STATUS_OK;
  };
}
inline auto rope_with(Mutant mutant) {
  return [mutant](const RopeArgs& a, bitexact_stream) {
    for (int64_t i = 0; i < reference::count(a); ++i) mutant_rope_at(a, mutant, i);
    return BITEXACT_STATUS_OK;
  };
}

}  // namespace bitexact_test
