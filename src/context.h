// What a public bitexact_context is: a backend and the gate in front of it.
#pragma once

#include <memory>

#include "backend.h"
#include "gate.h"

struct bitexact_context {
  bitexact_context(std::unique_ptr<bitexact::Backend> b, const bitexact::GateOptions& options)
      : backend(std::move(b)), gate(*backend, options) {}

  std::unique_ptr<bitexact::Backend> backend;
  bitexact::Gate gate;
};

namespace bitexact {

// Reads options and environment, opens the backend.
int32_t create_context(const bitexact_context_options* options, bitexact_context** out);

}  // namespace bitexact
