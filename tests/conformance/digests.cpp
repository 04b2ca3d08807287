// Prints what tests/reference gives for each case that is served: {"name": "digest", ...}.
#include <cinttypes>
#include <cstdio>
#include <iostream>

#include "case.h"
#include "reference/reference.h"

using namespace conformance;

int main(int, char** arguments) {
  Json digests = Json::object();
  for (const Json& c : load(arguments[1])) {
    if (c.at("status") != BITEXACT_STATUS_OK || c.contains("addresses")) continue;
    std::vector<uint8_t> memory = memory_of(c);
    if (is_rope(c)) {
      bitexact_reference::rope(params_of(c, bitexact_rope_params BITEXACT_ROPE_PARAMS_INIT, memory.data()),
                               nullptr);
    } else {
      bitexact_reference::silu_mul(
          params_of(c, bitexact_silu_mul_params BITEXACT_SILU_MUL_PARAMS_INIT, memory.data()));
    }
    char text[17];
    std::snprintf(text, sizeof(text), "%016" PRIx64, digest(memory));
    digests[c.at("name").get<std::string>()] = text;
  }
  std::cout << digests.dump() << "\n";
  return 0;
}
