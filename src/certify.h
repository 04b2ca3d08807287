// A certificate: which parts a kernel's has, and how they are run. No state of its own.
#pragma once

#include <cstdint>

#include "backend.h"
#include "self_check.h"

namespace bitexact {

// Parts that belong together, in the order in which they are run.
struct Stretch {
  enum Kind { probe, sampled, exhaustive };
  Kind kind;
  Sweep sweep;  // not for probe
  int64_t parts;
};

struct Plan {
  Stretch stretches[5];
  int count;

  int64_t parts() const;
  bool exhaustive() const { return stretches[count - 1].kind == Stretch::exhaustive; }
};

Plan plan_of(int kernel);

struct Swept {
  Finding finding;                      // as of one check over all these parts
  int64_t exhaustive = 0, sampled = 0;  // elements compared
  uint64_t digest = 0, inputs[4] = {};
};

// Runs parts [first, first + count) of a kernel's certificate; waits for them.
Swept sweep_parts(Backend& backend, int kernel, int64_t first, int64_t count, bitexact_stream stream);

// Refuses what would count a part twice, or miss one, or add to another kernel's report.
int32_t check_certify(const bitexact_certify_params& params, const bitexact_certify_report& report);

// Adds to the report; the last part holds its digest against PyTorch's, if that was captured.
void add_to_report(const Swept& swept, const bitexact_certify_params& params,
                   const bitexact_gate_report& kernel, bitexact_certify_report& report);

}  // namespace bitexact
