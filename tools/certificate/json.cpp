#include <nlohmann/json.hpp>

#include "certificate.h"

namespace bitexact_certificate {
namespace {

using json = nlohmann::ordered_json;

const char* image_name(int32_t image) {
  return image == BITEXACT_IMAGE_HOST ? "host" : image == BITEXACT_IMAGE_SASS ? "machine code" : "PTX";
}

json to_object(const Kernel& k) {
  const bitexact_certify_report& r = k.report;
  json object = {{"name", k.name},
                 {"operation", operation_name(k.facts.operation)},
                 {"dtype", dtype_name(k.facts.dtype)},
                 {"numerics", k.numerics},
                 {"form", k.form},
                 {"verdict", text_of(k.verdict())},
                 {"parts_total", r.parts_total},
                 {"parts_done", r.parts_done},
                 {"exhaustive_compared", r.exhaustive_compared},
                 {"sampled_compared", r.sampled_compared},
                 {"mismatches", r.mismatches},
                 {"nan_payload_differences", r.nan_payload_differences},
                 {"digest", digest_text(r.digest)},
                 {"golden_digest", nullptr},
                 {"seconds", k.seconds}};
  if (k.has_golden && r.exhaustive_compared > 0) object["golden_digest"] = digest_text(k.golden);
  if (!k.refusal.empty()) object["refusal"] = k.refusal;
  if (r.mismatches > 0) {
    json inputs = json::array();
    for (const uint64_t bits : r.mismatch_inputs) inputs.push_back(hex(bits));
    object["first_mismatch"] = {
        {"inputs", inputs}, {"expected", hex(r.mismatch_expected)}, {"actual", hex(r.mismatch_actual)}};
  }
  return object;
}

}  // namespace

std::string to_json(const Certificate& c) {
  json kernels = json::array();
  for (const Kernel& k : c.kernels) kernels.push_back(to_object(k));
  json object = {{"format", 1},
                 {"verdict", c.headline()},
                 {"certified", c.proven()},
                 {"finished", c.finished},
                 {"cancelled", c.cancelled},
                 {"quick", c.quick},
                 {"error", c.error},
                 {"selection", c.selection},
                 {"started", c.started},
                 {"seconds", c.seconds},
                 {"device",
                  {{"name", c.device},
                   {"architecture", c.facts.architecture},
                   {"image", image_name(c.facts.image)},
                   {"image_architecture", c.facts.image_architecture},
                   {"driver_version", c.facts.driver_version},
                   {"runtime_version", c.facts.runtime_version}}},
                 {"library", c.build},
                 {"golden_digests_of", c.golden_origin},
                 {"counts", json::object()},
                 {"kernels", kernels}};
  for (const Verdict verdict :
       {Verdict::equal, Verdict::failed, Verdict::incomplete, Verdict::not_run, Verdict::unsupported}) {
    object["counts"][text_of(verdict)] = c.count(verdict);
  }
  return object.dump(1) + "\n";
}

}  // namespace bitexact_certificate
