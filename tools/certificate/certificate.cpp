#include "certificate.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

namespace bitexact_certificate {

bool Kernel::other_digest() const {
  return complete() && has_golden && report.exhaustive_compared > 0 && report.digest != golden;
}

Verdict Kernel::verdict() const {
  if (report.mismatches > 0) return Verdict::failed;
  if (!refusal.empty()) return Verdict::unsupported;
  if (report.parts_done == 0) return Verdict::not_run;
  if (!complete()) return Verdict::incomplete;
  const bool nothing = report.exhaustive_compared + report.sampled_compared <= 0;
  return other_digest() || nothing ? Verdict::failed : Verdict::equal;
}

int64_t Certificate::count(Verdict verdict) const {
  return std::count_if(kernels.begin(), kernels.end(),
                       [&](const Kernel& kernel) { return kernel.verdict() == verdict; });
}

bool Certificate::proven() const {
  const int64_t equal = count(Verdict::equal), all = static_cast<int64_t>(kernels.size());
  return finished && !quick && !cancelled && error.empty() && equal > 0 &&
         equal + count(Verdict::unsupported) == all;
}

std::string Certificate::headline() const {
  const int64_t failed = count(Verdict::failed);
  const std::string failures =
      failed == 0 ? ""
                  : "; " + std::to_string(failed) + (failed == 1 ? " kernel differs" : " kernels differ");
  if (!error.empty()) return "error, not a certificate" + failures;
  if (cancelled) return "cancelled, not a certificate" + failures;
  if (!finished) return "unfinished, not a certificate" + failures;
  if (failed > 0) return "FAILED" + failures;
  if (quick) return "quick look, not a certificate";
  return proven() ? "certified: every bit equal" : "incomplete, not a certificate";
}

const char* text_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::unsupported: return "not supported on this device";
    case Verdict::incomplete: return "incomplete";
    case Verdict::failed: return "differs";
    case Verdict::equal: return "equal";
    default: return "not run";
  }
}

std::string dtype_name(int32_t dtype) {
  switch (dtype) {
    case BITEXACT_DTYPE_FLOAT32: return "float32";
    case BITEXACT_DTYPE_FLOAT16: return "float16";
    case BITEXACT_DTYPE_BFLOAT16: return "bfloat16";
    case BITEXACT_DTYPE_FLOAT64: return "float64";
    default: return "default";
  }
}

std::string operation_name(int32_t operation) {
  return operation == BITEXACT_OPERATION_FUSED_ROPE ? "fused_rope" : "fused_silu_mul";
}

std::string hex(uint64_t bits) {
  char text[32];
  std::snprintf(text, sizeof(text), "0x%" PRIx64, bits);
  return text;
}

std::string digest_text(uint64_t digest) {
  char text[32];
  std::snprintf(text, sizeof(text), "%016" PRIx64, digest);
  return text;
}

std::vector<Axes> axes_of(const Kernel& kernel) {
  if (kernel.facts.operation == BITEXACT_OPERATION_FUSED_ROPE) {
    return {{"products of x1 with cos and sin", "x1", "table entry"},
            {"products of x2 with sin and cos", "x2", "table entry"},
            {"sums x1 - x2 and x2 + x1", "x1", "x2"}};
  }
  if (kernel.facts.dtype == BITEXACT_DTYPE_FLOAT32)
    return {{"every gate", "gate, high bits", "gate, next bits"}};
  return {{"every pair of gate and up", "gate", "up"}};
}

}  // namespace bitexact_certificate
