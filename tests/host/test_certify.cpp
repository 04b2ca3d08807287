// Certificates on the host: what their parts compare, how they add up, and when they prove nothing.
#include "certify.h"

#include <algorithm>
#include <set>

#include "cases.h"
#include "context.h"
#include "contexts.h"
#include "faulty_context.h"
#include "golden.h"
#include "golden_digests.h"
#include "host/host_backend.h"
#include "kernel_table.h"
#include "mutant_list.h"
#include "mutants.h"
#include "mutated.h"
#include "reference/numbers.h"
#include "reference/reference.h"

using namespace bitexact_test;

namespace {

constexpr int64_t tile = int64_t{1} << 22, all_tiles = 1024;

int kernel_named(const std::string& name) {
  for (int k = 0; k < kernel_count; ++k) {
    if (kernel_name(k) == name) return k;
  }
  ADD_FAILURE() << "no kernel " << name;
  return 0;
}

const char silu[] = "fused_silu_mul bfloat16 aten vec16";
const char whole_rope[] = "fused_rope bfloat16 table=bfloat16 compute=bfloat16 separate half vec16_lanes";
const char sampled_rope[] = "fused_rope bfloat16 table=float32 compute=float32 separate half scalar";

// A report as after `parts` parts that found nothing, so that a test can start further on.
bitexact_certify_report after(int kernel, int64_t parts) {
  bitexact_certify_report report = BITEXACT_CERTIFY_REPORT_INIT;
  report.kernel_index = kernel;
  report.parts_total = plan_of(kernel).parts();
  report.parts_done = parts;
  return report;
}

int32_t certify(const Context& context, int kernel, int64_t first, int64_t count,
                bitexact_certify_report& report) {
  bitexact_certify_params params = BITEXACT_CERTIFY_PARAMS_INIT;
  params.kernel_index = kernel;
  params.first_part = first;
  params.part_count = count;
  return bitexact_certify(context.get(), &params, &report);
}

bitexact_gate_report story_of(const Context& context, int kernel) {
  bitexact_gate_report story = BITEXACT_GATE_REPORT_INIT;
  EXPECT_EQ(bitexact_gate_get(context.get(), kernel, &story), BITEXACT_STATUS_OK);
  return story;
}

// A context whose sweeps compute nothing and find what `tally` says.
FaultyBackend* quick_context(Context& context, const GateOptions& options = {}) {
  FaultyBackend* const backend = make_faulty(context, BITEXACT_DEVICE_HOST, options);
  backend->tally = [](Sweep, int64_t, Tally&) {};
  return backend;
}

bool same(const bitexact_certify_report& a, const bitexact_certify_report& b) {
  return std::memcmp(&a, &b, sizeof(a)) == 0;
}

// ------------------------------------------------------------------------------ what is swept --

// One tile of silu_mul, each pair of it, by the reference of the tests.
TEST(Certify, SiluMulSweepsEachPairOfATile) {
  const Context context = make_context(BITEXACT_DEVICE_HOST);
  const int kernel = kernel_named(silu);
  const int64_t gate_tile = 7, up_tile = 23;  // around 1 and -1
  const int64_t part = 1 + gate_tile * 32 + up_tile;
  bitexact_certify_report report = after(kernel, part);
  ASSERT_EQ(certify(context, kernel, part, 1, report), BITEXACT_STATUS_OK) << bitexact_last_error();
  std::vector<uint16_t> gate, up, out(static_cast<size_t>(tile));
  for (int64_t g = gate_tile << 11; g < (gate_tile + 1) << 11; ++g) {
    for (int64_t u = up_tile << 11; u < (up_tile + 1) << 11; ++u) {
      gate.push_back(static_cast<uint16_t>(g)), up.push_back(static_cast<uint16_t>(u));
    }
  }
  bitexact_silu_mul_params p = BITEXACT_SILU_MUL_PARAMS_INIT;
  p.dtype = BITEXACT_DTYPE_BFLOAT16, p.batches = p.rows = 1, p.cols = tile;
  p.gate = gate.data(), p.up = up.data(), p.out = out.data();
  bitexact_reference::silu_mul(p);
  uint64_t digest = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    digest += bitexact_golden::digest_term(uint32_t{gate[i]} << 16 | up[i], out[i]);
  }
  EXPECT_EQ(report.digest, digest);
  EXPECT_EQ(report.exhaustive_compared, tile);
  EXPECT_EQ(report.sampled_compared, 0);
  EXPECT_EQ(report.mismatches, 0);
  EXPECT_EQ(report.nan_payload_differences, 0);
  EXPECT_EQ(report.parts_done, part + 1);
  EXPECT_EQ(report.parts_total, 1 + all_tiles);
}

// A tile of products and one of sums: what PyTorch's domains "product" and "sum" hold, in every compute dtype
// and every order of the other operations.
TEST(Certify, RopeSweepsEachProductAndEachSumOfATile) {
  const Context context = make_context(BITEXACT_DEVICE_HOST);
  const std::vector<const char*> kernels = {
      whole_rope, "fused_rope bfloat16 table=bfloat16 compute=float32 complex half vec16_lanes",
      "fused_rope bfloat16 table=bfloat16 compute=float64 addcmul_cos half vec16",
      "fused_rope bfloat16 table=bfloat16 compute=bfloat16 addcmul_x1 half vec16_lanes"};
  const int64_t first_tile = 16, second_tile = 0;  // zeros and subnormals of either sign
  const int32_t b16 = BITEXACT_DTYPE_BFLOAT16;
  auto value = [&](int64_t bits) {
    const auto stored = static_cast<uint16_t>(bits);
    return bitexact_reference::load(b16, &stored, 0);
  };
  for (const int sweep : {0, 1, 2}) {
    uint64_t digest = 0;  // of the second products nothing: each product counts once
    for (int64_t a = first_tile << 11; sweep != 1 && a < (first_tile + 1) << 11; ++a) {
      for (int64_t b = second_tile << 11; b < (second_tile + 1) << 11; ++b) {
        uint16_t bits;
        bitexact_reference::store(b16, &bits, 0,
                                  sweep == 0 ? bitexact_reference::multiply(b16, value(a), value(b))
                                             : bitexact_reference::add(b16, value(a), value(b), false));
        digest += bitexact_golden::digest_term(static_cast<uint32_t>(a << 16 | b), bits);
      }
    }
    for (const char* name : thinned(kernels)) {
      const int kernel = kernel_named(name);
      const int64_t part = 33 + sweep * all_tiles + first_tile * 32 + second_tile;
      bitexact_certify_report report = after(kernel, part);
      ASSERT_EQ(certify(context, kernel, part, 1, report), BITEXACT_STATUS_OK) << bitexact_last_error();
      EXPECT_EQ(report.digest, digest) << sweep << " " << name;
      EXPECT_EQ(report.exhaustive_compared, 2 * tile) << sweep << " " << name;
      EXPECT_EQ(report.mismatches, 0) << sweep << " " << name;
    }
  }
}

TEST(Certify, EachPlanIsWhatTheArticleSays) {
  int whole = 0, sampled = 0;
  for (int k = 0; k < kernel_count; ++k) {
    const Plan plan = plan_of(k);
    EXPECT_EQ(plan.stretches[0].kind, Stretch::probe);
    if (!is_rope(k)) {
      const SiluMulArgs a = silu_mul_kernel(k).args;
      const int64_t samples = a.dtype == Dtype::float32 ? 64 : a.clamp != Clamp::none ? 24 : 0;
      EXPECT_EQ(plan.parts(), 1 + samples + all_tiles) << kernel_name(k);
      continue;
    }
    const RopeArgs a = rope_kernel(k).args;
    const bool small = size_of(a.dtype) == 2 && size_of(a.table_dtype) == 2;
    EXPECT_TRUE(plan.parts() == 33 || (small && plan.parts() == 33 + 3 * all_tiles)) << kernel_name(k);
    ++(plan.exhaustive() ? whole : sampled);
  }
  EXPECT_EQ(whole, 6 * 6);  // dtypes x numerics, one form of each
  EXPECT_EQ(sampled, rope_kernel_count - 36);
}

// ---------------------------------------------------------------------------- how parts add up --

TEST(Certify, PartsAddUpHoweverTheyAreAskedFor) {
  const Context context = make_context(BITEXACT_DEVICE_HOST);
  const int kernel = kernel_named(silu);
  bitexact_certify_report together = BITEXACT_CERTIFY_REPORT_INIT, apart = BITEXACT_CERTIFY_REPORT_INIT;
  ASSERT_EQ(certify(context, kernel, 0, 4, together), BITEXACT_STATUS_OK);
  for (int64_t part = 0; part < 4; ++part)
    ASSERT_EQ(certify(context, kernel, part, 1, apart), BITEXACT_STATUS_OK);
  EXPECT_TRUE(same(together, apart));
  EXPECT_EQ(together.exhaustive_compared, 3 * tile);
  EXPECT_GT(together.sampled_compared, 0);
  EXPECT_NE(together.digest, 0u);
  const auto story = story_of(context, kernel);
  EXPECT_EQ(story.state, BITEXACT_STATE_UNDECIDED);
  EXPECT_EQ(story.basis, 0);
  EXPECT_EQ(story.compared, 2 * (together.exhaustive_compared + together.sampled_compared));
}

TEST(Certify, NoPartsTellsHowManyThereAre) {
  const Context context = make_context(BITEXACT_DEVICE_HOST);
  bitexact_certify_report report = BITEXACT_CERTIFY_REPORT_INIT;
  ASSERT_EQ(certify(context, kernel_named(whole_rope), 0, 0, report), BITEXACT_STATUS_OK);
  EXPECT_EQ(report.parts_total, 33 + 3 * all_tiles);
  EXPECT_EQ(report.parts_done, 0);
}

struct Refusal {
  const char* word;
  int32_t status;
  int64_t kernel, first, count, done;
};

TEST(Certify, RefusesWhatWouldMissAPartOrCountItTwice) {
  Context context;
  FaultyBackend* const backend = quick_context(context);
  const int kernel = kernel_named(sampled_rope);
  const int64_t total = 33;
  for (const Refusal& r : {
           Refusal{"first_part is 0", BITEXACT_STATUS_INVALID_VALUE, kernel, 0, 1, 2},
           Refusal{"first_part is 1", BITEXACT_STATUS_INVALID_VALUE, kernel, 1, 1, 2},
           Refusal{"first_part is 3", BITEXACT_STATUS_INVALID_VALUE, kernel, 3, 1, 2},
           Refusal{"first_part is -1", BITEXACT_STATUS_INVALID_VALUE, kernel, -1, 1, -1},
           Refusal{"first_part is 34", BITEXACT_STATUS_INVALID_VALUE, kernel, total + 1, 0, total + 1},
           Refusal{"part_count is -1", BITEXACT_STATUS_INVALID_VALUE, kernel, 2, -1, 2},
           Refusal{"part_count is 32", BITEXACT_STATUS_INVALID_VALUE, kernel, 2, total - 1, 2},
           Refusal{"part_count is 9223372036854775807", BITEXACT_STATUS_INVALID_VALUE, kernel, 2, INT64_MAX,
                   2},
           Refusal{"report is of kernel", BITEXACT_STATUS_INVALID_VALUE, kernel + 1, 2, 1, 2},
           Refusal{"kernel_index is -1", BITEXACT_STATUS_INDEX, -1, 2, 1, 2},
           Refusal{"kernel_index is ", BITEXACT_STATUS_INDEX, kernel_count, 2, 1, 2},
       }) {
    bitexact_certify_report report = after(kernel, r.done);
    const bitexact_certify_report before = report;
    EXPECT_EQ(certify(context, static_cast<int>(r.kernel), r.first, r.count, report), r.status) << r.word;
    EXPECT_NE(std::string(bitexact_last_error()).find(r.word), std::string::npos) << bitexact_last_error();
    EXPECT_TRUE(same(report, before)) << r.word;
  }
  bitexact_certify_report report = after(kernel, 2);
  report.parts_total = 34;
  EXPECT_EQ(certify(context, kernel, 2, 1, report), BITEXACT_STATUS_INVALID_VALUE);
  report = after(kernel, 0);
  report.mismatches = 1;  // somebody set parts_done back
  EXPECT_EQ(certify(context, kernel, 0, 1, report), BITEXACT_STATUS_INVALID_VALUE);
  EXPECT_EQ(report.mismatches, 1);
  bitexact_certify_params params = BITEXACT_CERTIFY_PARAMS_INIT;
  report = BITEXACT_CERTIFY_REPORT_INIT;
  EXPECT_EQ(bitexact_certify(nullptr, &params, &report), BITEXACT_STATUS_NULL_POINTER);
  EXPECT_EQ(bitexact_certify(context.get(), nullptr, &report), BITEXACT_STATUS_NULL_POINTER);
  EXPECT_EQ(bitexact_certify(context.get(), &params, nullptr), BITEXACT_STATUS_NULL_POINTER);
  params.flags = 1;
  EXPECT_EQ(bitexact_certify(context.get(), &params, &report), BITEXACT_STATUS_UNKNOWN_FIELD);
  EXPECT_EQ(backend->fused_calls + backend->allocations, 0);
}

TEST(Certify, RefusesOnTheHostWhatTheHostCannotDo) {
  const Context context = make_context(BITEXACT_DEVICE_HOST);
  bitexact_certify_report report = BITEXACT_CERTIFY_REPORT_INIT;
  const int kernel = kernel_named("fused_silu_mul float32 aten vec16");
  EXPECT_EQ(certify(context, kernel, 0, 1, report), BITEXACT_STATUS_UNSUPPORTED);
  EXPECT_TRUE(same(report, bitexact_certify_report BITEXACT_CERTIFY_REPORT_INIT));
}

// ------------------------------------------------------------------------------- what it proves --

TEST(Certify, AcceptsWhenEveryPartHasRunInThisContext) {
  const int kernel = kernel_named(sampled_rope);
  for (const int32_t mode : {BITEXACT_REFERENCE_BUILTIN, BITEXACT_REFERENCE_CALLER}) {
    Context context;
    quick_context(context, {BITEXACT_POLICY_VERIFY, mode});
    bitexact_certify_report report = BITEXACT_CERTIFY_REPORT_INIT;
    ASSERT_EQ(certify(context, kernel, 0, 32, report), BITEXACT_STATUS_OK) << bitexact_last_error();
    EXPECT_EQ(story_of(context, kernel).state, BITEXACT_STATE_UNDECIDED);  // all but one prove nothing
    EXPECT_EQ(story_of(context, kernel).basis, 0);
    ASSERT_EQ(certify(context, kernel, 32, 1, report), BITEXACT_STATUS_OK) << bitexact_last_error();
    EXPECT_EQ(report.parts_done, report.parts_total);
    const auto story = story_of(context, kernel);
    EXPECT_EQ(story.state,
              mode == BITEXACT_REFERENCE_BUILTIN ? BITEXACT_STATE_ACCEPTED : BITEXACT_STATE_UNDECIDED);
    EXPECT_EQ(story.basis, BITEXACT_BASIS_CERTIFICATE);
  }
}

TEST(Certify, AReportFromElsewhereAcceptsNothing) {
  const int kernel = kernel_named(sampled_rope);
  Context context;
  quick_context(context);
  bitexact_certify_report report = after(kernel, 32);
  ASSERT_EQ(certify(context, kernel, 32, 1, report), BITEXACT_STATUS_OK);
  EXPECT_EQ(report.parts_done, report.parts_total);
  EXPECT_EQ(story_of(context, kernel).state, BITEXACT_STATE_UNDECIDED);
  EXPECT_EQ(story_of(context, kernel).basis, 0);

  // Two runs of the first half are not one of the whole.
  report = BITEXACT_CERTIFY_REPORT_INIT;
  ASSERT_EQ(certify(context, kernel, 0, 10, report), BITEXACT_STATUS_OK);
  report = after(kernel, 12);
  ASSERT_EQ(certify(context, kernel, 12, 21, report), BITEXACT_STATUS_OK);
  EXPECT_EQ(story_of(context, kernel).state, BITEXACT_STATE_UNDECIDED);
}

TEST(Certify, OneMismatchDeclinesForGood) {
  const int kernel = kernel_named(sampled_rope);
  for (const int32_t policy : {BITEXACT_POLICY_VERIFY, BITEXACT_POLICY_TRUST}) {
    Context context;
    FaultyBackend* const backend = quick_context(context, {policy, BITEXACT_REFERENCE_BUILTIN});
    backend->tally = [](Sweep, int64_t, Tally& tally) { tally = {1, 3, 5, 7, {1, 2, 3, 4}, 0xaa, 0xbb}; };
    bitexact_certify_report report = BITEXACT_CERTIFY_REPORT_INIT;
    ASSERT_EQ(certify(context, kernel, 0, 2, report), BITEXACT_STATUS_OK);
    EXPECT_EQ(report.mismatches, 1);
    EXPECT_EQ(report.nan_payload_differences, 3);
    EXPECT_EQ(report.digest, 5u);
    EXPECT_EQ(report.mismatch_inputs[3], 4u);
    EXPECT_EQ(report.mismatch_expected, 0xaau);
    EXPECT_EQ(report.mismatch_actual, 0xbbu);
    EXPECT_EQ(story_of(context, kernel).state, BITEXACT_STATE_DECLINED);
    backend->tally = [](Sweep, int64_t, Tally&) {};
    ASSERT_EQ(certify(context, kernel, 2, 31, report), BITEXACT_STATUS_OK);
    EXPECT_EQ(report.mismatches, 1);
    report = BITEXACT_CERTIFY_REPORT_INIT;  // nor does a second run that finds nothing help
    ASSERT_EQ(certify(context, kernel, 0, 33, report), BITEXACT_STATUS_OK);
    const auto story = story_of(context, kernel);
    EXPECT_EQ(story.state, BITEXACT_STATE_DECLINED);
    EXPECT_EQ(story.reason, BITEXACT_REASON_MISMATCH);
    EXPECT_EQ(story.mismatch_basis, BITEXACT_BASIS_CERTIFICATE);
  }
}

// The kernel and its reference agree, but with PyTorch's own digest they do or do not.
TEST(Certify, TheDigestHasToBePyTorchs) {
  const int kernel = kernel_named(silu);
  uint64_t golden = 0;
  ASSERT_TRUE(golden_digest(story_of(make_context(BITEXACT_DEVICE_HOST), kernel), golden));
  for (const uint64_t off_by : {0u, 1u}) {
    Context context;
    FaultyBackend* const backend = quick_context(context);
    bitexact_certify_report report = BITEXACT_CERTIFY_REPORT_INIT;
    backend->tally = [&](Sweep, int64_t, Tally& tally) { tally.digest = golden + off_by; };
    ASSERT_EQ(certify(context, kernel, 0, 2, report), BITEXACT_STATUS_OK);
    EXPECT_EQ(report.mismatches, 0);  // incomplete: not compared yet
    backend->tally = [](Sweep, int64_t, Tally&) {};
    ASSERT_EQ(certify(context, kernel, 2, all_tiles - 1, report), BITEXACT_STATUS_OK);
    EXPECT_EQ(report.digest, golden + off_by);
    EXPECT_EQ(report.mismatches, static_cast<int64_t>(off_by));
    EXPECT_EQ(report.mismatch_expected, off_by == 0 ? 0 : golden);
    const auto story = story_of(context, kernel);
    EXPECT_EQ(story.state, off_by == 0 ? BITEXACT_STATE_ACCEPTED : BITEXACT_STATE_DECLINED);
    EXPECT_EQ(story.basis, BITEXACT_BASIS_CERTIFICATE);
  }
}

// The first part is the probe, by which the reference itself is tried.
TEST(Certify, AWrongReferenceIsAnErrorAndProvesNothing) {
  Context context;
  FaultyBackend* const backend = quick_context(context);
  backend->fused_silu_mul = backend->reference_silu_mul = silu_mul_with(Mutant::single_rounding);
  const int kernel = kernel_named(silu);
  bitexact_certify_report report = after(kernel, 0);
  const bitexact_certify_report before = report;
  EXPECT_EQ(certify(context, kernel, 0, 1, report), BITEXACT_STATUS_INTERNAL);
  EXPECT_TRUE(same(report, before));
  EXPECT_EQ(story_of(context, kernel).state, BITEXACT_STATE_DECLINED);
  EXPECT_EQ(story_of(context, kernel).reason, BITEXACT_REASON_REFERENCE);
  EXPECT_EQ(story_of(context, kernel).basis, BITEXACT_BASIS_CERTIFICATE);
}

TEST(Certify, GoldenDigestsAreTheCapturedOnes) {
  const auto domains = bitexact_golden::load_domains(bitexact_golden::golden_directory());
  ASSERT_EQ(domains.size(), static_cast<size_t>(golden_digest_count));
  for (size_t i = 0; i < domains.size(); ++i) {
    EXPECT_EQ(domains[i].name, golden_digests[i].domain);
    EXPECT_EQ(domains[i].dtype, golden_digests[i].dtype);
    EXPECT_EQ(domains[i].digest, golden_digests[i].digest) << domains[i].name;
    EXPECT_EQ(domains[i].keys, uint64_t{1} << 32);
  }
  const auto facts = bitexact_golden::captured_with(bitexact_golden::golden_directory());
  EXPECT_EQ(golden_origin, "PyTorch " + facts.at("torch") + " eager on " + facts.at("device"));
}

TEST(Certify, KernelsWithAGoldenDigest) {
  const Context context = make_context(BITEXACT_DEVICE_HOST);
  int silu_kernels = 0, rope_kernels = 0;
  for (int k = 0; k < kernel_count; ++k) {
    uint64_t golden = 0;
    if (golden_digest(story_of(context, k), golden) && plan_of(k).exhaustive())
      ++(is_rope(k) ? rope_kernels : silu_kernels);
  }
  EXPECT_EQ(silu_kernels, 84);         // all but SIGMOID in float32
  EXPECT_EQ(rope_kernels, 2 * 3 * 5);  // tables of the tensors' dtype, any compute dtype, no sums from +0
}

// --------------------------------------------------------------------------------- wrong kernels --

Context make_mutated(Mutant mutant) {
  Context context;
  FaultyBackend* const backend = make_faulty(context, BITEXACT_DEVICE_HOST);
  backend->fused_silu_mul = silu_mul_with(mutant);
  backend->fused_rope = rope_with(mutant);
  return context;
}

TEST(Certify, FindsEveryWrongKernel) {
  for (int i = 0; i < static_cast<int>(Mutant::count); ++i) {
    const auto mutant = static_cast<Mutant>(i);
    const bool of_rope = mutant >= first_rope_mutant;
    const int kernel = kernel_named(of_rope ? sampled_rope : silu);
    const bool right =
        mutant == Mutant::none || (of_rope ? is_equivalent(rope_kernel(kernel).args, mutant)
                                           : is_equivalent(silu_mul_kernel(kernel).args, mutant));
    const Context context = make_mutated(mutant);
    bitexact_certify_report report = BITEXACT_CERTIFY_REPORT_INIT;
    ASSERT_EQ(certify(context, kernel, 0, 1, report), BITEXACT_STATUS_OK);
    EXPECT_EQ(report.mismatches == 0, right) << name_of(mutant);
    EXPECT_EQ(story_of(context, kernel).state, right ? BITEXACT_STATE_UNDECIDED : BITEXACT_STATE_DECLINED);
  }
}

// The sweeps on their own, without the probe: wrong arithmetic. The part is one that shows it.
TEST(Certify, SweepsFindWrongArithmetic) {
  struct Case {
    const char* kernel;
    Mutant mutant;
    int64_t part;
  };
  const int64_t around_one = 1 + 7 * 32 + 7, rope_products = 33, rope_sums = 33 + 2 * all_tiles;
  const std::vector<Case> cases = {
      {silu, Mutant::single_rounding, around_one},
      {silu, Mutant::flush_gate, 1 + 0 * 32 + 10},
      {silu, Mutant::minus_zero_lost, 1 + 16 * 32 + 0},
      {sampled_rope, Mutant::fma_first, 1},
      {sampled_rope, Mutant::inverse_ignored, 3},
      {sampled_rope, Mutant::second_tensor_ignored, 1},
      {whole_rope, Mutant::rope_truncation, rope_products + 7 * 32 + 7},
      {whole_rope, Mutant::halves_swapped, rope_sums + 7 * 32 + 7},
      {whole_rope, Mutant::rope_nothing, rope_products + all_tiles + 7},
  };
  for (const Case& c : thinned(cases)) {
    const int kernel = kernel_named(c.kernel);
    const Context context = make_mutated(c.mutant);
    bitexact_certify_report report = after(kernel, c.part);
    ASSERT_EQ(certify(context, kernel, c.part, 1, report), BITEXACT_STATUS_OK) << bitexact_last_error();
    EXPECT_GT(report.mismatches, 0) << c.kernel << ": " << name_of(c.mutant);
    const auto story = story_of(context, kernel);
    EXPECT_EQ(story.state, BITEXACT_STATE_DECLINED);
    EXPECT_NE(report.mismatch_expected, report.mismatch_actual);
    if (is_rope(kernel)) continue;
    // The inputs of the first mismatch are those that give it.
    const uint64_t *in = report.mismatch_inputs,
                   expected = reference::silu_mul(in[0], in[1], silu_mul_kernel(kernel).args);
    EXPECT_EQ(report.mismatch_expected, expected) << name_of(c.mutant);
  }
}

// Samples of a clamp take a limit each, whole domains that of PyTorch's digests; in both a lost clamp shows.
TEST(Certify, ClampsAreSweptWithLimits) {
  const int kernel = kernel_named("fused_silu_mul bfloat16 aten clamp=before vec16");
  const int64_t samples = 24, around_16 = 1 + samples + 8 * 32 + 7;
  Context context;
  FaultyBackend* const backend = make_faulty(context, BITEXACT_DEVICE_HOST);
  std::set<float> limits;
  backend->fused_silu_mul = [&](const SiluMulArgs& a, bitexact_stream) {
    limits.insert(a.limit);
    return silu_mul_with(Mutant::clamp_lost)(a, nullptr);
  };
  for (const int64_t part : {int64_t{1}, int64_t{2}, samples, around_16}) {
    bitexact_certify_report report = after(kernel, part);
    ASSERT_EQ(certify(context, kernel, part, 1, report), BITEXACT_STATUS_OK) << bitexact_last_error();
    EXPECT_GT(report.mismatches, 0) << part;
    SiluMulArgs a = silu_mul_kernel(kernel).args;
    a.limit = golden_limit;
    const uint64_t* const in = report.mismatch_inputs;
    if (part == around_16) {
      EXPECT_EQ(report.mismatch_expected, reference::silu_mul(in[0], in[1], a));
    }
  }
  EXPECT_EQ(limits.count(golden_limit), 1u);
  EXPECT_EQ(limits.size(), 4u);
  EXPECT_GE(*limits.begin(), 0x1p-8f);
  EXPECT_LE(*limits.rbegin(), 0x1p16f);
}

// An output that a kernel skips must not hold the right bits by chance, as those of the part before.
TEST(Certify, OutputsAreFilledBeforeEachPart) {
  Context context;
  FaultyBackend* const backend = make_faulty(context, BITEXACT_DEVICE_HOST);
  int parts = 0;
  backend->fused_silu_mul = [&](const SiluMulArgs& a, bitexact_stream) {
    const auto* const out = static_cast<const uint16_t*>(a.out.data);
    EXPECT_TRUE(std::all_of(out, out + reference::count(a), [](uint16_t bits) { return bits == 0xa5a5; }));
    for (int64_t i = 0; i < reference::count(a); ++i) reference::silu_mul_at(a, i);
    ++parts;
    return BITEXACT_STATUS_OK;
  };
  const int kernel = kernel_named(silu);
  bitexact_certify_report report = after(kernel, 1);
  ASSERT_EQ(certify(context, kernel, 1, 2, report), BITEXACT_STATUS_OK);
  EXPECT_EQ(parts, 2);
  EXPECT_EQ(report.mismatches, 0);
}

TEST(Certify, PayloadsOfNaNAreCountedAndNotHeldDifferent) {
  Context context;
  FaultyBackend* const backend = make_faulty(context, BITEXACT_DEVICE_HOST);
  backend->fused_silu_mul = [](const SiluMulArgs& a, bitexact_stream) {
    for (int64_t i = 0; i < reference::count(a); ++i) {
      reference::silu_mul_at(a, i);
      auto* const out = static_cast<uint16_t*>(a.out.data);
      if (out[i] == 0x7fff) out[i] = 0xffc1;
    }
    return BITEXACT_STATUS_OK;
  };
  const int kernel = kernel_named(silu);
  const int64_t part = 1 + 15 * 32 + 3;  // gates up to NaN
  bitexact_certify_report report = after(kernel, part), right = report;
  ASSERT_EQ(certify(context, kernel, part, 1, report), BITEXACT_STATUS_OK);
  ASSERT_EQ(certify(make_context(BITEXACT_DEVICE_HOST), kernel, part, 1, right), BITEXACT_STATUS_OK);
  EXPECT_GT(report.nan_payload_differences, 0);
  EXPECT_EQ(report.mismatches, 0);
  EXPECT_EQ(report.digest, right.digest);
}

// ------------------------------------------------------------------------------- what goes wrong --

TEST(Certify, ErrorsLeaveTheReportAndFreeTheMemory) {
  const int kernel = kernel_named(sampled_rope);
  struct Fault {
    const char* name;
    std::function<void(FaultyBackend&)> plant;
    int32_t status, state;
  };
  const int32_t memory = BITEXACT_STATUS_OUT_OF_MEMORY, cuda = BITEXACT_STATUS_CUDA_ERROR;
  const std::vector<Fault> faults = {
      {"no memory", [=](FaultyBackend& b) { b.allocate_status = memory; }, memory, BITEXACT_STATE_UNDECIDED},
      {"read-back", [=](FaultyBackend& b) { b.download_status = cuda; }, cuda, BITEXACT_STATE_DECLINED},
      {"launch",
       [=](FaultyBackend& b) {
         b.fused_rope = [=](const RopeArgs&, bitexact_stream) { return fail(cuda, "planted"); };
       },
       cuda, BITEXACT_STATE_DECLINED},
      {"no memory at launch",
       [=](FaultyBackend& b) {
         b.fused_rope = [=](const RopeArgs&, bitexact_stream) { return fail(memory, "planted"); };
       },
       memory, BITEXACT_STATE_UNDECIDED},
      {"no memory at read-back", [=](FaultyBackend& b) { b.download_status = memory; }, memory,
       BITEXACT_STATE_UNDECIDED},
      {"capturing", [](FaultyBackend& b) { b.capturing = true; }, BITEXACT_STATUS_CAPTURING,
       BITEXACT_STATE_UNDECIDED},
      {"capture status", [=](FaultyBackend& b) { b.capture_status = cuda; }, cuda, BITEXACT_STATE_UNDECIDED},
  };
  for (const Fault& fault : faults) {
    for (const int64_t first : {0, 1}) {  // the probe, and a sweep
      Context context;
      FaultyBackend* const backend = quick_context(context);
      fault.plant(*backend);
      bitexact_certify_report report = after(kernel, first);
      if (first == 0) report = BITEXACT_CERTIFY_REPORT_INIT;
      const bitexact_certify_report before = report;
      EXPECT_EQ(certify(context, kernel, first, 2, report), fault.status) << fault.name;
      EXPECT_TRUE(same(report, before)) << fault.name;
      EXPECT_EQ(backend->allocations, backend->releases) << fault.name;
      // The probe tries its comparison first: a read-back that fails there tells nothing about the kernel.
      const bool tried = first == 0 && std::string("read-back") == fault.name;
      EXPECT_EQ(story_of(context, kernel).state, tried ? BITEXACT_STATE_UNDECIDED : fault.state)
          << fault.name;
    }
  }
  Context context;
  FaultyBackend* const backend = quick_context(context);
  bitexact_certify_report report = after(kernel, 1);
  ASSERT_EQ(certify(context, kernel, 1, 32, report), BITEXACT_STATUS_OK);
  EXPECT_EQ(backend->allocations, 1);  // one block for all parts of a call
  EXPECT_EQ(backend->releases, 1);
}

// A failed part breaks the chain of parts that this context has seen.
TEST(Certify, AFailedCallIsNotPartOfAProof) {
  const int kernel = kernel_named(sampled_rope);
  Context context;
  FaultyBackend* const backend = quick_context(context);
  bitexact_certify_report report = BITEXACT_CERTIFY_REPORT_INIT;
  ASSERT_EQ(certify(context, kernel, 0, 10, report), BITEXACT_STATUS_OK);
  backend->allocate_status = BITEXACT_STATUS_OUT_OF_MEMORY;
  ASSERT_EQ(certify(context, kernel, 10, 10, report), BITEXACT_STATUS_OUT_OF_MEMORY);
  backend->allocate_status = 0;
  ASSERT_EQ(certify(context, kernel, 10, 23, report), BITEXACT_STATUS_OK);  // from where it stood
  EXPECT_EQ(story_of(context, kernel).state, BITEXACT_STATE_ACCEPTED);
}

}  // namespace
