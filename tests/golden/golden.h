// Golden cases: calls whose results PyTorch eager gave on a GPU, as capture.py wrote them.
//
//   for (const Case& c : load_cases(directory)) EXPECT_EQ(c.run(backend), "") << c.name;
//
// Inputs are made again from their seeds (generate.py says how), outputs are held against a digest of every
// element, and stored stretches of them tell where a difference is. Whatever is wrong with the files throws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "bitexact.h"

namespace bitexact_golden {

// What runs a call. Pointers in the params come from `allocate`, so a device backend sets the memory
// functions too; `download` must wait for the call.
struct Backend {
  std::function<void(const bitexact_silu_mul_params&)> silu_mul;
  std::function<void(const bitexact_rope_params&)> rope;
  std::function<void*(size_t bytes)> allocate;  // null, like the others: host memory
  std::function<void(void* memory)> release;
  std::function<void(void*to, const void*from, size_t bytes)> upload, download;
};

struct Buffer {
  int32_t dtype;
  std::function<std::vector<uint8_t>()> bytes;  // what it holds before the call
};

struct Place {
  std::string buffer;
  int64_t element;
};

struct Stretch {
  int64_t first;               // flat index
  std::vector<uint64_t> bits;  // one an element
};

struct Output {
  uint64_t digest;
  std::vector<Stretch> stretches;
};

struct Case {
  std::string name;
  std::string chain;                  // function of chains.py, or whose code
  int32_t operation;                  // BITEXACT_OPERATION value
  bitexact_silu_mul_params silu_mul;  // the one that fits the operation is filled, but for its pointers
  bitexact_rope_params rope;
  std::map<std::string, Buffer> buffers;
  std::map<std::string, Place> pointers;  // by member name of the params
  std::map<std::string, Output> outputs;

  // Runs the call once on fresh buffers. Empty if every output bit is as expected and no other byte of any
  // buffer changed, else what was wrong.
  std::string run(const Backend& backend) const;

  // Whether the bits hang on the last bits of CUDA's expf, which a host's libm does not give: silu in
  // float32.
  bool needs_cuda_expf() const;
};

// Where the files are: the environment variable BITEXACT_GOLDEN_DIR (for binaries run elsewhere than where
// they were built), or the source tree.
std::string golden_directory();

std::vector<Case> load_cases(const std::string& directory);

// ------------------------------------------------------------------------------ whole domains --

struct Domain {
  std::string name;  // as in domains.py
  int32_t dtype;
  uint64_t keys;  // 2^32 unless captured for a trial
  uint64_t digest, sample_digest;
};

std::vector<Domain> load_domains(const std::string& directory);

// The keys that sample_digest covers.
std::vector<uint32_t> sample_keys(const std::string& directory);

// SHA-256 of the 65,536 outputs of "silu", "silu_sigmoid", "silu_candle" or "silu_glu".
std::string load_table_sha256(const std::string& directory, const std::string& name, int32_t dtype);

// float32 bits of silu of every 16-bit input, as CUDA gives them.
std::vector<uint32_t> load_silu32_table(const std::string& directory, int32_t dtype);

// "torch", "cuda", "device_type", ...
std::map<std::string, std::string> captured_with(const std::string& directory);

// One element's share of a digest; a digest is their sum modulo 2^64.
uint64_t digest_term(uint32_t key, uint32_t value);

}  // namespace bitexact_golden
