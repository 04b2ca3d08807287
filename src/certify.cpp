#include "certify.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "golden_digests.h"
#include "kernel_table.h"
#include "status.h"
#include "variants.h"

namespace bitexact {
namespace {

constexpr int64_t sweep_parts_total = int64_t{1} << 2 * tile_bits;  // tiles of 2^32 inputs

// One kernel of each numerics is swept whole: the fastest of the half pairing. The others share its
// arithmetic, and are sampled.
bool is_representative(const RopeKernel& k) {
  if (k.args.pairing_in != Pairing::half || k.args.pairing_out != Pairing::half) return false;
  const bool fast = k.args.compute_dtype != Dtype::float64 && !k.args.sum_from_zero;
  return k.variant == (fast ? RopeVariant::vec16_lanes : RopeVariant::vec16);
}

// ----------------------------------------------------------------------------------- tensors --

// The memory of a part.
struct Layout {
  int64_t in, out, table;  // bytes of each input (of the input), of the output, of each table
  int64_t total() const { return 2 * in + out + 2 * table + static_cast<int64_t>(sizeof(Tally)); }
};

Layout layout_of(const SiluMulArgs& a) {
  const int64_t bytes = certify_inputs * size_of(a.dtype);
  return {bytes, bytes, 0};
}
Layout layout_of(const RopeArgs& a) {
  const int64_t tokens = certify_inputs / certify_token_inputs;
  return {certify_inputs * size_of(a.dtype), 2 * certify_inputs * size_of(a.dtype),
          tokens * 2 * certify_pairs * size_of(a.table_dtype)};
}

// Every other part as a matrix: the kernels place long rows and many rows differently. Whole domains are swept
// with the limit that PyTorch's digests were captured with; samples take limits between 2^-8 and 2^16.
CertifyArgs<SiluMulArgs> located(SiluMulArgs a, Sweep sweep, int64_t part, char* memory) {
  const Layout layout = layout_of(a);
  if (a.clamp != Clamp::none) {
    const double fraction = static_cast<double>(mix(static_cast<uint64_t>(part)) >> 11) * 0x1p-53;
    const float sampled = static_cast<float>(std::ldexp(0.5 + fraction / 2, static_cast<int>(part % 24) - 7));
    a.limit = sweep == Sweep::samples ? sampled : golden_limit;
  }
  a.batches = 1;
  a.rows = part % 2 == 0 ? 1 : 1024;
  a.cols = certify_inputs / a.rows;
  auto rows = [&](char* data) { return Rows{data, certify_inputs, a.cols}; };
  a.gate = rows(memory);
  a.up = rows(memory + layout.in);
  a.out = rows(memory + 2 * layout.in);
  return {a, sweep, part, false};
}

// q and k as one packed tensor. Samples take tables of either width, forwards and backwards.
CertifyArgs<RopeArgs> located(RopeArgs a, Sweep sweep, int64_t part, char* memory) {
  const Layout layout = layout_of(a);
  const int64_t head = 2 * certify_pairs, token = certify_heads * head;
  a.batches = 1;
  a.tokens = a.table_rows = certify_inputs / certify_token_inputs;
  a.head_dim = a.rotary_dim = head;
  a.heads[0] = certify_q_heads;
  a.heads[1] = certify_heads - certify_q_heads;
  a.full_table = sweep == Sweep::samples ? part % 2 == 0 : sweep != Sweep::sums;
  a.inverse = sweep == Sweep::samples && part / 2 % 2 == 1;
  for (int which = 0; which < 2; ++which) {
    const int64_t first = which * certify_q_heads * head * size_of(a.dtype);
    a.in[which] = {memory + first, a.tokens * token, token, head};
    a.out[which] = {memory + 2 * layout.in + first, a.tokens * token, token, head};
  }
  char* const tables = memory + 2 * layout.in + layout.out;
  const int64_t row = a.full_table ? head : certify_pairs;
  a.cos = {tables, 0, row, 0, 1};
  a.sin = {tables + layout.table, 0, row, 0, 1};
  return {a, sweep, part, false};
}

void* output_of(const SiluMulArgs& a) { return a.out.data; }
void* output_of(const RopeArgs& a) { return a.out[0].data; }

// --------------------------------------------------------------------------------------- run --

// Takes a later finding into an earlier one: the first mismatch and the first failure stay.
void merge(Finding& all, const Finding& next) {
  all.compared += next.compared;
  const bool first_mismatch = all.comparison.mismatches == 0;
  const auto mismatches = all.comparison.mismatches + next.comparison.mismatches;
  const auto payloads = all.comparison.nan_payload_differences + next.comparison.nan_payload_differences;
  if (first_mismatch) all.comparison = next.comparison;
  all.comparison.mismatches = mismatches;
  all.comparison.nan_payload_differences = payloads;
  all.outcome = mismatches == 0 ? Outcome::equal : Outcome::mismatch;
}

template <class Args, class Variant>
class Run {
 public:
  Run(Backend& backend, const Plan& plan, const Args& kernel, Variant variant, bitexact_stream stream)
      : backend_(backend), plan_(plan), kernel_(kernel), variant_(variant), stream_(stream) {}
  ~Run() {
    if (memory_ != nullptr) backend_.release(memory_, stream_);
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  Swept parts(int64_t first, int64_t count) {
    int64_t stretch_first = 0;
    for (int s = 0; s < plan_.count; ++s) {
      const Stretch& stretch = plan_.stretches[s];
      for (int64_t part = std::max(first, stretch_first);
           part < std::min(first + count, stretch_first + stretch.parts); ++part) {
        const Finding finding = stretch.kind == Stretch::probe
                                    ? check_probe(backend_, kernel_, variant_, stream_)
                                    : swept(stretch, part - stretch_first, part);
        if (finding.outcome != Outcome::equal && finding.outcome != Outcome::mismatch) {
          swept_.finding = finding;
          return swept_;
        }
        merge(swept_.finding, finding);
        (stretch.kind == Stretch::exhaustive ? swept_.exhaustive : swept_.sampled) += finding.compared;
      }
      stretch_first += stretch.parts;
    }
    finish();
    return swept_;
  }

 private:
  // Enqueues one part. What it finds is known when finish() has waited: until then it counts as equal.
  Finding swept(const Stretch& stretch, int64_t part_of_sweep, int64_t part) {
    int32_t status = memory_ == nullptr ? begin() : BITEXACT_STATUS_OK;
    if (status != BITEXACT_STATUS_OK) return not_now(status);
    CertifyArgs<Args> a = located(kernel_, stretch.sweep, part_of_sweep, static_cast<char*>(memory_));
    a.digested = stretch.kind == Stretch::exhaustive || !plan_.exhaustive();
    if (!fits(a.call, variant_)) {
      status = fail(BITEXACT_STATUS_INTERNAL, "a part of the certificate does not fit its kernel");
      return not_now(status);
    }
    status = backend_.certify_fill(a, stream_);
    // What no kernel writes: an output that it skips must not hold the right bits by chance.
    if (status == BITEXACT_STATUS_OK)
      status = backend_.fill(output_of(a.call), 0xa5, static_cast<size_t>(layout_.out), stream_);
    if (status != BITEXACT_STATUS_OK) return not_now(status);
    status = backend_.fused(a.call, variant_, stream_);
    if (status != BITEXACT_STATUS_OK) return fused_failed(status);
    const int64_t outputs = certify_inputs * certify_outputs(a.call);
    status = backend_.certify_tally(a, static_cast<uint64_t>(part) << 23, tally_, stream_);
    if (status != BITEXACT_STATUS_OK) return not_now(status);
    Finding finding;
    finding.outcome = Outcome::equal;
    finding.compared = outputs;
    return finding;
  }

  int32_t begin() {
    layout_ = layout_of(kernel_);
    int32_t status = backend_.allocate(static_cast<size_t>(layout_.total()), stream_, memory_);
    if (status != BITEXACT_STATUS_OK) memory_ = nullptr;
    if (status != BITEXACT_STATUS_OK) return status;
    tally_ = reinterpret_cast<Tally*>(static_cast<char*>(memory_) + layout_.total() - sizeof(Tally));
    return backend_.upload(tally_, &sum_, sizeof(sum_), stream_);
  }

  void finish() {
    if (memory_ == nullptr) return;
    const int32_t status = backend_.download(&sum_, tally_, sizeof(sum_), stream_);
    if (status != BITEXACT_STATUS_OK) {  // a fault of what was enqueued shows here
      swept_.finding = fused_failed(status);
      return;
    }
    Finding finding;
    finding.comparison = {sum_.mismatches, sum_.nan_payload_differences, sum_.key, sum_.expected,
                          sum_.actual};
    const bool first = swept_.finding.comparison.mismatches == 0;
    merge(swept_.finding, finding);
    if (first && sum_.mismatches != 0)
      std::copy(std::begin(sum_.inputs), std::end(sum_.inputs), swept_.inputs);
    swept_.digest = sum_.digest;
  }

  Backend& backend_;
  const Plan& plan_;
  const Args kernel_;
  const Variant variant_;
  bitexact_stream stream_;
  void* memory_ = nullptr;
  Layout layout_ = {};
  Tally* tally_ = nullptr;
  Tally sum_ = {0, 0, 0, no_key, {}, 0, 0};
  Swept swept_;
};

}  // namespace

// -------------------------------------------------------------------------------------- plan --

int64_t Plan::parts() const {
  int64_t parts = 0;
  for (int s = 0; s < count; ++s) parts += stretches[s].parts;
  return parts;
}

Plan plan_of(int kernel) {
  Plan plan{{{Stretch::probe, Sweep::samples, 1}}, 1};
  auto add = [&](Stretch::Kind kind, Sweep sweep, int64_t parts) {
    plan.stretches[plan.count++] = {kind, sweep, parts};
  };
  if (!is_rope(kernel)) {
    const SiluMulArgs a = silu_mul_kernel(kernel).args;
    if (a.dtype != Dtype::float32) {
      if (a.clamp != Clamp::none) add(Stretch::sampled, Sweep::samples, 24);
      add(Stretch::exhaustive, Sweep::pairs, sweep_parts_total);
    } else {
      add(Stretch::sampled, Sweep::samples, 64);
      add(Stretch::exhaustive, Sweep::gates, sweep_parts_total);
    }
    return plan;
  }
  const RopeKernel k = rope_kernel(kernel);
  add(Stretch::sampled, Sweep::samples, 32);
  if (size_of(k.args.dtype) == 2 && size_of(k.args.table_dtype) == 2 && is_representative(k)) {
    add(Stretch::exhaustive, Sweep::first_products, sweep_parts_total);
    add(Stretch::exhaustive, Sweep::second_products, sweep_parts_total);
    add(Stretch::exhaustive, Sweep::sums, sweep_parts_total);
  }
  return plan;
}

Swept sweep_parts(Backend& backend, int kernel, int64_t first, int64_t count, bitexact_stream stream) {
  const Plan plan = plan_of(kernel);
  if (is_rope(kernel)) {
    const RopeKernel k = rope_kernel(kernel);
    return Run<RopeArgs, RopeVariant>(backend, plan, k.args, k.variant, stream).parts(first, count);
  }
  const SiluMulKernel k = silu_mul_kernel(kernel);
  return Run<SiluMulArgs, SiluMulVariant>(backend, plan, k.args, k.variant, stream).parts(first, count);
}

// ------------------------------------------------------------------------------------ report --

int32_t check_certify(const bitexact_certify_params& p, const bitexact_certify_report& r) {
  auto number = [](int64_t x) { return static_cast<long long>(x); };
  if (p.flags != 0) return fail(BITEXACT_STATUS_UNKNOWN_FIELD, "params->flags is 0x%x; accepted: 0", p.flags);
  if (r.flags != 0) return fail(BITEXACT_STATUS_UNKNOWN_FIELD, "report->flags is 0x%x; accepted: 0", r.flags);
  if (p.kernel_index < 0 || p.kernel_index >= kernel_count) {
    return fail(BITEXACT_STATUS_INDEX, "params->kernel_index is %lld; accepted: 0 to %d",
                number(p.kernel_index), kernel_count - 1);
  }
  const int64_t total = plan_of(static_cast<int>(p.kernel_index)).parts();
  if (p.first_part != r.parts_done) {
    return fail(BITEXACT_STATUS_INVALID_VALUE,
                "params->first_part is %lld; accepted: report->parts_done, which is %lld, so that each part "
                "counts once",
                number(p.first_part), number(r.parts_done));
  }
  if (p.first_part < 0 || p.first_part > total) {
    return fail(BITEXACT_STATUS_INVALID_VALUE, "params->first_part is %lld; accepted: 0 to %lld",
                number(p.first_part), number(total));
  }
  if (p.part_count < 0 || p.part_count > total - p.first_part) {
    return fail(BITEXACT_STATUS_INVALID_VALUE,
                "params->part_count is %lld; accepted: 0 to %lld, what is left", number(p.part_count),
                number(total - p.first_part));
  }
  if (r.parts_done == 0) {
    const bool empty = r.exhaustive_compared == 0 && r.sampled_compared == 0 && r.mismatches == 0 &&
                       r.nan_payload_differences == 0 && r.digest == 0;
    if (empty) return BITEXACT_STATUS_OK;
    return fail(
        BITEXACT_STATUS_INVALID_VALUE,
        "report->parts_done is 0, but its counts are not; accepted: a report that is zero to begin with");
  }
  if (r.kernel_index != p.kernel_index || r.parts_total != total) {
    return fail(BITEXACT_STATUS_INVALID_VALUE,
                "report is of kernel %lld with %lld parts; accepted: one of kernel %lld with %lld parts",
                number(r.kernel_index), number(r.parts_total), number(p.kernel_index), number(total));
  }
  return BITEXACT_STATUS_OK;
}

void add_to_report(const Swept& swept, const bitexact_certify_params& p, const bitexact_gate_report& kernel,
                   bitexact_certify_report& r) {
  r.kernel_index = p.kernel_index;
  r.parts_total = plan_of(static_cast<int>(p.kernel_index)).parts();
  r.parts_done += p.part_count;
  r.exhaustive_compared += swept.exhaustive;
  r.sampled_compared += swept.sampled;
  r.digest += swept.digest;
  const Comparison& c = swept.finding.comparison;
  r.nan_payload_differences += static_cast<int64_t>(c.nan_payload_differences);
  if (r.mismatches == 0 && c.mismatches > 0) {
    std::copy(std::begin(swept.inputs), std::end(swept.inputs), r.mismatch_inputs);
    r.mismatch_expected = c.expected;
    r.mismatch_actual = c.actual;
  }
  r.mismatches += static_cast<int64_t>(c.mismatches);
  uint64_t golden = 0;
  const bool complete = r.parts_done == r.parts_total && p.part_count > 0;
  if (!complete || r.exhaustive_compared == 0 || !golden_digest(kernel, golden) || golden == r.digest) return;
  // Some element differs from PyTorch's, though none from the reference.
  if (r.mismatches++ != 0) return;
  r.mismatch_expected = golden;
  r.mismatch_actual = r.digest;
}

}  // namespace bitexact
