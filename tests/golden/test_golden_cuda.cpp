// The CUDA kernels against what PyTorch eager gave on a GPU.
#include "contexts.h"
#include "device.h"
#include "golden.h"

using namespace bitexact_test;

namespace {

TEST(GoldenCuda, EveryCase) {
  const Context context = make_context(0);
  const Stream stream;
  bitexact_golden::Backend backend;
  backend.silu_mul = [&](const bitexact_silu_mul_params& p) {
    EXPECT_EQ(bitexact_fused_silu_mul(context.get(), &p, stream), BITEXACT_STATUS_OK)
        << bitexact_last_error();
  };
  backend.rope = [&](const bitexact_rope_params& p) {
    EXPECT_EQ(bitexact_fused_rope(context.get(), &p, stream), BITEXACT_STATUS_OK) << bitexact_last_error();
  };
  backend.allocate = [](size_t bytes) {
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, bytes), cudaSuccess);
    return memory;
  };
  backend.release = [](void* memory) { cudaFree(memory); };
  backend.upload = [](void* to, const void* from, size_t bytes) {
    EXPECT_EQ(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice), cudaSuccess);
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  };
  backend.download = [&](void* to, const void* from, size_t bytes) {
    EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost), cudaSuccess);
  };
  int run = 0;
  for (const auto& c : bitexact_golden::load_cases(bitexact_golden::golden_directory())) {
    EXPECT_EQ(c.run(backend), "") << c.name;
    ++run;
  }
  std::printf("%d cases equal PyTorch on CUDA\n", run);
  EXPECT_GT(run, 200);
  for (const auto& story : stories(context.get()))
    EXPECT_EQ(story.state, BITEXACT_STATE_ACCEPTED) << story.kernel_name;
}

}  // namespace
