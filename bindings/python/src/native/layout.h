// How eager lays out its results, learned from results that were seen.
//
// Eager lays a result out by the order of its arguments' strides, not by their sizes. So one result seen tells the
// order for every later call whose arguments look alike: same axes of size 1, same broadcast axes, same order of
// strides, dense or not.
#pragma once

#include <array>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "view.h"

namespace libbitexact {

using Key = std::vector<int64_t>;
using Inputs = std::array<const View*, 5>;   // those that a call has not are null
using Order = std::array<int8_t, max_dims>;  // axes from the innermost out

// How a result lies. `rule` is false where the order does not explain it: then the exact arguments are looked up.
struct Layout {
  bool rule = false;
  Order order{}, k_order{};
  std::array<int64_t, max_dims> strides{}, k_strides{};
};

// A new tensor of that layout, shaped like `view`, with the dtype and device of `like`.
py::object allocate(PyObject* like, const View& view, const Layout& layout, bool is_k);

class Layouts {
 public:
  // `key` says what besides the arguments decides.
  std::optional<Layout> find(Key key, const Inputs& inputs);
  void learn(Key key, const Inputs& inputs, const View& result, const View* k_result);

 private:
  struct Hash {
    size_t operator()(const Key& key) const;
  };

  std::unordered_map<Key, Layout, Hash> layouts_;
  std::mutex mutex_;
};

}  // namespace libbitexact
