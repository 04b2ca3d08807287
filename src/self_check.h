// The comparisons behind a verdict. No state of their own: the gate decides what follows from them.
#pragma once

#include <cstdint>

#include "backend.h"
#include "operation.h"

namespace bitexact {

enum class Outcome {
  equal,
  mismatch,
  fused_failed,  // the fused kernel could not be launched, or faulted
  unproven,      // the reference or the comparison is wrong itself: neither truth nor fallback
  not_now        // nothing learnt: out of memory, say; `status` tells
};

struct Finding {
  Outcome outcome = Outcome::not_now;
  int32_t status = BITEXACT_STATUS_OK;
  int64_t compared = 0;
  bool ran_live = false;  // the fused kernel has run over the caller's own outputs, and counted positions
  Comparison comparison;
};

// A finding of a failure: want of memory may pass, so it says nothing about a kernel.
Finding not_now(int32_t status);
Finding fused_failed(int32_t status);

// The bit of a comparison's key that says "second output".
constexpr uint64_t second_output = uint64_t{1} << 62;

// Probe inputs through the fused kernel and the built-in reference, and what that gives against its digest.
template <class Args, class Variant>
Finding check_probe(Backend& backend, const Args& kernel, Variant variant, bitexact_stream stream);

// The caller's tensors against the built-in reference. Unless `keep_out`, a call that is not in place
// leaves the fused kernel's bits in its outputs; otherwise outputs stay as they were.
template <class Args, class Variant>
Finding check_live(Backend& backend, const Args& call, Variant variant, bool keep_out,
                   bitexact_stream stream);

// The fused kernel, run into scratch, against the caller's own result: the outputs of `expected`.
template <class Args, class Variant>
Finding check_against(Backend& backend, const Args& call, Variant variant, const Args& expected,
                      bitexact_stream stream);

}  // namespace bitexact
