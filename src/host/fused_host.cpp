#include "fused_host.h"

namespace bitexact {

const HostOperations& host_operations() {
#ifdef BITEXACT_HOST_X86_64_V3
  static const bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (v3) return host_operations_x86_64_v3;
#endif
  return host_operations_baseline;
}

}  // namespace bitexact
