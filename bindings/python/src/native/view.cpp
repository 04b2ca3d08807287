// Tensors are read through the DLPack C exchange interface of their type, or attribute by attribute where the type
// has none. The exchange interface checks nothing, so read_plain() does.
#include "view.h"

#include <algorithm>

namespace libbitexact {

namespace {

int set_dtype(View& view, dlpack::DataType type) {
  view.is_complex = type.code == dlpack::code_complex;
  const int bits = view.is_complex ? type.bits / 2 : type.bits;
  view.size = bits / 8;
  view.dtype = 0;
  if (type.code == dlpack::code_float || view.is_complex) {
    view.dtype = bits == 16   ? BITEXACT_DTYPE_FLOAT16
                 : bits == 32 ? BITEXACT_DTYPE_FLOAT32
                 : bits == 64 ? BITEXACT_DTYPE_FLOAT64
                              : 0;
  } else if (type.code == dlpack::code_bfloat && bits == 16) {
    view.dtype = BITEXACT_DTYPE_BFLOAT16;
  } else if (type.code == dlpack::code_int) {
    view.dtype = bits == 32 ? BITEXACT_DTYPE_INT32 : bits == 64 ? BITEXACT_DTYPE_INT64 : 0;
  }
  return view.dtype == 0 || type.lanes != 1 ? bad_dtype : 0;
}

void count_parts(View& view) {
  if (!view.is_complex) return;
  for (int d = 0; d < view.ndim; ++d) view.strides[d] *= 2;
}

int read_exchange(PyObject* object, View& view) {
  dlpack::Tensor t;
  if (torch.exchange->view(object, &t) != 0) {
    PyErr_Clear();
    return bad_layout;
  }
  if (t.device.type == dlpack::cpu || t.device.type == dlpack::cuda_host) {
    view.device = BITEXACT_DEVICE_HOST;
  } else if (t.device.type == dlpack::cuda || t.device.type == dlpack::cuda_managed) {
    view.device = t.device.id;
  } else {
    return bad_device;
  }
  if (t.ndim > max_dims) return bad_layout;
  view.data = static_cast<char*>(t.data) + t.byte_offset;
  view.ndim = t.ndim;
  int64_t dense = 1;
  for (int d = t.ndim - 1; d >= 0; --d) {
    view.shape[d] = t.shape[d];
    view.strides[d] = t.strides != nullptr ? t.strides[d] : dense;
    dense *= t.shape[d];
  }
  if (const int code = set_dtype(view, t.dtype)) return code;
  count_parts(view);
  return 0;
}

int64_t item(PyObject* tuple, Py_ssize_t index) {
  const int64_t value = PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, index));
  if (value == -1 && PyErr_Occurred()) throw py::error_already_set();
  return value;
}

// For types without the exchange interface.
int read_attributes(PyObject* object, View& view) {
  const py::object type = owned(PyObject_GetAttr(object, names.dtype));
  PyObject* const known = PyDict_GetItem(torch.dtypes, type.ptr());
  if (known == nullptr) return bad_dtype;
  const dlpack::DataType dtype = {static_cast<uint8_t>(item(known, 0)), static_cast<uint8_t>(item(known, 1)),
                                  1};
  if (const int code = set_dtype(view, dtype)) return code;

  const py::object device = owned(PyObject_GetAttr(object, names.device));
  const py::object kind = owned(PyObject_GetAttr(device.ptr(), names.type));
  if (PyUnicode_CompareWithASCIIString(kind.ptr(), "cpu") == 0) {
    view.device = BITEXACT_DEVICE_HOST;
  } else if (PyUnicode_CompareWithASCIIString(kind.ptr(), "cuda") == 0) {
    view.device = static_cast<int>(PyLong_AsLong(owned(PyObject_GetAttr(device.ptr(), names.index)).ptr()));
  } else {
    return bad_device;
  }
  const py::object shape = owned(PyObject_GetAttr(object, names.shape));
  const py::object strides = owned(PyObject_CallMethodNoArgs(object, names.stride));
  const py::object pointer = owned(PyObject_CallMethodNoArgs(object, names.data_ptr));
  view.ndim = static_cast<int>(PyTuple_GET_SIZE(shape.ptr()));
  if (view.ndim > max_dims) return bad_layout;
  for (int d = 0; d < view.ndim; ++d) {
    view.shape[d] = item(shape.ptr(), d);
    view.strides[d] = item(strides.ptr(), d);
  }
  view.data = static_cast<char*>(PyLong_AsVoidPtr(pointer.ptr()));
  count_parts(view);
  return 0;
}

int read(PyObject* object, View& view) {
  return torch.exchange != nullptr && torch.exchange->view != nullptr ? read_exchange(object, view)
                                                                      : read_attributes(object, view);
}

bool same_shape(const View& a, const View& b) {
  return a.ndim == b.ndim && std::equal(a.shape.begin(), a.shape.begin() + a.ndim, b.shape.begin());
}

}  // namespace

bool is_plain_type(PyObject* object) {
  PyObject* const type = reinterpret_cast<PyObject*>(Py_TYPE(object));
  return type == torch.tensor || type == torch.parameter;
}

int read_plain(PyObject* object, View& view) {
  if (!is_plain_type(object)) return not_torch;
  // In this order: inference asks one thing instead of two.
  if (call_is_true(torch.is_grad_enabled) && attribute_is_true(object, names.requires_grad))
    return wants_grad;
  if (const int code = read(object, view)) return code;
  if (method_is_true(object, names.is_neg)) return lazy_bits;
  if (view.is_complex && method_is_true(object, names.is_conj)) return lazy_bits;
  return 0;
}

int same_kind(const View& a, const View& b) {
  if (a.device != b.device) return bad_device;
  if (a.dtype != b.dtype || a.is_complex || b.is_complex) return bad_dtype;
  return same_shape(a, b) ? 0 : bad_shape;
}

bool is_floating(const View& view) {
  return view.dtype == BITEXACT_DTYPE_FLOAT32 || view.dtype == BITEXACT_DTYPE_FLOAT16 ||
         view.dtype == BITEXACT_DTYPE_BFLOAT16;
}

}  // namespace libbitexact
