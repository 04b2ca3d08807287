// What bitexact-certify says: that it never says "certified" of what was not swept to the end without a
// difference, and that it shows where a difference is.
#include <nlohmann/json.hpp>

#include "certificate/certificate.h"
#include "context.h"
#include "contexts.h"
#include "faulty_context.h"
#include "golden_digests.h"
#include "host/host_backend.h"

using namespace bitexact_certificate;
using bitexact_test::Context;
using bitexact_test::FaultyBackend;
using json = nlohmann::json;

namespace {

constexpr char certified[] = "<h1>certified: every bit equal</h1>";

Context quick_context(FaultyBackend*& backend) {
  Context context;
  backend = make_faulty(context, BITEXACT_DEVICE_HOST);
  backend->tally = [](bitexact::Sweep, int64_t, bitexact::Tally&) {};
  return context;
}

const std::function<bool()> never = [] { return false; };

// What a part of a kernel's certificate finds.
using Found = std::function<void(const Kernel&, bitexact::Sweep, int64_t part, bitexact::Tally&)>;

// The certificates of the bfloat16 silu_mul kernels, or of some of them. They have PyTorch's digests.
Certificate make_certificate(bool quick = false, size_t count = 99, const Found& found = {}) {
  FaultyBackend* backend;
  const Context context = quick_context(backend);
  Certificate c;
  c.device = "a <device>", c.selection = "some kernels", c.build = "a build", c.quick = quick;
  c.kernels = list_kernels(context.get(), {"fused_silu_mul", "bfloat16"});
  for (size_t i = 0; i < std::min(count, c.kernels.size()); ++i) {
    Kernel& kernel = c.kernels[i];
    backend->tally = [&](bitexact::Sweep sweep, int64_t part, bitexact::Tally& tally) {
      if (part == 0 && sweep != bitexact::Sweep::samples) tally.digest += kernel.golden;
      if (found) found(kernel, sweep, part, tally);
    };
    run(context.get(), quick, never, kernel);
  }
  c.finished = true;
  return c;
}

bool page_passes(const Certificate& c) {
  const std::string page = to_page(c);
  const json object = json::parse(to_json(c));
  const bool in_page = page.find(certified) != std::string::npos;
  EXPECT_EQ(in_page, page.find("<header class='pass'>") != std::string::npos);
  EXPECT_EQ(in_page, object.at("certified").get<bool>());
  EXPECT_EQ(in_page, object.at("verdict") == "certified: every bit equal");
  EXPECT_EQ(in_page, c.proven());
  return in_page;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(CertificatePage, SaysCertifiedOfAWholeOneWithoutADifference) {
  const Certificate made = make_certificate();
  // float32 compute cannot be run on the host; the others were swept to their end.
  EXPECT_EQ(made.count(Verdict::equal), 36);
  EXPECT_EQ(made.count(Verdict::unsupported), 9);
  EXPECT_TRUE(page_passes(made));
  const std::string page = to_page(made);
  EXPECT_TRUE(contains(page, "a &lt;device&gt;"));
  EXPECT_TRUE(contains(page, "1024 of 1024 tiles swept in all of them"));
  EXPECT_FALSE(contains(page, "<rect x='0' y='0' width='7' height='7' class='blank'"));
  for (const char* outside : {"<script", "http", "src=", "href=", "url(", "@import"}) {
    EXPECT_FALSE(contains(page, outside)) << outside;
  }
}

TEST(CertificatePage, NeverSaysItOtherwise) {
  const Certificate whole = make_certificate();
  auto with = [&](const std::function<void(Certificate&)>& change) {
    Certificate c = whole;
    change(c);
    return c;
  };
  EXPECT_TRUE(page_passes(with([](Certificate&) {})));
  const Certificate cancelled = with([](Certificate& c) { c.cancelled = true, c.finished = false; });
  EXPECT_FALSE(page_passes(cancelled));
  EXPECT_TRUE(contains(to_page(cancelled), "<h1>cancelled, not a certificate</h1>"));
  EXPECT_EQ(json::parse(to_json(cancelled)).at("verdict"), "cancelled, not a certificate");
  EXPECT_FALSE(page_passes(with([](Certificate& c) { c.finished = false; })));
  EXPECT_FALSE(page_passes(with([](Certificate& c) { c.cancelled = true; })));
  EXPECT_FALSE(page_passes(with([](Certificate& c) { c.quick = true; })));
  EXPECT_FALSE(page_passes(with([](Certificate& c) { c.error = "out of memory"; })));
  EXPECT_FALSE(page_passes(with([](Certificate& c) { c.kernels.clear(); })));
  EXPECT_FALSE(page_passes(with([](Certificate& c) { --c.kernels[0].report.parts_done; })));
  EXPECT_FALSE(page_passes(with([](Certificate& c) { c.kernels[0].report.parts_done = 0; })));
  EXPECT_FALSE(page_passes(with([](Certificate& c) { c.kernels[0].report.mismatches = 1; })));
  EXPECT_FALSE(page_passes(with([](Certificate& c) { c.kernels[0].report.digest ^= 1; })));
  EXPECT_FALSE(page_passes(with([](Certificate& c) {
    c.kernels[0].report.exhaustive_compared = c.kernels[0].report.sampled_compared = 0;
  })));
  EXPECT_FALSE(page_passes(with([](Certificate& c) {  // all refused: nothing was swept
    for (Kernel& kernel : c.kernels) kernel.report.parts_done = 0, kernel.refusal = "no";
  })));
}

TEST(CertificatePage, QuickAndPartialRuns) {
  const Certificate quick = make_certificate(true), partial = make_certificate(false, 2);
  EXPECT_FALSE(page_passes(quick));
  EXPECT_TRUE(contains(to_page(quick), "<h1>quick look, not a certificate</h1>"));
  EXPECT_EQ(quick.kernels[0].report.parts_done, 3);
  EXPECT_EQ(quick.count(Verdict::equal), 0);
  EXPECT_FALSE(page_passes(partial));
  EXPECT_EQ(partial.count(Verdict::equal), 2);
  EXPECT_EQ(partial.count(Verdict::not_run), 43);
}

// A stop between two calls leaves the kernel incomplete.
TEST(CertificatePage, AStopLeavesTheKernelIncomplete) {
  FaultyBackend* backend;
  const Context context = quick_context(backend);
  std::vector<Kernel> kernels = list_kernels(context.get(), {"fused_rope", "float32"});
  int calls = 0;
  run(
      context.get(), false, [&] { return calls++ == 2; }, kernels[0]);
  EXPECT_EQ(kernels[0].verdict(), Verdict::incomplete);
  EXPECT_LT(kernels[0].report.parts_done, kernels[0].report.parts_total);
}

TEST(CertificatePage, ADifferenceIsShownWhereItIs) {
  const int64_t tile = 7 * 32 + 16;  // gates around 1, up -0 and negative subnormals
  const std::string wrong = "fused_silu_mul bfloat16 sigmoid vec8";
  const Certificate c =
      make_certificate(false, 99, [&](const Kernel& kernel, auto, int64_t part, auto& tally) {
        if (kernel.name == wrong && part == tile) tally.mismatches += 5;
      });
  EXPECT_EQ(c.count(Verdict::failed), 1);
  EXPECT_EQ(c.count(Verdict::equal), 35);
  EXPECT_FALSE(page_passes(c));
  for (const Kernel& kernel : c.kernels) {
    const bool is_wrong = kernel.name == wrong;
    EXPECT_EQ(kernel.report.mismatches, is_wrong ? 5 : 0) << kernel.name;  // once, though looked for twice
    for (size_t i = 0; !kernel.maps.empty() && i < tiles; ++i) {
      EXPECT_EQ(kernel.maps[0][i], is_wrong && i == tile ? 5 : 0) << kernel.name << " " << i;
    }
  }
  const std::string page = to_page(c);
  EXPECT_TRUE(contains(page, "<h1>FAILED; 1 kernel differs</h1>"));
  // The column of -0 is the 16th from the left, the row of 1 the 24th from below.
  EXPECT_TRUE(contains(page, "<rect x='120' y='64' width='7' height='7' class='differs'><title>5 differ"));
  EXPECT_TRUE(contains(page, "<td>" + wrong + "</td>"));
  const json object = json::parse(to_json(c));
  EXPECT_EQ(object.at("counts").at("differs"), 1);
  for (const json& kernel : object.at("kernels"))
    EXPECT_EQ(kernel.contains("first_mismatch"), kernel.at("name") == wrong);
}

// Another digest than PyTorch's fails the kernel, but is no tile's fault.
TEST(CertificatePage, AnotherDigestIsShown) {
  const Certificate c =
      make_certificate(false, 99, [&](const Kernel& kernel, auto, int64_t part, auto& tally) {
        if (kernel.form == "scalar" && part == 3) ++tally.digest;
      });
  EXPECT_EQ(c.count(Verdict::failed), 6);
  EXPECT_FALSE(page_passes(c));
  EXPECT_EQ(c.kernels[0].report.mismatches, 1);
  for (const int64_t differing : c.kernels[0].maps[0]) EXPECT_EQ(differing, 0);
  EXPECT_TRUE(contains(to_page(c), "<td class='bad'>DIFFERENT</td>"));
}

}  // namespace
