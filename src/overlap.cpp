#include "overlap.h"

#include <algorithm>

namespace bitexact {
namespace {

using Wide = __int128;

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
    if (low == 0 && high == 0) return;
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

namespace detail {

bool axes_overlap(const Region& a, const Region& b) {
  if (a.run == 0 || b.run == 0) return false;
  Equation equation;
  for (int i = 0; i < a.axes; ++i) equation.add(a.stride[i], 0, a.count[i] - 1);
  for (int i = 0; i < b.axes; ++i) equation.add(b.stride[i], -(Wide{b.count[i]} - 1), 0);
  equation.add(1, -(Wide{b.run} - 1), Wide{a.run} - 1);
  return equation.solvable(Wide{b.base} - Wide{a.base}, false);
}

bool axes_visit_twice(const Region& a) {
  if (a.run == 0) return false;
  int64_t previous = 0;
  for (int i = 0; i < a.axes; ++i) {
    const int64_t step = magnitude(a.stride[i]);
    if (step == previous) return true;  // two different indices, one address
    previous = step;
  }
  Equation equation;
  for (int i = 0; i < a.axes; ++i) equation.add(a.stride[i], -(Wide{a.count[i]} - 1), Wide{a.count[i]} - 1);
  equation.add(1, -(Wide{a.run} - 1), Wide{a.run} - 1);
  return equation.solvable(0, true);
}

}  // namespace detail
}  // namespace bitexact
