// What the benchmarks compute on.
#pragma once

#include <cstdint>

namespace bench {

const char* dtype_name(int32_t dtype);  // of a BITEXACT_DTYPE
int64_t dtype_bytes(int32_t dtype);

// Random numbers that look like activations in `dtype`: magnitudes from 1/8 to 8, both signs. Never zeros, which
// can run faster, and no infinities, which take slow paths.
void fill_activations(void* memory, int64_t bytes, int32_t dtype);

// bfloat16 gates whose silu is 1 exactly: up times that, in place again and again, stays as it was.
void fill_gates_of_one(void* memory, int64_t bytes);

// Tables of real rotations: cos^2 + sin^2 = 1 for each pair, so that data turned in place again and again neither
// grow nor vanish. `width` entries a row; a full table has a pair's angle at both of its positions.
struct Tables {
  void *cos, *sin;
  int64_t rows, width;
  int32_t dtype;
  bool full, interleaved;
};
void fill_rotations(const Tables& tables);

}  // namespace bench
