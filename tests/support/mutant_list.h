// Which mutants a kernel can show: some faults do not exist, or change nothing, for a dtype or a numerics.
#pragma once

#include "kernel_table.h"
#include "mutants.h"

namespace bitexact_test {

// Equivalent for these arguments: the faulty formula gives the right bits on every input, up to the payload
// of NaNs.
inline bool is_equivalent(const SiluMulArgs& a, Mutant m) {
  const bool f32 = a.dtype == Dtype::float32;
  if (a.clamp == Clamp::none && m >= first_clamp_mutant) return true;
  switch (m) {
    case Mutant::clamp_unrounded: return f32;
    case Mutant::single_rounding:
    case Mutant::half_away:
    case Mutant::truncation:
      return f32;  // no middle rounding, nothing to round
    // The GPU and this formula agree on all 65,536 bfloat16 inputs.
    case Mutant::reciprocal: return a.dtype == Dtype::bfloat16;
    // __expf gives the right silu for every 16-bit gate: the probe has tried them all.
    case Mutant::fast_exp: return !f32;
    case Mutant::nan_to_minus_zero: return a.dtype != Dtype::bfloat16;
    default: return false;
  }
}

inline bool is_equivalent(const RopeArgs& a, Mutant m) {
  switch (m) {
    case Mutant::one_rounding: return a.compute_dtype == Dtype::float32;
    case Mutant::rope_half_away:
    case Mutant::rope_truncation: return a.dtype == Dtype::float32;
    // Products of two float16 numbers are exact in float32, so that contraction changes nothing there.
    case Mutant::fma_first:
    case Mutant::fma_second: return a.compute_dtype == Dtype::float32 && a.table_dtype == Dtype::float16;
    // The gate holds any NaN equal to any other, and counts what it let pass.
    case Mutant::tail_through_float: return true;
    default: return false;
  }
}

}  // namespace bitexact_test
