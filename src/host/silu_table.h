// silu over every 16-bit input, as a table: the host's expf is used 65,536 times and then proven, instead
// of being trusted at every element.
#pragma once

#include <cstdint>

#include "args.h"

namespace bitexact {

struct SiluTable {
  uint16_t at[65536];  // by the bits of the gate; NaN is 0x7fff
  bool proven;         // its SHA-256 is the one that PyTorch on CUDA gives
};

// dtype is a 16-bit one. Built once in the process, at first use.
const SiluTable& silu_table(Dtype dtype, Silu silu);

}  // namespace bitexact
