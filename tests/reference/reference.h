// A second opinion on the bits: both operations, written from the formulas in include/bitexact.h and from
// nothing else. Plain and slow on purpose. It shares no code with src/ or kernels/, so it cannot share an
// error with them, and its tests pin it to figures worked out by hand.
#pragma once

#include <cstdint>

#include "bitexact.h"

namespace bitexact_reference {

// Pointers in the params are host memory. The params must be valid; nothing is checked here.
//
// For float32 tensors, and for 16-bit tensors with compute_dtype FLOAT32, the last bits of silu come from
// this machine's expf, which is not CUDA's. Every other result has the contract's bits.
void silu_mul(const bitexact_silu_mul_params& p);

// Adds to *position_errors (may be null) one for each (batch, token) whose rotated part was written as NaN
// because its position lies outside the table.
void rope(const bitexact_rope_params& p, int64_t* position_errors);

// The bits of the nearest value, ties to even, subnormals kept, 0x7fff for NaN.
uint16_t to_bfloat16(float value);
uint16_t to_float16(float value);

float from_bfloat16(uint16_t bits);
float from_float16(uint16_t bits);

// The nearest float32, ties to even, subnormals kept; NaN has the bits 0x7fffffff.
float to_float32(double value);

// x / (1 + exp(-x)), each step rounded to float32.
float silu32(float x);

}  // namespace bitexact_reference
