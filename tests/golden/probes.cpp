// For probes.py. `list`: a line for each probe: the digest of what tests/reference gives, or - where only CUDA's
// expf will do; the name. A number: that probe as JSON, a newline, and the bytes of its inputs.
#include "probes.h"

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

using namespace bitexact;
using Json = nlohmann::json;

namespace {

int64_t offset_of(const void* pointer) { return reinterpret_cast<intptr_t>(pointer); }

Json described(const SiluMulArgs& a) {
  auto rows = [](const Rows& x) { return Json{offset_of(x.data), x.batch, x.row}; };
  return {
      {"batches", a.batches}, {"rows", a.rows},   {"cols", a.cols}, {"gate", rows(a.gate)},
      {"up", rows(a.up)},     {"dtype", a.dtype}, {"silu", a.silu}, {"compute_float32", a.compute_float32},
      {"clamp", a.clamp},     {"limit", a.limit}};
}

Json described(const RopeArgs& a) {
  auto heads = [](const Heads& x) { return Json{offset_of(x.data), x.batch, x.token, x.head}; };
  auto table = [](const Table& x) { return Json{offset_of(x.data), x.batch, x.token, x.head, x.element}; };
  Json positions;
  if (a.positions.data != nullptr)
    positions = {offset_of(a.positions.data), a.positions.batch, a.positions.token};
  return {{"dtype", a.dtype},
          {"table_dtype", a.table_dtype},
          {"compute_dtype", a.compute_dtype},
          {"combine", a.combine},
          {"pairing_in", a.pairing_in},
          {"pairing_out", a.pairing_out},
          {"inverse", a.inverse},
          {"sum_from_zero", a.sum_from_zero},
          {"full_table", a.full_table},
          {"batches", a.batches},
          {"tokens", a.tokens},
          {"head_dim", a.head_dim},
          {"rotary_dim", a.rotary_dim},
          {"table_rows", a.table_rows},
          {"heads", {a.heads[0], a.heads[1]}},
          {"in", {heads(a.in[0]), heads(a.in[1])}},
          {"cos", table(a.cos)},
          {"sin", table(a.sin)},
          {"positions", positions}};
}

template <class Args>
void write_probe(const Args& kernel) {
  const auto probe = make_probe(kernel);
  Json cases = Json::array();
  for (const Args& a : probe.cases) cases.push_back(described(a));
  std::printf("%s\n", cases.dump().c_str());
  std::fwrite(probe.inputs.data(), 1, probe.inputs.size(), stdout);
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) return 2;
  if (std::strcmp(arguments[1], "list") != 0) {
    const int kernel = bitexact_golden::kernel_of_probe(std::atoi(arguments[1]));
    is_rope(kernel) ? write_probe(rope_kernel(kernel).args) : write_probe(silu_mul_kernel(kernel).args);
    return 0;
  }
  for (int probe = 0; probe < probe_count; ++probe) {
    const int kernel = bitexact_golden::kernel_of_probe(probe);
    const std::string name = kernel_name(kernel),
                      shared = name.substr(0, name.rfind(' '));  // by the variants
    if (bitexact_golden::needs_cuda(kernel)) {
      std::printf("- %s\n", shared.c_str());
    } else {
      std::printf("%016" PRIx64 " %s\n", bitexact_golden::digest_by_reference(kernel), shared.c_str());
    }
  }
  return 0;
}
