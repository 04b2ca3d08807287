// The reference against what PyTorch eager gave on a GPU, and the loader against itself.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "golden.h"
#include "golden_digests.h"
#include "host/sha256.h"
#include "reference/reference.h"

namespace bitexact_golden {
namespace {

const std::string directory = golden_directory();
constexpr int32_t bf16 = BITEXACT_DTYPE_BFLOAT16, fp16 = BITEXACT_DTYPE_FLOAT16;

Backend reference() {
  Backend backend;
  backend.silu_mul = bitexact_reference::silu_mul;
  backend.rope = [](const bitexact_rope_params& p) { bitexact_reference::rope(p, nullptr); };
  return backend;
}

float value_of(int32_t dtype, uint32_t bits) {
  const uint16_t half = static_cast<uint16_t>(bits);
  return dtype == bf16 ? bitexact_reference::from_bfloat16(half) : bitexact_reference::from_float16(half);
}

uint16_t bits_of(int32_t dtype, float value) {
  return dtype == bf16 ? bitexact_reference::to_bfloat16(value) : bitexact_reference::to_float16(value);
}

std::vector<float> silu32_values(int32_t dtype) {
  const std::vector<uint32_t> bits = load_silu32_table(directory, dtype);
  std::vector<float> values(bits.size());
  std::memcpy(values.data(), bits.data(), bits.size() * sizeof(float));
  return values;
}

float limit_of(const bitexact_silu_mul_params& p) {
  float limit;
  std::memcpy(&limit, &p.limit_bits, sizeof(limit));
  return limit;
}

// Does the table below hold silu of every gate, the limit in float32 among them?
bool in_silu32_table(const bitexact_silu_mul_params& p) {
  return p.dtype != BITEXACT_DTYPE_FLOAT32 && p.silu == BITEXACT_SILU_ATEN &&
         value_of(p.dtype, bits_of(p.dtype, limit_of(p))) == limit_of(p);
}

// out = rX(r32(silu32 * up)) with eager's own silu32, so that only the rounding chain is on trial.
void silu_mul_from_table(const bitexact_silu_mul_params& p, const std::vector<float>& table) {
  const auto* gate = static_cast<const uint16_t*>(p.gate);
  const auto* up = static_cast<const uint16_t*>(p.up);
  auto* out = static_cast<uint16_t*>(p.out);
  for (int64_t b = 0; b < p.batches; ++b) {
    for (int64_t r = 0; r < p.rows; ++r) {
      for (int64_t c = 0; c < p.cols; ++c) {
        uint16_t g = gate[b * p.gate_batch_stride + r * p.gate_row_stride + c];
        float u = value_of(p.dtype, up[b * p.up_batch_stride + r * p.up_row_stride + c]);
        if (p.clamp == BITEXACT_CLAMP_BEFORE) {
          const float limit = limit_of(p);
          if (value_of(p.dtype, g) > limit) g = bits_of(p.dtype, limit);
          u = u > limit ? limit : u < -limit ? -limit : u;
        }
        out[b * p.out_batch_stride + r * p.out_row_stride + c] = bits_of(p.dtype, table[g] * u);
      }
    }
  }
}

TEST(Golden, WasCapturedOnAGpuAndWhole) {
  EXPECT_EQ(captured_with(directory).at("device_type"), "cuda");
  for (const Domain& domain : load_domains(directory))
    EXPECT_EQ(domain.keys, uint64_t{1} << 32) << domain.name;
}

TEST(Golden, ReferenceEqualsEager) {
  int rope = 0, silu_mul = 0;
  for (const Case& c : load_cases(directory)) {
    if (c.needs_cuda_expf()) continue;  // the two tests below
    EXPECT_EQ(c.run(reference()), "") << c.name << ", " << c.chain;
    ++(c.operation == BITEXACT_OPERATION_FUSED_ROPE ? rope : silu_mul);
  }
  EXPECT_EQ(rope, 191);
  EXPECT_EQ(silu_mul, 81);
}

TEST(Golden, Float32ComputeRoundsAsEager) {
  int run = 0;
  for (const Case& c : load_cases(directory)) {
    if (!c.needs_cuda_expf() || !in_silu32_table(c.silu_mul)) continue;
    const std::vector<float> table = silu32_values(c.silu_mul.dtype);
    Backend backend;
    backend.silu_mul = [&](const bitexact_silu_mul_params& p) { silu_mul_from_table(p, table); };
    EXPECT_EQ(c.run(backend), "") << c.name;
    ++run;
  }
  EXPECT_EQ(run, 14);
}

// These are for backends on a GPU; here only that they are these and no others.
TEST(Golden, CasesThatOnlyCudaCanGive) {
  std::set<std::string> names;
  for (const Case& c : load_cases(directory)) {
    if (c.needs_cuda_expf() && !in_silu32_table(c.silu_mul))
      names.insert(c.name.substr(0, c.name.rfind('/')));
  }
  const std::set<std::string> expected = {"silu_mul/aten/float32",
                                          "silu_mul/sigmoid/float32",
                                          "silu_mul/glu_float32/bfloat16",
                                          "silu_mul/glu_float32/float16",
                                          "silu_mul/glu/float32",
                                          "silu_mul/before_float32_0.3/bfloat16",
                                          "silu_mul/before_float32_0.3/float16",
                                          "silu_mul/before_float32_7.03/bfloat16",
                                          "silu_mul/before_float32_7.03/float16",
                                          "silu_mul/before_10/float32",
                                          "silu_mul/after_10/float32",
                                          "silu_mul/before_0.3/float32",
                                          "silu_mul/after_0.3/float32",
                                          "silu_mul/before_7.03/float32",
                                          "silu_mul/after_7.03/float32"};
  EXPECT_EQ(names, expected);
}

const char* table_name(int32_t silu) {
  const char* const names[] = {"silu", "silu_sigmoid", "silu_candle", "silu_glu"};
  return names[silu];
}

TEST(Golden, SiluTables) {
  for (int32_t dtype : {bf16, fp16}) {
    for (int32_t silu :
         {BITEXACT_SILU_ATEN, BITEXACT_SILU_SIGMOID, BITEXACT_SILU_CANDLE, BITEXACT_SILU_GLU}) {
      std::vector<uint16_t> gate(0x10000), up(0x10000, dtype == bf16 ? 0x3f80 : 0x3c00), out(0x10000);
      for (size_t i = 0; i < gate.size(); ++i) gate[i] = static_cast<uint16_t>(i);
      bitexact_silu_mul_params p = BITEXACT_SILU_MUL_PARAMS_INIT;
      p.dtype = dtype, p.silu = silu, p.batches = p.rows = 1, p.cols = 0x10000;
      p.gate = gate.data(), p.up = up.data(), p.out = out.data();
      bitexact_reference::silu_mul(p);
      EXPECT_EQ(bitexact::sha256(out.data(), out.size() * 2),
                load_table_sha256(directory, table_name(silu), dtype));
    }
  }
}

// Every domain of 16-bit pairs, on the keys that a CPU can afford.
TEST(Golden, DomainSamples) {
  const std::vector<uint32_t> keys = sample_keys(directory);
  std::vector<uint16_t> first(keys.size()), second(keys.size()), out(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    first[i] = static_cast<uint16_t>(keys[i] >> 16), second[i] = static_cast<uint16_t>(keys[i]);
  }
  int run = 0;
  for (const Domain& domain : load_domains(directory)) {
    // Silu and the sigmoid in float32: CUDA's expf.
    if (domain.dtype == BITEXACT_DTYPE_FLOAT32 || domain.name == "glu_float32") continue;
    bitexact_silu_mul_params p = BITEXACT_SILU_MUL_PARAMS_INIT;
    p.dtype = domain.dtype, p.batches = p.rows = 1, p.cols = static_cast<int64_t>(keys.size());
    p.gate = first.data(), p.up = second.data(), p.out = out.data();
    const std::map<std::string, int32_t> forms = {
        {"silu_mul_aten", BITEXACT_SILU_ATEN},     {"silu_mul_sigmoid", BITEXACT_SILU_SIGMOID},
        {"silu_mul_candle", BITEXACT_SILU_CANDLE}, {"glu", BITEXACT_SILU_GLU},
        {"clamp_before", BITEXACT_SILU_ATEN},      {"clamp_after", BITEXACT_SILU_ATEN}};
    if (domain.name.find("clamp") == 0) {
      p.clamp = domain.name == "clamp_after" ? BITEXACT_CLAMP_AFTER : BITEXACT_CLAMP_BEFORE;
      std::memcpy(&p.limit_bits, &bitexact::golden_limit, sizeof(p.limit_bits));
    }
    if (const auto form = forms.find(domain.name); form != forms.end()) {
      p.silu = form->second;
      bitexact_reference::silu_mul(p);
    } else if (domain.name == "silu_mul_float32" || domain.name == "clamp_before_float32") {
      silu_mul_from_table(p, silu32_values(domain.dtype));
    } else {
      for (size_t i = 0; i < keys.size(); ++i) {
        const float a = value_of(domain.dtype, first[i]), b = value_of(domain.dtype, second[i]);
        out[i] = bits_of(domain.dtype, domain.name == "product" ? a * b : a + b);
      }
    }
    uint64_t digest = 0;
    for (size_t i = 0; i < keys.size(); ++i) digest += digest_term(keys[i], out[i]);
    EXPECT_EQ(digest, domain.sample_digest) << domain.name << ' ' << domain.dtype;
    ++run;
  }
  EXPECT_EQ(run, 20);
}

// ---------------------------------------------------------------------------- the loader --

Case find_case(const std::string& name) {
  for (const Case& c : load_cases(directory)) {
    if (c.name == name) return c;
  }
  throw std::runtime_error("no case " + name);
}

TEST(GoldenLoader, SeesOneWrongBit) {
  const Case c = find_case("silu_mul/aten/bfloat16/odd");
  Backend backend = reference();
  backend.silu_mul = [](const bitexact_silu_mul_params& p) {
    bitexact_reference::silu_mul(p);
    static_cast<uint16_t*>(p.out)[2 * p.out_batch_stride + 5 * p.out_row_stride + 12] ^= 1;
  };
  const std::string text = c.run(backend);
  EXPECT_NE(text.find("out: digest"), std::string::npos) << text;
  EXPECT_NE(text.find("element (2 5 12 )"), std::string::npos) << text;
  EXPECT_NE(text.find("1 of 273 stored elements differ"), std::string::npos) << text;
}

TEST(GoldenLoader, SeesAnOutputThatNobodyWrote) {
  Backend backend;
  backend.rope = [](const bitexact_rope_params&) {};
  const std::string text = find_case("rope/half/bfloat16/head_dim_100").run(backend);
  EXPECT_NE(text.find("q_out: digest"), std::string::npos) << text;
}

TEST(GoldenLoader, SeesAWriteBesideTheOutput) {
  Backend backend = reference();
  backend.rope = [](const bitexact_rope_params& p) {
    bitexact_reference::rope(p, nullptr);
    *const_cast<uint16_t*>(static_cast<const uint16_t*>(p.cos)) ^= 1;
  };
  EXPECT_EQ(find_case("rope/half/bfloat16/head_dim_100").run(backend),
            "the call wrote to cos outside its output\n");
}

TEST(GoldenLoader, UsesTheBackendsMemory) {
  int allocated = 0, released = 0, uploaded = 0, downloaded = 0;
  Backend backend = reference();
  backend.allocate = [&](size_t bytes) { return ++allocated, std::malloc(bytes); };
  backend.release = [&](void* memory) { ++released, std::free(memory); };
  backend.upload = [&](void* to, const void* from, size_t bytes) {
    ++uploaded, std::memcpy(to, from, bytes);
  };
  backend.download = [&](void* to, const void* from, size_t bytes) {
    ++downloaded, std::memcpy(to, from, bytes);
  };
  EXPECT_EQ(find_case("silu_mul/aten/bfloat16/special").run(backend), "");
  for (int count : {allocated, released, uploaded, downloaded}) EXPECT_EQ(count, 3);
}

TEST(GoldenLoader, RefusesAMissingDirectory) {
  EXPECT_THROW(load_cases("no such directory"), std::runtime_error);
}

}  // namespace
}  // namespace bitexact_golden
