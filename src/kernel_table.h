// Every kernel that the dispatcher can pick, by number. A verdict belongs to one of these numbers.
#pragma once

#include <cstdint>

#include "args.h"

namespace bitexact {

// Dtypes x numerics x (pairings, variant); of the fast variant those without float64 and without sums from
// +0.
constexpr int rope_kernel_count = 15 * 6 * 7 + 7 * 5 * 4 + 4 * 5;
constexpr int silu_mul_form_count = 9 + 9 + 5;  // numerics of bfloat16, float16, float32
constexpr int silu_mul_fast_count = 6;          // of these, the first, have fast variants
constexpr int silu_mul_kernel_count = (silu_mul_form_count + silu_mul_fast_count) * silu_mul_widths;
constexpr int kernel_count = rope_kernel_count + silu_mul_kernel_count;

constexpr bool is_rope(int kernel) { return kernel < rope_kernel_count; }

// The number of the kernel that serves `a` in this variant.
int kernel_of(const RopeArgs& a, RopeVariant variant);
int kernel_of(const SiluMulArgs& a, SiluMulVariant variant);

// The inverse: arguments with the dtypes, numerics and pairings of a kernel, all else (a limit too) zero.
struct RopeKernel {
  RopeArgs args;
  RopeVariant variant;
};
struct SiluMulKernel {
  SiluMulArgs args;
  SiluMulVariant variant;
};
RopeKernel rope_kernel(int kernel);
SiluMulKernel silu_mul_kernel(int kernel);

// The kernel that takes over where this one is declined: of a fast one the IEEE one beside it, else itself.
int successor_of(int kernel);

// The number of a kernel's probe, whose inputs and right outputs all its variants share.
constexpr int probe_count = 15 * 6 * 4 + silu_mul_form_count;
int probe_of(int kernel);

// Names every property, for people: static text.
const char* kernel_name(int kernel);

}  // namespace bitexact
