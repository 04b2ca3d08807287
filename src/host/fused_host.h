// The host's fused operations, built once for each instruction set that is worth it.
#pragma once

#include <cstdint>

#include "args.h"
#include "silu_table.h"

namespace bitexact {

struct HostOperations {
  void (*silu_mul)(const SiluMulArgs& a, const SiluTable& table);  // 16-bit dtypes, two roundings
  void (*rope)(const RopeArgs& a);
};

extern const HostOperations host_operations_baseline;
#ifdef BITEXACT_HOST_X86_64_V3
extern const HostOperations host_operations_x86_64_v3;
#endif

// The best set for this processor. Their bits are the same.
const HostOperations& host_operations();

}  // namespace bitexact
