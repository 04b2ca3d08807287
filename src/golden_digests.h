// What PyTorch eager gave on a GPU over whole domains, as digests: the rows of tests/golden/data/index.json.
#pragma once

#include <cstdint>

#include "bitexact.h"

namespace bitexact {

struct GoldenDigest {
  const char* domain;
  int32_t dtype;
  uint64_t digest;  // over 2^32 keys
};

constexpr int golden_digest_count = 26;
extern const GoldenDigest golden_digests[golden_digest_count];

constexpr float golden_limit = 10.0f;  // of the domains with a clamp: DeepSeek-V4's, GLM-5's, HY-V4's

// Which PyTorch, and on what.
extern const char* const golden_origin;

// The digest that a certificate with exhaustive sweeps of this kernel must come to. False: none was captured.
bool golden_digest(const bitexact_gate_report& kernel, uint64_t& digest);

}  // namespace bitexact
