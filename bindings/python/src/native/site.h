// One place of a program that calls one operation: its contexts, and the layouts of eager's results there.
#pragma once

#include <atomic>
#include <initializer_list>
#include <utility>

#include "layout.h"
#include "rope.h"
#include "silu_mul.h"

namespace libbitexact {

// The table of the C interface; set once, after the library is opened.
extern const bitexact_api* api;

class Site {
 public:
  // 0 takes the context of a device away. Ordinals from -1 (the host) to 127.
  void set_context(int device, uintptr_t context);

  // The result, or an int: a code, or a status of the library. `out` may be None.
  py::object silu_mul(const SiluSpec& spec, const py::object& gate, const py::object& up,
                      const py::object& out);

  // The rotated q, a pair if there is a k, or an int as above. All but q and cos may be None.
  py::object rope(const RopeSpec& spec, const py::object& q, const py::object& k, const py::object& cos,
                  const py::object& sin, const py::object& positions, const py::object& q_out,
                  const py::object& k_out);

  // Compare with eager's result: a code or status, and the verdict.
  std::pair<int, int> silu_mul_verify(const SiluSpec& spec, const py::object& gate, const py::object& up,
                                      const py::object& out, const py::object& reference);
  std::pair<int, int> rope_verify(const RopeSpec& spec, const py::object& q, const py::object& k,
                                  const py::object& cos, const py::object& sin, const py::object& positions,
                                  const py::object& q_out, const py::object& k_out,
                                  const py::object& q_expected, const py::object& k_expected);

  // Remember how eager's result lies for arguments that look like these. 0 or a code.
  int learn_silu_mul(const SiluSpec& spec, const py::object& gate, const py::object& up,
                     const py::object& result);
  int learn_rope(const RopeSpec& spec, const py::object& q, const py::object& k, const py::object& cos,
                 const py::object& sin, const py::object& positions, const py::object& q_result,
                 const py::object& k_result);

 private:
  bitexact_context* context_of(int device) const;

  std::array<std::atomic<bitexact_context*>, 129> contexts_{};
  Layouts layouts_;
};

}  // namespace libbitexact
