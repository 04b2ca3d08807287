// What the fast path knows of torch, which it does not link.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>

#define BITEXACT_NO_PROTOTYPES
#include "bitexact.h"
#include "dlpack.h"

namespace libbitexact {

namespace py = pybind11;

// Why the binding itself stopped; statuses of the library are not negative.
constexpr int not_torch = -1;
constexpr int wants_grad = -2;
constexpr int has_mode = -3;
constexpr int lazy_bits = -4;
constexpr int bad_device = -5;
constexpr int bad_dtype = -6;
constexpr int bad_layout = -7;
constexpr int bad_shape = -8;
constexpr int no_context = -9;
constexpr int no_layout = -10;

// What is known of torch once it is imported. Written once, under the GIL, before any call.
struct Torch {
  PyObject *tensor = nullptr, *parameter = nullptr;
  const dlpack::ExchangeApi* exchange = nullptr;
  PyObject *is_grad_enabled, *dispatch_depth, *functorch_level, *tracing_state, *raw_stream;
  PyObject *forward_ad, *increment_version;
  PyObject* dtypes;  // torch.dtype -> (DLPack code, bits)
};
extern Torch torch;

struct Names {
  PyObject *requires_grad, *is_neg, *is_conj, *new_empty_strided, *shape, *stride, *data_ptr, *dtype, *device,
      *type, *index, *current_level;
};
extern Names names;

void make_names();

// Called once, after torch is imported, with what it has; None where it lacks something.
void register_torch(const py::object& tensor, const py::object& parameter, const py::object& capsule,
                    const py::dict& functions, const py::dict& dtypes);

// A new reference that throws what Python raised.
inline py::object owned(PyObject* object) {
  if (object == nullptr) throw py::error_already_set();
  return py::reinterpret_steal<py::object>(object);
}

bool attribute_is_true(PyObject* object, PyObject* name);
bool method_is_true(PyObject* object, PyObject* name);
bool call_is_true(PyObject* callable);

// A dispatch mode, a function transform, a tracer or forward differentiation wants to see every operator.
bool mode_is_active();

// Tells autograd that a tensor was written.
void bump_version(PyObject* tensor);

// The current stream of a device; none on the host.
bitexact_stream stream_of(int device);

}  // namespace libbitexact
