// Sizes beyond 31 and 32 bits, and beyond what a grid axis holds: every element against the reference.
#include <gtest/gtest.h>

#include <algorithm>

#include "check.h"
#include "contexts.h"
#include "device.h"
#include "operation.h"
#include "reference_kernels.h"

using namespace bitexact;
using namespace bitexact_test;

namespace {

__global__ void fill(uint32_t* data, int64_t count, uint32_t seed) {
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += int64_t{gridDim.x} * blockDim.x) {
    uint32_t x = static_cast<uint32_t>(i) * 2654435761u + seed + static_cast<uint32_t>(i >> 32);
    x ^= x >> 15;
    x *= 0x2c1b3c6du;
    x ^= x >> 12;
    data[i] = (x & 0xbfffbfffu) | 0x20002000u;  // no infinities, no NaN
  }
}

void randomise(const DeviceMemory& memory, int64_t bytes, uint32_t seed) {
  fill<<<2048, 256>>>(memory.as<uint32_t>(), bytes / 4, seed);
}

// Compares outputs slice by slice with the reference; memory for the whole would not fit twice.
template <class Args>
void expect_right(const Args& call) {
  constexpr int64_t limit = int64_t{512} << 20;
  const DeviceMemory expected(limit), result(sizeof(Comparison));
  const Comparison start;
  ASSERT_CUDA(cudaMemcpy(result.as(), &start, sizeof(start), cudaMemcpyHostToDevice));
  for_slices(call, limit, [&](const Slice<Args>& slice) {
    const Args reference = redirected(slice.args, expected.as());
    if constexpr (std::is_same<Args, SiluMulArgs>::value) {
      EXPECT_EQ(launch_reference_silu_mul(reference, nullptr), cudaSuccess);
    } else {
      EXPECT_EQ(launch_reference_rope(reference, nullptr), cudaSuccess);
    }
    for (int which = 0; which < 2; ++which) {
      const int64_t count = output_elements(slice.args, which);
      if (count == 0) continue;
      const CompareArgs c{call.dtype, count, output_view(call, which, slice.first[which]),
                          output_view(reference, which, 0), static_cast<uint64_t>(slice.first[which])};
      EXPECT_EQ(launch_compare(c, result.as<Comparison>(), nullptr), cudaSuccess);
    }
    return 0;
  });
  Comparison sum;
  ASSERT_CUDA(cudaMemcpy(&sum, result.as(), sizeof(sum), cudaMemcpyDeviceToHost));
  EXPECT_EQ(sum.mismatches, 0u) << "first: element " << sum.key;
}

void silu_mul(int64_t batches, int64_t rows, int64_t cols, bool packed) {
  SCOPED_TRACE(testing::Message() << batches << " x " << rows << " x " << cols << " packed " << packed);
  const Context context = make_context(0, BITEXACT_POLICY_TRUST);
  const int64_t in_row = packed ? 2 * cols : cols + 8, bytes = batches * rows * in_row * 2;
  const DeviceMemory gate(bytes + 16), up(packed ? 16 : bytes + 16), out(batches * rows * cols * 2 + 16);
  randomise(gate, bytes, 1);
  if (!packed) randomise(up, bytes, 2);
  ASSERT_CUDA(cudaMemset(out.as(), 0xff, batches * rows * cols * 2));
  bitexact_silu_mul_params p = BITEXACT_SILU_MUL_PARAMS_INIT;
  p.dtype = BITEXACT_DTYPE_BFLOAT16;
  p.batches = batches;
  p.rows = rows;
  p.cols = cols;
  p.gate = gate.as();
  p.up = packed ? gate.as<uint16_t>() + cols : up.as<uint16_t>();
  p.out = out.as();
  p.gate_row_stride = p.up_row_stride = in_row;
  p.gate_batch_stride = p.up_batch_stride = rows * in_row;
  p.out_row_stride = cols;
  p.out_batch_stride = rows * cols;
  ASSERT_EQ(bitexact_fused_silu_mul(context.get(), &p, nullptr), BITEXACT_STATUS_OK) << bitexact_last_error();
  SiluMulArgs a;
  bool empty;
  ASSERT_EQ(check(&p, a, empty), BITEXACT_STATUS_OK);
  expect_right(a);
}

void rope(int64_t batches, int64_t tokens, int64_t heads, int64_t head_dim, int64_t rotary_dim) {
  SCOPED_TRACE(testing::Message() << batches << " x " << tokens << " x " << heads << " x " << head_dim);
  const Context context = make_context(0, BITEXACT_POLICY_TRUST);
  const int64_t bytes = batches * tokens * heads * head_dim * 2, table = tokens * rotary_dim * 2;
  const DeviceMemory q(bytes + 16), out(bytes + 16), cos(table + 16), sin(table + 16);
  randomise(q, bytes, 1);
  randomise(cos, table, 2);
  randomise(sin, table, 3);
  ASSERT_CUDA(cudaMemset(out.as(), 0xff, bytes));
  bitexact_rope_params p = BITEXACT_ROPE_PARAMS_INIT;
  p.dtype = BITEXACT_DTYPE_BFLOAT16;
  p.batches = batches;
  p.tokens = p.table_rows = tokens;
  p.q_heads = heads;
  p.head_dim = head_dim;
  p.rotary_dim = p.table_width = rotary_dim;
  p.q_in = q.as();
  p.q_out = out.as();
  p.q_in_batch_stride = p.q_out_batch_stride = tokens * heads * head_dim;
  p.q_in_token_stride = p.q_out_token_stride = heads * head_dim;
  p.q_in_head_stride = p.q_out_head_stride = head_dim;
  p.cos = cos.as();
  p.sin = sin.as();
  p.cos_token_stride = p.sin_token_stride = rotary_dim;
  p.cos_element_stride = p.sin_element_stride = 1;
  ASSERT_EQ(bitexact_fused_rope(context.get(), &p, nullptr), BITEXACT_STATUS_OK) << bitexact_last_error();
  RopeArgs a;
  bool empty;
  ASSERT_EQ(check(&p, a, empty), BITEXACT_STATUS_OK);
  expect_right(a);
}

TEST(Large, SiluMulBeyond31Bits) {
  silu_mul(1, 75000, 14336, true);  // the row offset passes 2^31
  silu_mul(1, 3, (int64_t{1} << 30) + 5, false);
  silu_mul(1, (int64_t{1} << 32) / 3 + 7, 3, false);  // beyond 2^32 elements, a thread each
}

TEST(Large, SiluMulBeyondGridAxes) {
  silu_mul(70000, 2, 24, false);
  silu_mul(2, 200000, 17, false);
  silu_mul(1, 70000 * 40, 33, true);
}

TEST(Large, RopeBeyond31Bits) {
  rope(1, 75600, 256, 128, 128);  // 2.5e9 elements
  rope(1, 70000, 130, 128, 128);  // several blocks for each of more tokens than a grid axis holds
  rope(1, 2, 1 << 17, 64, 32);
  rope(2, 75600, 128, 128, 128);  // more than 2^31 bytes from batch to batch, which do not fold
}

TEST(Large, RopeBeyondGridAxes) {
  rope(70000, 3, 1, 16, 16);
  rope(1, 200000, 1, 2, 2);
  rope(2, 5, 70000, 20, 12);
}

}  // namespace
