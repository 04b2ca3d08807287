// Do strided tensors share bytes? Exact, also for tensors interleaved in one buffer.
#pragma once

#include <cstdint>

namespace bitexact {

// Bytes of a strided tensor whose last axis is a run of `run` bytes.
struct Region {
  uintptr_t base = 0;
  int64_t low = 0, high = 0;  // first byte, and one beyond the last, relative to base
  int64_t run = 0;
  int axes = 0;
  int64_t stride[4], count[4];  // of the axes; strides in bytes, ascending in magnitude

  // Adds an axis of `n` steps of so many elements. False if offsets leave 63 bits.
  bool add_axis(int64_t n, int64_t elements, int64_t element_size);
  bool set_run(int64_t elements, int64_t element_size);
};

bool overlap(const Region& a, const Region& b);

// Does a region visit a byte twice?
bool overlaps_itself(const Region& a);

}  // namespace bitexact
