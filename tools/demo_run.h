// One captured case through the library: timed, and every output bit compared.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "bitexact.h"
#include "demo_device.h"
#include "golden.h"

namespace bitexact_demo {

struct Result {
  bool is_rope;
  std::string shape, kernel, verdict;
  double seconds = 0, bytes = 0;
  uint64_t values = 0, differing_bits = 0;
  std::array<uint16_t, 8> first{};  // output values
  std::string problem;              // lines; empty if all is as it should be
};

// Throws with the library's own words unless the status is OK.
void check(int32_t status);

// The same tensors `copies` times along the batch axis. A row's bits depend on nothing but the row, so every
// copy must give what PyTorch gave for the one.
bitexact_golden::Case repeated(bitexact_golden::Case c, int64_t copies);

// The context must be fresh, so that its reports are about this case.
Result run(const bitexact_golden::Case& c, const Device& device, bitexact_context* context);

}  // namespace bitexact_demo
