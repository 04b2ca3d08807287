// One verdict for each kernel of a context: may this call run fused?
//
//   UNDECIDED --check equal----> ACCEPTED   later calls run fused
//             --check not equal> DECLINED   later calls run the reference, or are answered DECLINED
//             --no memory, capture, error > UNDECIDED   this call runs the reference, or is answered
//             --reference not right-------> DECLINED    later calls are refused, or are answered DECLINED
// A fast kernel, declined, hands its calls to the IEEE kernel beside it, which has a verdict of its own.
// The policy can set a verdict at once; TRUST trusts no fast kernel, since only a check proves one. Latched
// verdicts change by reset() alone, except that audit declines an accepted kernel that fails a later check, and
// that a failed certificate declines any.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "backend.h"
#include "kernel_table.h"
#include "self_check.h"

namespace bitexact {

struct GateOptions {
  int32_t policy = BITEXACT_POLICY_VERIFY;
  int32_t reference_mode = BITEXACT_REFERENCE_BUILTIN;
};

class Gate {
 public:
  Gate(Backend& backend, const GateOptions& options);

  const GateOptions& options() const { return options_; }
  void set_log(bitexact_log_fn log, void* user);

  // The public calls, on checked arguments.
  template <class Args>
  int32_t run(const Args& call, bitexact_stream stream);
  template <class Args>
  int32_t can_use(const Args& call) const;
  template <class Args>
  int32_t verify(const Args& call, const Args& expected, bitexact_stream stream, int32_t* verdict);
  int32_t warm_up(int kernel, bitexact_stream stream);
  int32_t certify(const bitexact_certify_params& params, bitexact_certify_report& report);
  void report(int kernel, bitexact_gate_report& to) const;
  void reset();

 private:
  struct Entry {
    std::atomic<int32_t> state{BITEXACT_STATE_UNDECIDED};
    std::atomic<int64_t> fused{0}, reference{0}, declined{0};
    // Guarded by story_:
    int32_t reason = BITEXACT_REASON_NONE, basis = 0, status = 0, mismatch_basis = 0;
    int64_t checks = 0, compared = 0;
    int64_t certified = 0;  // parts of the certificate that this context has run, one after the other
    Comparison comparison;
  };

  bool builtin() const { return options_.reference_mode == BITEXACT_REFERENCE_BUILTIN; }
  bool reference_is_wrong(int kernel) const;
  // In BUILTIN mode INTERNAL for a declined kernel whose reference is wrong too.
  int32_t check_fallback(int kernel) const;
  // The kernel that is to serve a call.
  template <class Variant>
  struct Choice {
    Variant variant;
    int kernel;
  };
  template <class Args>
  auto choose(const Args& call) const;
  template <class Args, class Variant>
  int32_t run_fused(const Choice<Variant>& choice, const Args& call, bitexact_stream stream);
  // Refuses where a check has found the reference wrong.
  template <class Args>
  int32_t run_reference(int kernel, const Args& call, bitexact_stream stream);
  template <class Args>
  int32_t serve_declined(int kernel, const Args& call, bitexact_stream stream);
  // The next two with check_ held.
  template <class Args, class Variant>
  int32_t run_checked(const Choice<Variant>& choice, const Args& call, bitexact_stream stream);
  template <class Args, class Variant>
  int32_t run_declined(const Choice<Variant>& choice, const Args& call, bitexact_stream stream);
  Finding probe(int kernel, bitexact_stream stream);

  // Takes a finding into the story; returns whether it declines.
  bool record(int kernel, const Finding& finding, int32_t basis);
  void accept(int kernel, int32_t basis);
  void certified(int kernel);
  void decline(int kernel, const Finding& finding, int32_t basis);
  void apply_policy();
  void log(int32_t level, const char* text) const;

  Backend& backend_;
  GateOptions options_;
  std::unique_ptr<Entry[]> entries_;
  std::unique_ptr<std::atomic<bool>[]> wrong_references_;  // by probe
  std::mutex check_;                                       // one check at a time in a context
  mutable std::mutex story_;  // the words behind the verdicts; never held during a check
  bitexact_log_fn log_ = nullptr;
  void* log_user_ = nullptr;
};

}  // namespace bitexact
