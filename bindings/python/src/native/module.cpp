// The fast path: a call from torch tensors to the C table in about a microsecond, without linking torch. Whatever is
// not a plain tensor comes back as a negative code, and Python takes the slow way.

#include "site.h"

namespace py = pybind11;
using libbitexact::RopeSpec;
using libbitexact::SiluSpec;
using libbitexact::Site;

PYBIND11_MODULE(_native, m, py::mod_gil_not_used()) {
  m.doc() =
      "The fast path from torch tensors to libbitexact. Not public: use libbitexact.fused_rope and others.";
  libbitexact::make_names();
  m.def("set_api",
        [](uintptr_t address) { libbitexact::api = reinterpret_cast<const bitexact_api*>(address); });
  m.def("register_torch", &libbitexact::register_torch);
  m.def("uses_exchange_api", [] {
    const auto* exchange = libbitexact::torch.exchange;
    return exchange != nullptr && exchange->view != nullptr;
  });
  py::class_<RopeSpec>(m, "RopeSpec")
      .def(py::init([](int pairing_in, int pairing_out, int combine, int compute, uint32_t flags,
                       int64_t rotary_dim, bool heads_first, bool first_half) {
        return RopeSpec{pairing_in, pairing_out, combine,     compute,
                        flags,      rotary_dim,  heads_first, first_half};
      }));
  py::class_<SiluSpec>(m, "SiluSpec").def(py::init([](int silu, int compute, int clamp, uint32_t limit_bits) {
    return SiluSpec{silu, compute, clamp, limit_bits};
  }));
  py::class_<Site>(m, "Site")
      .def(py::init<>())
      .def("set_context", &Site::set_context)
      .def("silu_mul", &Site::silu_mul)
      .def("silu_mul_verify", &Site::silu_mul_verify)
      .def("rope", &Site::rope)
      .def("rope_verify", &Site::rope_verify)
      .def("learn_silu_mul", &Site::learn_silu_mul)
      .def("learn_rope", &Site::learn_rope);
}
