// From a caller's struct to what the kernels need: every refusal of the public contract is made here.
#pragma once

#include <cstdint>

#include "args.h"
#include "bitexact.h"

namespace bitexact {

// Reads and checks `params`. On success `args` is collapsed and ready for a kernel, unless `empty`: then
// there is nothing to do and pointers were not looked at.
int32_t check(const bitexact_silu_mul_params* params, SiluMulArgs& args, bool& empty);
int32_t check(const bitexact_rope_params* params, RopeArgs& args, bool& empty);

// Reads and checks the caller's own results. `to` is `args` with its outputs replaced by them, and with
// the dimensions that `params` names, not collapsed ones.
int32_t check(const bitexact_silu_mul_reference* reference, const bitexact_silu_mul_params* params,
              SiluMulArgs& to);
int32_t check(const bitexact_rope_reference* reference, const bitexact_rope_params* params, RopeArgs& to);

}  // namespace bitexact
