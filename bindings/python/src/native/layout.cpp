#include "layout.h"

#include <algorithm>

namespace libbitexact {

namespace {

// The axes by stride; of equal ones the axis of size 1 lies inside.
Order order_of(const View& view) {
  Order order{};
  for (int d = 0; d < view.ndim; ++d) order[static_cast<size_t>(d)] = static_cast<int8_t>(view.ndim - 1 - d);
  std::stable_sort(order.begin(), order.begin() + view.ndim, [&view](int8_t a, int8_t b) {
    const size_t i = static_cast<size_t>(a), j = static_cast<size_t>(b);
    if (view.strides[i] != view.strides[j]) return view.strides[i] < view.strides[j];
    return view.shape[i] == 1 && view.shape[j] != 1;
  });
  return order;
}

void dense_strides(const View& like, const Order& order, std::array<int64_t, max_dims>& strides) {
  int64_t run = 1;
  for (int n = 0; n < like.ndim; ++n) {
    const auto d = static_cast<size_t>(order[static_cast<size_t>(n)]);
    strides[d] = run;
    run *= std::max<int64_t>(like.shape[d], 1);
  }
}

bool is_dense(const View& view, const Order& order) {
  std::array<int64_t, max_dims> strides{};
  dense_strides(view, order, strides);
  return std::equal(strides.begin(), strides.begin() + view.ndim, view.strides.begin());
}

void append_look(Key& key, const View* view) {
  if (view == nullptr) {
    key.push_back(-1);
    return;
  }
  const Order order = order_of(*view);
  int64_t word = view->ndim;
  bool empty = false;
  for (int n = 0; n < view->ndim; ++n) {
    const auto d = static_cast<size_t>(order[static_cast<size_t>(n)]);
    const bool tied =
        n > 0 && view->strides[d] == view->strides[static_cast<size_t>(order[static_cast<size_t>(n) - 1])];
    const int kind = (view->shape[d] == 1 ? 1 : 0) | (view->strides[d] == 0 ? 2 : 0) | (tied ? 4 : 0);
    word = word * 64 + static_cast<int64_t>(d) * 8 + kind;
    empty |= view->shape[d] == 0;
  }
  key.push_back(word);
  key.push_back((is_dense(*view, order) ? 1 : 0) | (empty ? 2 : 0));
}

void append_exactly(Key& key, const View* view) {
  if (view == nullptr) return;
  key.insert(key.end(), view->shape.begin(), view->shape.begin() + view->ndim);
  key.insert(key.end(), view->strides.begin(), view->strides.begin() + view->ndim);
}

py::tuple tuple_of(const int64_t* values, int count) {
  py::tuple tuple(static_cast<size_t>(count));
  for (int n = 0; n < count; ++n) PyTuple_SET_ITEM(tuple.ptr(), n, PyLong_FromLongLong(values[n]));
  return tuple;
}

}  // namespace

py::object allocate(PyObject* like, const View& view, const Layout& layout, bool is_k) {
  std::array<int64_t, max_dims> strides = is_k ? layout.k_strides : layout.strides;
  if (layout.rule) dense_strides(view, is_k ? layout.k_order : layout.order, strides);
  const py::tuple shape = tuple_of(view.shape.data(), view.ndim), steps = tuple_of(strides.data(), view.ndim);
  PyObject* arguments[] = {like, shape.ptr(), steps.ptr()};
  return owned(PyObject_VectorcallMethod(names.new_empty_strided, arguments,
                                         3 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
}

size_t Layouts::Hash::operator()(const Key& key) const {
  uint64_t hash = 1469598103934665603u;
  for (const int64_t word : key) hash = (hash ^ static_cast<uint64_t>(word)) * 1099511628211u;
  return hash ^ (hash >> 29);
}

std::optional<Layout> Layouts::find(Key key, const Inputs& inputs) {
  for (const View* view : inputs) append_look(key, view);
  const std::lock_guard<std::mutex> lock(mutex_);
  auto found = layouts_.find(key);
  if (found != layouts_.end() && !found->second.rule) {
    for (const View* view : inputs) append_exactly(key, view);
    found = layouts_.find(key);
  }
  if (found == layouts_.end()) return std::nullopt;
  return found->second;
}

void Layouts::learn(Key key, const Inputs& inputs, const View& result, const View* k_result) {
  for (const View* view : inputs) append_look(key, view);
  Layout layout;
  layout.order = order_of(result);
  layout.strides = result.strides;
  layout.rule = is_dense(result, layout.order);
  if (k_result != nullptr) {
    layout.k_order = order_of(*k_result);
    layout.k_strides = k_result->strides;
    layout.rule = layout.rule && is_dense(*k_result, layout.k_order);
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  // Bounded: looks that never come again must not add up.
  if (layouts_.size() >= 4096) layouts_.clear();
  layouts_.insert_or_assign(key, layout);
  if (layout.rule) return;
  for (const View* view : inputs) append_exactly(key, view);
  layouts_.insert_or_assign(std::move(key), layout);
}

}  // namespace libbitexact
