#include "gate.h"

#include <cinttypes>
#include <cstdio>

#include "certify.h"
#include "status.h"
#include "variants.h"

namespace bitexact {
namespace {

constexpr char declined_text[] =
    "the fused kernel is declined in this context (bitexact_gate_get tells why); run the eager chain";
constexpr char unverified_text[] =
    "undecided in CALLER mode; run the eager chain and hand its result to the verify function";
constexpr char capturing_text[] =
    "undecided and the stream is capturing; run the eager chain, or call bitexact_gate_warm_up before a "
    "capture";
constexpr char wrong_reference_text[] =
    "a check found the built-in reference itself computing wrongly here, so no bits can be vouched for; run "
    "the eager chain (the context's log names the digests)";
constexpr char certify_capturing_text[] =
    "a stream is capturing, and a certificate runs on the default stream; certify before or after the "
    "capture";

// CAPTURING if the stream is; a check waits for its stream, which a capture forbids.
int32_t refuse_capture(Backend& backend, bitexact_stream stream, const char* text) {
  bool is_capturing = false;
  const int32_t status = backend.is_capturing(stream, is_capturing);
  if (status != BITEXACT_STATUS_OK) return status;
  return is_capturing ? answer(BITEXACT_STATUS_CAPTURING, text) : BITEXACT_STATUS_OK;
}

// A complete certificate that the reference agrees with and PyTorch's digest does not.
Finding other_digest(const bitexact_certify_report& report) {
  Finding finding;
  finding.outcome = Outcome::mismatch;
  finding.compared = report.exhaustive_compared;
  finding.comparison = {1, 0, no_key, report.mismatch_expected, report.mismatch_actual};
  return finding;
}

}  // namespace

Gate::Gate(Backend& backend, const GateOptions& options)
    : backend_(backend),
      options_(options),
      entries_(new Entry[kernel_count]),
      wrong_references_(new std::atomic<bool>[probe_count]()) {
  apply_policy();
}

void Gate::set_log(bitexact_log_fn log, void* user) {
  log_ = log;
  log_user_ = user;
}

void Gate::log(int32_t level, const char* text) const {
  if (log_ != nullptr) log_(level, text, log_user_);
}

void Gate::apply_policy() {
  const bool never = options_.policy == BITEXACT_POLICY_REFERENCE;
  if (!never && options_.policy != BITEXACT_POLICY_TRUST) return;
  for (int k = 0; k < kernel_count; ++k) {
    const bool is_fast = successor_of(k) != k;
    entries_[k].reason = BITEXACT_REASON_POLICY;
    entries_[k].state.store(never || is_fast ? BITEXACT_STATE_DECLINED : BITEXACT_STATE_ACCEPTED,
                            std::memory_order_release);
  }
}

void Gate::reset() {
  entries_.reset(new Entry[kernel_count]);
  wrong_references_.reset(new std::atomic<bool>[probe_count]());
  apply_policy();
}

// ---------------------------------------------------------------------------------- verdicts --

bool Gate::record(int kernel, const Finding& finding, int32_t basis) {
  if (finding.outcome == Outcome::not_now) return false;
  if (finding.outcome == Outcome::unproven) wrong_references_[probe_of(kernel)].store(true);
  const bool declines = finding.outcome != Outcome::equal;
  {
    const std::lock_guard<std::mutex> lock(story_);
    Entry& e = entries_[kernel];
    if (finding.outcome != Outcome::fused_failed) {
      ++e.checks;
      e.compared += finding.compared;
      e.comparison.nan_payload_differences += finding.comparison.nan_payload_differences;
    }
  }
  if (declines) decline(kernel, finding, basis);
  return declines;
}

void Gate::accept(int kernel, int32_t basis) {
  Entry& e = entries_[kernel];
  char text[256];
  {
    const std::lock_guard<std::mutex> lock(story_);
    if (e.state.load(std::memory_order_relaxed) != BITEXACT_STATE_UNDECIDED) return;
    e.reason = BITEXACT_REASON_EQUAL;
    e.basis |= basis;
    std::snprintf(text, sizeof(text), "accepted: %s (%" PRId64 " elements equal)", kernel_name(kernel),
                  e.compared);
    e.state.store(BITEXACT_STATE_ACCEPTED, std::memory_order_release);
  }
  log(BITEXACT_LOG_INFO, text);
}

void Gate::decline(int kernel, const Finding& finding, int32_t basis) {
  Entry& e = entries_[kernel];
  char text[512];
  {
    const std::lock_guard<std::mutex> lock(story_);
    e.basis |= basis;
    if (finding.outcome == Outcome::mismatch) {
      e.reason = BITEXACT_REASON_MISMATCH;
      e.mismatch_basis = basis;
      const auto payloads = e.comparison.nan_payload_differences;
      e.comparison = finding.comparison;
      e.comparison.nan_payload_differences = payloads;
      std::snprintf(text, sizeof(text),
                    "declined: %s (%llu of %" PRId64 " elements differ; first: %s %" PRIu64
                    ", expected 0x%llx, fused 0x%llx)",
                    kernel_name(kernel), finding.comparison.mismatches, finding.compared,
                    (finding.comparison.key & second_output) != 0 ? "k" : "element",
                    static_cast<uint64_t>(finding.comparison.key & ~second_output),
                    finding.comparison.expected, finding.comparison.actual);
    } else {
      e.reason = finding.outcome == Outcome::unproven                ? BITEXACT_REASON_REFERENCE
                 : finding.status == BITEXACT_STATUS_NO_KERNEL_IMAGE ? BITEXACT_REASON_NO_IMAGE
                                                                     : BITEXACT_REASON_LAUNCH_ERROR;
      e.status = finding.status;
      std::snprintf(text, sizeof(text), "declined: %s (%s)", kernel_name(kernel), last_error());
    }
    e.state.store(BITEXACT_STATE_DECLINED, std::memory_order_release);
  }
  log(BITEXACT_LOG_WARNING, text);
}

void Gate::report(int kernel, bitexact_gate_report& to) const {
  const std::lock_guard<std::mutex> lock(story_);
  const Entry& e = entries_[kernel];
  to.operation = is_rope(kernel) ? BITEXACT_OPERATION_FUSED_ROPE : BITEXACT_OPERATION_FUSED_SILU_MUL;
  to.state = e.state.load(std::memory_order_acquire);
  to.reason = e.reason;
  to.basis = e.basis;
  to.status = e.status;
  if (is_rope(kernel)) {
    const RopeArgs a = rope_kernel(kernel).args;
    to.dtype = static_cast<int32_t>(a.dtype);
    to.table_dtype = static_cast<int32_t>(a.table_dtype);
    to.compute_dtype = static_cast<int32_t>(a.compute_dtype);
    to.numerics = static_cast<int32_t>(a.combine);
  } else {
    const SiluMulArgs a = silu_mul_kernel(kernel).args;
    to.dtype = static_cast<int32_t>(a.dtype);
    to.compute_dtype = a.compute_float32 ? BITEXACT_DTYPE_FLOAT32 : 0;
    to.numerics = static_cast<int32_t>(a.silu);
  }
  to.fused_calls = e.fused.load(std::memory_order_relaxed);
  to.reference_calls = e.reference.load(std::memory_order_relaxed);
  to.declined_calls = e.declined.load(std::memory_order_relaxed);
  to.checks = e.checks;
  to.compared = e.compared;
  to.nan_payload_differences = static_cast<int64_t>(e.comparison.nan_payload_differences);
  to.mismatches = static_cast<int64_t>(e.comparison.mismatches);
  to.mismatch_basis = e.mismatch_basis;
  if (e.comparison.mismatches > 0) {
    to.mismatch_tensor = (e.comparison.key & second_output) != 0 ? 1 : 0;
    to.mismatch_index = static_cast<int64_t>(e.comparison.key & ~second_output);
    to.mismatch_expected = e.comparison.expected;
    to.mismatch_actual = e.comparison.actual;
  }
  to.kernel_name = kernel_name(kernel);
}

// ------------------------------------------------------------------------------------- calls --

namespace {

RopeArgs uncounted(RopeArgs a) {
  a.position_errors = nullptr;
  return a;
}
const SiluMulArgs& uncounted(const SiluMulArgs& a) { return a; }

}  // namespace

template <class Args>
auto Gate::choose(const Args& call) const {
  const auto variant = choose_variant(call);
  Choice<decltype(choose_variant(call))> choice{variant, kernel_of(call, variant)};
  if (is_fast(variant) &&
      entries_[choice.kernel].state.load(std::memory_order_acquire) == BITEXACT_STATE_DECLINED) {
    choice = {without_fast(variant), successor_of(choice.kernel)};
  }
  return choice;
}

template <class Args, class Variant>
int32_t Gate::run_fused(const Choice<Variant>& choice, const Args& call, bitexact_stream stream) {
  // Counted before: an atomic operation right behind a launch waits until the device has seen it.
  std::atomic<int64_t>& calls = entries_[choice.kernel].fused;
  calls.fetch_add(1, std::memory_order_relaxed);
  const int32_t status = backend_.fused(call, choice.variant, stream);
  if (status != BITEXACT_STATUS_OK) calls.fetch_sub(1, std::memory_order_relaxed);
  return status;
}

bool Gate::reference_is_wrong(int kernel) const {
  return wrong_references_[probe_of(kernel)].load(std::memory_order_acquire);
}

int32_t Gate::check_fallback(int kernel) const {
  const bool declined = entries_[kernel].state.load(std::memory_order_acquire) == BITEXACT_STATE_DECLINED;
  if (!declined || !builtin() || !reference_is_wrong(kernel)) return BITEXACT_STATUS_OK;
  return answer(BITEXACT_STATUS_INTERNAL, wrong_reference_text);
}

template <class Args>
int32_t Gate::run_reference(int kernel, const Args& call, bitexact_stream stream) {
  if (reference_is_wrong(kernel)) return answer(BITEXACT_STATUS_INTERNAL, wrong_reference_text);
  const int32_t status = backend_.reference(call, stream);
  if (status == BITEXACT_STATUS_OK) entries_[kernel].reference.fetch_add(1, std::memory_order_relaxed);
  return status;
}

template <class Args>
int32_t Gate::serve_declined(int kernel, const Args& call, bitexact_stream stream) {
  const bool strict = options_.policy == BITEXACT_POLICY_STRICT;
  if (builtin() && (!strict || reference_is_wrong(kernel))) return run_reference(kernel, call, stream);
  entries_[kernel].declined.fetch_add(1, std::memory_order_relaxed);
  return answer(BITEXACT_STATUS_DECLINED, declined_text);
}

template <class Args>
int32_t Gate::run(const Args& call, bitexact_stream stream) {
  const int32_t stream_status = backend_.check_stream(stream);
  if (stream_status != BITEXACT_STATUS_OK) return stream_status;
  const Backend::Scope scope(backend_);
  if (scope.status() != BITEXACT_STATUS_OK) return scope.status();
  const auto choice = choose(call);
  Entry& entry = entries_[choice.kernel];
  const int32_t state = entry.state.load(std::memory_order_acquire);
  if (state == BITEXACT_STATE_DECLINED) return serve_declined(choice.kernel, call, stream);
  if (state == BITEXACT_STATE_ACCEPTED && options_.policy != BITEXACT_POLICY_AUDIT) {
    return run_fused(choice, call, stream);
  }

  bool is_capturing = false;
  const int32_t status = backend_.is_capturing(stream, is_capturing);
  if (status != BITEXACT_STATUS_OK) return status;
  if (!builtin()) {
    entry.declined.fetch_add(1, std::memory_order_relaxed);
    return is_capturing ? answer(BITEXACT_STATUS_CAPTURING, capturing_text)
                        : answer(BITEXACT_STATUS_UNVERIFIED, unverified_text);
  }
  if (is_capturing) return run_reference(choice.kernel, call, stream);
  const std::unique_lock<std::mutex> lock(check_, std::try_to_lock);
  if (!lock.owns_lock()) return run_reference(choice.kernel, call, stream);  // another thread is checking
  return run_checked(choice, call, stream);
}

// First use (or any use under audit) in BUILTIN mode, on a stream that is not capturing.
template <class Args, class Variant>
int32_t Gate::run_checked(const Choice<Variant>& choice, const Args& call, bitexact_stream stream) {
  const auto [variant, kernel] = choice;
  Entry& entry = entries_[kernel];
  const bool audit = options_.policy == BITEXACT_POLICY_AUDIT;
  const int32_t state = entry.state.load(std::memory_order_acquire);
  if (state == BITEXACT_STATE_DECLINED) return run_declined(choice, call, stream);
  if (state == BITEXACT_STATE_ACCEPTED && !audit) return run_fused(choice, call, stream);

  if (state == BITEXACT_STATE_UNDECIDED) {
    const Finding probed = probe(kernel, stream);
    if (record(kernel, probed, BITEXACT_BASIS_PROBE)) return run_declined(choice, call, stream);
    if (probed.outcome == Outcome::not_now) return run_reference(kernel, call, stream);
  }
  // A strict decline is an error, and an error leaves the outputs alone.
  const bool keep_out = options_.policy == BITEXACT_POLICY_STRICT;
  const Finding live = check_live(backend_, call, variant, keep_out, stream);
  // A fused run over the real outputs has counted the positions already.
  const Args rest = live.ran_live ? Args(uncounted(call)) : call;
  if (record(kernel, live, BITEXACT_BASIS_LIVE)) return run_declined(choice, rest, stream);
  if (live.outcome == Outcome::not_now) return run_reference(kernel, rest, stream);
  accept(kernel, BITEXACT_BASIS_PROBE | BITEXACT_BASIS_LIVE);
  if (keep_out || in_place(call)) return run_fused(choice, call, stream);
  entry.fused.fetch_add(1, std::memory_order_relaxed);
  return BITEXACT_STATUS_OK;
}

template <class Args, class Variant>
int32_t Gate::run_declined(const Choice<Variant>& choice, const Args& call, bitexact_stream stream) {
  const Choice<Variant> next = choose(call);
  if (next.kernel != choice.kernel) return run_checked(next, call, stream);
  return serve_declined(choice.kernel, call, stream);
}

Finding Gate::probe(int kernel, bitexact_stream stream) {
  if (is_rope(kernel)) {
    const RopeKernel k = rope_kernel(kernel);
    return check_probe(backend_, k.args, k.variant, stream);
  }
  const SiluMulKernel k = silu_mul_kernel(kernel);
  return check_probe(backend_, k.args, k.variant, stream);
}

template <class Args>
int32_t Gate::can_use(const Args& call) const {
  const int kernel = choose(call).kernel;
  const int32_t state = entries_[kernel].state.load(std::memory_order_acquire);
  const int32_t helpless = check_fallback(kernel);
  if (helpless != BITEXACT_STATUS_OK) return helpless;
  if (state == BITEXACT_STATE_DECLINED) return answer(BITEXACT_STATUS_DECLINED, declined_text);
  if (state == BITEXACT_STATE_UNDECIDED && !builtin())
    return answer(BITEXACT_STATUS_UNVERIFIED, unverified_text);
  return BITEXACT_STATUS_OK;
}

template <class Args>
int32_t Gate::verify(const Args& call, const Args& expected, bitexact_stream stream, int32_t* verdict) {
  if (builtin()) {
    return fail(BITEXACT_STATUS_WRONG_MODE,
                "the context's reference_mode is BUILTIN (0); accepted: CALLER (1), set at creation");
  }
  const int32_t stream_status = backend_.check_stream(stream);
  if (stream_status != BITEXACT_STATUS_OK) return stream_status;
  const Backend::Scope scope(backend_);
  if (scope.status() != BITEXACT_STATUS_OK) return scope.status();
  const int32_t capture_status = refuse_capture(backend_, stream, capturing_text);
  if (capture_status != BITEXACT_STATUS_OK) return capture_status;

  const std::lock_guard<std::mutex> lock(check_);
  auto choice = choose(call);
  for (int kernel = -1; kernel != choice.kernel; choice = choose(call)) {
    kernel = choice.kernel;
    const int32_t before = entries_[kernel].state.load(std::memory_order_acquire);
    const bool audit = options_.policy == BITEXACT_POLICY_AUDIT && before == BITEXACT_STATE_ACCEPTED;
    if (before != BITEXACT_STATE_UNDECIDED && !audit) break;
    if (before == BITEXACT_STATE_UNDECIDED) {
      const Finding probed = probe(kernel, stream);
      if (probed.outcome == Outcome::not_now) return probed.status;
      if (record(kernel, probed, BITEXACT_BASIS_PROBE)) continue;
    }
    const Finding live = check_against(backend_, call, choice.variant, expected, stream);
    if (live.outcome == Outcome::not_now) return live.status;
    if (!record(kernel, live, BITEXACT_BASIS_LIVE))
      accept(kernel, BITEXACT_BASIS_PROBE | BITEXACT_BASIS_LIVE);
  }
  if (verdict != nullptr) *verdict = entries_[choice.kernel].state.load(std::memory_order_acquire);
  return BITEXACT_STATUS_OK;
}

int32_t Gate::warm_up(int kernel, bitexact_stream stream) {
  const int32_t stream_status = backend_.check_stream(stream);
  if (stream_status != BITEXACT_STATUS_OK) return stream_status;
  const Backend::Scope scope(backend_);
  if (scope.status() != BITEXACT_STATUS_OK) return scope.status();
  const int32_t capture_status = refuse_capture(backend_, stream, capturing_text);
  if (capture_status != BITEXACT_STATUS_OK) return capture_status;
  const std::lock_guard<std::mutex> lock(check_);
  auto state = [&] { return entries_[kernel].state.load(std::memory_order_acquire); };
  for (;; kernel = successor_of(kernel)) {
    if (state() == BITEXACT_STATE_UNDECIDED) {
      const Finding finding = probe(kernel, stream);
      if (finding.outcome == Outcome::not_now) return finding.status;
      // In CALLER mode only the caller's own result can accept.
      if (!record(kernel, finding, BITEXACT_BASIS_PROBE) && builtin()) accept(kernel, BITEXACT_BASIS_PROBE);
    }
    if (state() != BITEXACT_STATE_DECLINED || successor_of(kernel) == kernel) return check_fallback(kernel);
  }
}

// On the legacy default stream, which waits for the caller's blocking streams and they for it.
int32_t Gate::certify(const bitexact_certify_params& params, bitexact_certify_report& report) {
  const int kernel = static_cast<int>(params.kernel_index);
  Entry& entry = entries_[kernel];
  bitexact_gate_report story{};
  Gate::report(kernel, story);
  Swept swept;
  if (params.part_count == 0) {
    add_to_report(swept, params, story, report);
    return BITEXACT_STATUS_OK;
  }
  const Backend::Scope scope(backend_);
  if (scope.status() != BITEXACT_STATUS_OK) return scope.status();
  const int32_t capture_status = refuse_capture(backend_, nullptr, certify_capturing_text);
  if (capture_status != BITEXACT_STATUS_OK) return capture_status;

  const std::lock_guard<std::mutex> lock(check_);
  swept = sweep_parts(backend_, kernel, params.first_part, params.part_count, nullptr);
  if (swept.finding.outcome == Outcome::not_now) return swept.finding.status;
  const bool in_order = params.first_part == 0 || params.first_part == entry.certified;
  entry.certified = in_order ? params.first_part + params.part_count : -1;
  const Outcome outcome = swept.finding.outcome;
  const bool ended = outcome == Outcome::equal || outcome == Outcome::mismatch;
  if (!ended) entry.certified = -1;
  record(kernel, swept.finding, BITEXACT_BASIS_CERTIFICATE);
  if (!ended) return swept.finding.status;
  const int64_t differing = report.mismatches + static_cast<int64_t>(swept.finding.comparison.mismatches);
  add_to_report(swept, params, story, report);
  if (report.mismatches != differing) decline(kernel, other_digest(report), BITEXACT_BASIS_CERTIFICATE);
  if (report.mismatches == 0 && entry.certified == report.parts_total) certified(kernel);
  return BITEXACT_STATUS_OK;
}

// In CALLER mode only the caller's own result can accept, but the story tells of the certificate.
void Gate::certified(int kernel) {
  if (builtin()) accept(kernel, BITEXACT_BASIS_CERTIFICATE);
  const std::lock_guard<std::mutex> lock(story_);
  Entry& e = entries_[kernel];
  if (e.state.load(std::memory_order_relaxed) != BITEXACT_STATE_DECLINED)
    e.basis |= BITEXACT_BASIS_CERTIFICATE;
}

template int32_t Gate::run(const SiluMulArgs&, bitexact_stream);
template int32_t Gate::run(const RopeArgs&, bitexact_stream);
template int32_t Gate::can_use(const SiluMulArgs&) const;
template int32_t Gate::can_use(const RopeArgs&) const;
template int32_t Gate::verify(const SiluMulArgs&, const SiluMulArgs&, bitexact_stream, int32_t*);
template int32_t Gate::verify(const RopeArgs&, const RopeArgs&, bitexact_stream, int32_t*);

}  // namespace bitexact
