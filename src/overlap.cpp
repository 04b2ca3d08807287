#include "overlap.h"

#include <algorithm>
#include <cstdlib>

namespace bitexact {
namespace {

using Wide = __int128;

Wide magnitude(Wide x) { return x < 0 ? -x : x; }

// A whole-number variable in [low, high], weighted by a stride > 0.
struct Term {
  Wide stride, low, high;
};

// Is there a choice of the variables with sum(stride * variable) == target? Depth first from the largest
// stride; in nested layouts the smaller strides leave one or two candidates a level.
class Equation {
 public:
  void add(Wide stride, Wide low, Wide high) {
    if (stride < 0) {
      stride = -stride;
      std::swap(low, high);
      low = -low;
      high = -high;
    }
    if (stride == 0 || (low == 0 && high == 0)) return;
    for (int i = 0; i < size_; ++i) {
      if (terms_[i].stride == stride) {
        terms_[i].low += low;
        terms_[i].high += high;
        return;
      }
    }
    terms_[size_++] = {stride, low, high};
  }

  // `nonzero`: at least one variable other than the last (the bytes of a run) must not be zero.
  bool solvable(Wide target, bool nonzero) {
    std::sort(terms_, terms_ + size_, [](const Term& a, const Term& b) { return a.stride > b.stride; });
    rest_low_[size_] = rest_high_[size_] = 0;
    for (int i = size_ - 1; i >= 0; --i) {
      rest_low_[i] = rest_low_[i + 1] + terms_[i].stride * terms_[i].low;
      rest_high_[i] = rest_high_[i + 1] + terms_[i].stride * terms_[i].high;
    }
    budget_ = 4096;
    return search(0, target, nonzero);
  }

 private:
  static Wide floor_div(Wide a, Wide b) { return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0); }

  bool search(int i, Wide target, bool nonzero) {
    if (target < rest_low_[i] || target > rest_high_[i]) return false;
    if (i == size_) return target == 0 && !nonzero;
    if (--budget_ < 0) return true;  // too entangled to tell: counted as an overlap
    const Term& term = terms_[i];
    if (term.stride == 1 && i == size_ - 1) return !nonzero;  // the run reaches every byte in range
    Wide from = -floor_div(-(target - rest_high_[i + 1]), term.stride);
    Wide to = floor_div(target - rest_low_[i + 1], term.stride);
    from = std::max(from, term.low);
    to = std::min(to, term.high);
    for (Wide v = from; v <= to; ++v) {
      if (search(i + 1, target - term.stride * v, nonzero && v == 0)) return true;
    }
    return false;
  }

  Term terms_[10];
  Wide rest_low_[11], rest_high_[11];
  int size_ = 0;
  int budget_ = 0;
};

}  // namespace

bool Region::add_axis(int64_t n, int64_t elements, int64_t element_size) {
  if (n <= 1) return true;
  int64_t step, reach;
  if (__builtin_mul_overflow(elements, element_size, &step)) return false;
  if (__builtin_mul_overflow(step, n - 1, &reach)) return false;
  int64_t& end = reach < 0 ? low : high;
  int64_t new_end;
  if (__builtin_add_overflow(end, reach, &new_end) || new_end == INT64_MIN) return false;
  end = new_end;
  int at = axes++;
  for (; at > 0 && std::abs(stride[at - 1]) > std::abs(step); --at) {
    stride[at] = stride[at - 1];
    count[at] = count[at - 1];
  }
  stride[at] = step;
  count[at] = n;
  return true;
}

bool Region::set_run(int64_t elements, int64_t element_size) {
  if (__builtin_mul_overflow(elements, element_size, &run)) return false;
  high = run;
  return true;
}

bool overlap(const Region& a, const Region& b) {
  if (a.run == 0 || b.run == 0) return false;
  const Wide distance = Wide{b.base} - Wide{a.base};
  if (distance + b.low >= a.high || a.low >= distance + b.high) return false;
  Equation equation;
  for (int i = 0; i < a.axes; ++i) equation.add(a.stride[i], 0, a.count[i] - 1);
  for (int i = 0; i < b.axes; ++i) equation.add(b.stride[i], -(Wide{b.count[i]} - 1), 0);
  equation.add(1, -(Wide{b.run} - 1), Wide{a.run} - 1);
  return equation.solvable(distance, false);
}

bool overlaps_itself(const Region& a) {
  if (a.run == 0) return false;
  // Nested axes, the usual case: each stride clears all that the smaller ones reach.
  Wide reach = a.run, previous = 0;
  bool nested = true;
  for (int i = 0; i < a.axes; ++i) {
    const Wide stride = magnitude(a.stride[i]);
    if (stride == 0 || stride == previous) return true;  // two different indices, one address
    nested = nested && stride >= reach;
    reach += stride * (a.count[i] - 1);
    previous = stride;
  }
  if (nested) return false;
  Equation equation;
  for (int i = 0; i < a.axes; ++i) equation.add(a.stride[i], -(Wide{a.count[i]} - 1), Wide{a.count[i]} - 1);
  equation.add(1, -(Wide{a.run} - 1), Wide{a.run} - 1);
  return equation.solvable(0, true);
}

}  // namespace bitexact
