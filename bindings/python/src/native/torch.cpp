#include "torch.h"

namespace libbitexact {

Torch torch;
Names names;

void make_names() {
  const auto make = PyUnicode_InternFromString;
  names = {make("requires_grad"), make("is_neg"), make("is_conj"),  make("new_empty_strided"),
           make("shape"),         make("stride"), make("data_ptr"), make("dtype"),
           make("device"),        make("type"),   make("index"),    make("_current_level")};
}

namespace {

bool truth(PyObject* object) {
  if (object == Py_True) return true;
  if (object == Py_False || object == Py_None) return false;
  const int value = PyObject_IsTrue(object);
  if (value < 0) throw py::error_already_set();
  return value != 0;
}

PyObject* kept(const py::object& object) { return object.is_none() ? nullptr : object.inc_ref().ptr(); }

}  // namespace

bool attribute_is_true(PyObject* object, PyObject* name) {
  return truth(owned(PyObject_GetAttr(object, name)).ptr());
}

bool method_is_true(PyObject* object, PyObject* name) {
  return truth(owned(PyObject_CallMethodNoArgs(object, name)).ptr());
}

bool call_is_true(PyObject* callable) { return truth(owned(PyObject_CallNoArgs(callable)).ptr()); }

bool mode_is_active() {
  if (torch.dispatch_depth != nullptr && call_is_true(torch.dispatch_depth)) return true;
  if (torch.functorch_level != nullptr && owned(PyObject_CallNoArgs(torch.functorch_level)).ptr() != Py_None)
    return true;
  if (torch.tracing_state != nullptr && owned(PyObject_CallNoArgs(torch.tracing_state)).ptr() != Py_None)
    return true;
  const py::object level = owned(PyObject_GetAttr(torch.forward_ad, names.current_level));
  return PyLong_AsLong(level.ptr()) >= 0;
}

void bump_version(PyObject* tensor) {
  if (torch.increment_version == nullptr) return;
  const py::tuple one = py::make_tuple(py::handle(tensor));
  PyObject* const done = PyObject_CallOneArg(torch.increment_version, one.ptr());
  if (done == nullptr) PyErr_Clear();  // inference tensors have no version
  Py_XDECREF(done);
}

bitexact_stream stream_of(int device) {
  if (device == BITEXACT_DEVICE_HOST) return nullptr;
  if (torch.exchange != nullptr) {
    void* raw = nullptr;
    if (torch.exchange->current_stream(dlpack::cuda, device, &raw) != 0) throw py::error_already_set();
    return static_cast<bitexact_stream>(raw);
  }
  const py::object ordinal = py::int_(device);
  const py::object raw = owned(PyObject_CallOneArg(torch.raw_stream, ordinal.ptr()));
  return static_cast<bitexact_stream>(PyLong_AsVoidPtr(raw.ptr()));
}

void register_torch(const py::object& tensor, const py::object& parameter, const py::object& capsule,
                    const py::dict& functions, const py::dict& dtypes) {
  Torch t;
  t.tensor = kept(tensor);
  t.parameter = kept(parameter);
  const auto function = [&functions](const char* name) { return kept(functions[name]); };
  t.is_grad_enabled = function("is_grad_enabled");
  t.dispatch_depth = function("dispatch_depth");
  t.functorch_level = function("functorch_level");
  t.tracing_state = function("tracing_state");
  t.raw_stream = function("raw_stream");
  t.forward_ad = function("forward_ad");
  t.increment_version = function("increment_version");
  t.dtypes = kept(dtypes);
  if (!capsule.is_none()) {
    auto* table =
        static_cast<const dlpack::ExchangeApi*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
    if (table == nullptr) PyErr_Clear();
    while (table != nullptr && table->major > 1) table = table->previous;
    if (table != nullptr && table->major == 1) t.exchange = table;
  }
  torch = t;
}

}  // namespace libbitexact
