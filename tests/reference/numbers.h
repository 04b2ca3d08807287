// Number formats and single rounded operations. A value of any dtype is held as a double, which holds each of
// them exactly; what makes it a float32 or bfloat16 is that it was rounded to one.
#pragma once

#include <cstdint>

namespace bitexact_reference {

// Reads and writes element `index` of a tensor whose dtype is a BITEXACT_DTYPE constant. A NaN is written in
// the one pattern that the header names.
double load(int32_t dtype, const void* tensor, int64_t index);
void store(int32_t dtype, void* tensor, int64_t index, double value);

// Copies an element bit for bit, NaN payloads too.
void copy(int32_t dtype, const void* from, int64_t from_index, void* to, int64_t to_index);

// v rounded to the dtype. float64 reaches the narrower dtypes through float32.
double rounded(int32_t dtype, double value);

// One operation on values of the dtype, rounded to it. 16-bit dtypes go through float32.
double multiply(int32_t dtype, double a, double b);
double add(int32_t dtype, double a, double b, bool from_zero);
double multiply_add(int32_t dtype, double a, double b, double c, bool from_zero);

// float32 operations, which no flag makes the compiler fuse with the next.
float multiply32(float a, float b);
float add32(float a, float b);
float divide32(float a, float b);

}  // namespace bitexact_reference
