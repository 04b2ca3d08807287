// The host backend against what PyTorch eager gave on a GPU.
#include "contexts.h"
#include "golden.h"

using namespace bitexact_test;

namespace {

TEST(GoldenHost, EveryCase) {
  const Context context = make_context(BITEXACT_DEVICE_HOST);
  bitexact_golden::Backend backend;
  int32_t status = 0;
  backend.silu_mul = [&](const bitexact_silu_mul_params& p) {
    status = bitexact_fused_silu_mul(context.get(), &p, nullptr);
  };
  backend.rope = [&](const bitexact_rope_params& p) {
    status = bitexact_fused_rope(context.get(), &p, nullptr);
  };
  int run = 0, refused = 0;
  for (const auto& c : bitexact_golden::load_cases(bitexact_golden::golden_directory())) {
    const std::string difference = c.run(backend);
    if (status == BITEXACT_STATUS_UNSUPPORTED) {  // silu in float32 is the GPU's alone
      EXPECT_EQ(c.operation, BITEXACT_OPERATION_FUSED_SILU_MUL);
      EXPECT_TRUE(c.silu_mul.dtype == BITEXACT_DTYPE_FLOAT32 ||
                  c.silu_mul.compute_dtype == BITEXACT_DTYPE_FLOAT32);
      ++refused;
      continue;
    }
    EXPECT_EQ(status, BITEXACT_STATUS_OK) << c.name << ": " << bitexact_last_error();
    EXPECT_EQ(difference, "") << c.name;
    ++run;
  }
  std::printf("%d cases equal PyTorch on CUDA; %d in float32 silu are refused on the host\n", run, refused);
  EXPECT_GT(run, 200);
  for (const auto& story : stories(context.get()))
    EXPECT_EQ(story.state, BITEXACT_STATE_ACCEPTED) << story.kernel_name;
}

}  // namespace
