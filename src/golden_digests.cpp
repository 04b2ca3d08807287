#include "golden_digests.h"

#include <cstring>

namespace bitexact {

const GoldenDigest golden_digests[golden_digest_count] = {
    {"silu_mul_aten", BITEXACT_DTYPE_BFLOAT16, 0x363101fc7d414f6e},
    {"silu_mul_sigmoid", BITEXACT_DTYPE_BFLOAT16, 0xcca342b13c799263},
    {"silu_mul_candle", BITEXACT_DTYPE_BFLOAT16, 0x9a5abc0f41faaa03},
    {"silu_mul_float32", BITEXACT_DTYPE_BFLOAT16, 0xc2b60d961e7a079c},
    {"product", BITEXACT_DTYPE_BFLOAT16, 0x021ed3c18bf52afc},
    {"sum", BITEXACT_DTYPE_BFLOAT16, 0x5a1d1111216d5ce9},
    {"silu_mul_aten", BITEXACT_DTYPE_FLOAT16, 0xb0873741faaa1652},
    {"silu_mul_sigmoid", BITEXACT_DTYPE_FLOAT16, 0x00a0b843676616d9},
    {"silu_mul_candle", BITEXACT_DTYPE_FLOAT16, 0x573f428ef8be0335},
    {"silu_mul_float32", BITEXACT_DTYPE_FLOAT16, 0x76bf8515f4bc1327},
    {"product", BITEXACT_DTYPE_FLOAT16, 0x10716ac2c921e3b1},
    {"sum", BITEXACT_DTYPE_FLOAT16, 0x2b40c4b8eeae4a08},
    {"silu", BITEXACT_DTYPE_FLOAT32, 0x13c608bfddc511f5},
    {"glu", BITEXACT_DTYPE_BFLOAT16, 0x020f68fe7e8a2f60},
    {"glu_float32", BITEXACT_DTYPE_BFLOAT16, 0xb78046e9509fc3f2},
    {"clamp_before_float32", BITEXACT_DTYPE_BFLOAT16, 0x3883fa1ff5feb5c6},
    {"clamp_before", BITEXACT_DTYPE_BFLOAT16, 0x26515e6591a7bf9b},
    {"clamp_after", BITEXACT_DTYPE_BFLOAT16, 0x26515e6591a7bf9b},
    {"glu", BITEXACT_DTYPE_FLOAT16, 0x72b43d75e340bb66},
    {"glu_float32", BITEXACT_DTYPE_FLOAT16, 0xdff5a356ceed7ba4},
    {"clamp_before_float32", BITEXACT_DTYPE_FLOAT16, 0x4634ad833e0a7b64},
    {"clamp_before", BITEXACT_DTYPE_FLOAT16, 0x5fef392e67c9c579},
    {"clamp_after", BITEXACT_DTYPE_FLOAT16, 0x5fef392e67c9c579},
    {"glu", BITEXACT_DTYPE_FLOAT32, 0xd545248c558c7473},
    {"clamp_before", BITEXACT_DTYPE_FLOAT32, 0x1fdced544be4e9ed},
    {"clamp_after", BITEXACT_DTYPE_FLOAT32, 0x10766d6f41079c1d},
};

const char* const golden_origin = "PyTorch 2.11.0+cu130 eager on NVIDIA H200";

namespace {

bool find(const char* domain, int32_t dtype, uint64_t& digest) {
  for (const GoldenDigest& golden : golden_digests) {
    if (golden.dtype != dtype || std::strcmp(golden.domain, domain) != 0) continue;
    digest = golden.digest;
    return true;
  }
  return false;
}

// "" where nothing was captured.
const char* silu_mul_domain(const bitexact_gate_report& kernel) {
  const bool two_roundings = kernel.compute_dtype == BITEXACT_DTYPE_DEFAULT;
  if (std::strstr(kernel.kernel_name, "clamp=after") != nullptr) return "clamp_after";
  if (std::strstr(kernel.kernel_name, "clamp=before") != nullptr)
    return two_roundings ? "clamp_before" : "clamp_before_float32";
  switch (kernel.numerics) {
    case BITEXACT_SILU_ATEN:
      if (!two_roundings) return "silu_mul_float32";
      return kernel.dtype == BITEXACT_DTYPE_FLOAT32 ? "silu" : "silu_mul_aten";
    case BITEXACT_SILU_SIGMOID: return two_roundings ? "silu_mul_sigmoid" : "";
    case BITEXACT_SILU_CANDLE: return two_roundings ? "silu_mul_candle" : "";
    case BITEXACT_SILU_GLU: return two_roundings ? "glu" : "glu_float32";
    default: return "";
  }
}

}  // namespace

bool golden_digest(const bitexact_gate_report& kernel, uint64_t& digest) {
  if (kernel.operation == BITEXACT_OPERATION_FUSED_SILU_MUL)
    return find(silu_mul_domain(kernel), kernel.dtype, digest);
  // One product or one sum is the same number in every compute dtype and every order of the other
  // operations; but sums that start at +0 lose the sign of zero.
  if (kernel.table_dtype != kernel.dtype || kernel.numerics > BITEXACT_COMBINE_ADDCMUL_X1) return false;
  if (std::strstr(kernel.kernel_name, "+0") != nullptr) return false;
  uint64_t product = 0, sum = 0;
  if (!find("product", kernel.dtype, product) || !find("sum", kernel.dtype, sum)) return false;
  digest = product + sum;
  return true;
}

}  // namespace bitexact
