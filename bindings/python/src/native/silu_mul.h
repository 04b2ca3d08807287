// Views of gate, up and out as the C interface's params.
#pragma once

#include "view.h"

namespace libbitexact {

// The arithmetic, as the fields of those names.
struct SiluSpec {
  int silu, compute, clamp;
  uint32_t limit_bits;
};

// `expected` is what a check compares with; elsewhere it is `out` again. Returns 0 or a code.
int make_params(const View& gate, const View& up, const View& out, const View& expected, const SiluSpec& spec,
                bitexact_silu_mul_params& p, bitexact_silu_mul_reference& r);

}  // namespace libbitexact
