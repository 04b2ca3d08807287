// Do strided tensors share bytes? Exact, also for tensors interleaved in one buffer. What most calls need stands here,
// to be compiled into the checks of a call.
#pragma once

#include <cstdint>
#include <utility>

namespace bitexact {

// Bytes of a strided tensor whose last axis is a run of `run` bytes.
struct Region {
  uintptr_t base = 0;
  int64_t low = 0, high = 0;  // first byte, and one beyond the last, relative to base
  int64_t run = 0;
  bool repeats = false;  // an axis has no stride
  int axes = 0;
  int64_t stride[4], count[4];  // of the axes; strides in bytes, ascending in magnitude

  uint64_t first() const { return base + static_cast<uint64_t>(low); }
  uint64_t span() const { return static_cast<uint64_t>(high) - static_cast<uint64_t>(low); }

  // Adds an axis of `n` steps of so many elements. False if offsets leave 63 bits.
  bool add_axis(int64_t n, int64_t elements, int64_t element_size);
  bool set_run(int64_t elements, int64_t element_size);
};

// Of a step, which is never INT64_MIN.
inline int64_t magnitude(int64_t step) { return step < 0 ? -step : step; }

inline bool Region::add_axis(int64_t n, int64_t elements, int64_t element_size) {
  if (n <= 1) return true;
  if (elements == 0) return repeats = true;
  int64_t step, reach;
  if (__builtin_mul_overflow(elements, element_size, &step)) return false;
  if (__builtin_mul_overflow(step, n - 1, &reach)) return false;
  int64_t &end = reach < 0 ? low : high, moved;
  if (__builtin_add_overflow(end, reach, &moved) || moved == INT64_MIN) return false;
  end = moved;
  int at = axes++;
  stride[at] = step;
  count[at] = n;
  for (; at > 0 && magnitude(stride[at - 1]) > magnitude(step); --at) {
    std::swap(stride[at - 1], stride[at]);
    std::swap(count[at - 1], count[at]);
  }
  return true;
}

inline bool Region::set_run(int64_t elements, int64_t element_size) {
  if (__builtin_mul_overflow(elements, element_size, &run)) return false;
  high = run;
  return true;
}

namespace detail {
bool axes_overlap(const Region& a, const Region& b);
bool axes_visit_twice(const Region& a);
}  // namespace detail

// Do both lie in rows of one length, in other parts of them, or of rows within these? As q and k of a packed tensor do.
inline bool share_rows(const Region& one, const Region& other) {
  if (one.first() > one.base || other.first() > other.base) return false;  // addresses below 0
  const bool ordered = one.first() <= other.first();
  const Region &a = ordered ? one : other, &b = ordered ? other : one;
  uint64_t part_a = a.span(), part_b = b.span(), at = b.first() - a.first();  // of b's part, in that of a
  for (int i = a.axes - 1, j = b.axes - 1; i >= 0 && j >= 0; --i, --j) {
    const auto length = static_cast<uint64_t>(magnitude(a.stride[i]));
    if (length != static_cast<uint64_t>(magnitude(b.stride[j]))) return false;
    part_a -= length * static_cast<uint64_t>(a.count[i] - 1);
    part_b -= length * static_cast<uint64_t>(b.count[j] - 1);
    at %= length;
    if (part_a > length || part_b > length - at) return false;  // into the next row
    if (at >= part_a) return true;
  }
  return false;
}

inline bool overlap(const Region& a, const Region& b) {
  // Around all addresses, which is how they are counted: spans that meet nowhere there meet nowhere.
  const uint64_t apart = b.first() - a.first();
  if (apart >= a.span() && 0 - apart >= b.span()) return false;
  return !share_rows(a, b) && detail::axes_overlap(a, b);
}

// Does a region visit a byte twice? Not where each stride clears all that the smaller ones reach.
inline bool overlaps_itself(const Region& a) {
  if (a.repeats) return a.run != 0;
  auto reach = static_cast<uint64_t>(a.run);  // at most the span
  for (int i = 0; i < a.axes; ++i) {
    const auto step = static_cast<uint64_t>(magnitude(a.stride[i]));
    if (step < reach) return detail::axes_visit_twice(a);
    reach += step * static_cast<uint64_t>(a.count[i] - 1);
  }
  return false;
}

}  // namespace bitexact
