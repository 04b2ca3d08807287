// The launcher; the arithmetic and the kernel are in fused_rope.cuh.
#include "common/launch.h"
#include "fused_rope.cuh"

namespace bitexact {

const void* fused_rope_entry(const RopeArgs& a, RopeVariant variant) {
  switch (a.dtype) {
    case Dtype::bfloat16: return reinterpret_cast<const void*>(rope_entry_of<bf16>(a, variant));
    case Dtype::float16: return reinterpret_cast<const void*>(rope_entry_of<f16>(a, variant));
    default: return reinterpret_cast<const void*>(rope_entry_of<float>(a, variant));
  }
}

namespace {

// Threads a block, by what was fastest on an H200: fewer for interleaved pairs, whose threads hold less.
int64_t block_threads(const RopeArgs& a, bool spread) {
  if (spread) return 128;
  return a.pairing_in == Pairing::half ? rope_max_threads : 96;
}

}  // namespace

cudaError_t launch_fused_rope(const RopeArgs& a, RopeVariant variant, cudaStream_t stream) {
  const int64_t size = size_of(a.dtype), vector = variant == RopeVariant::scalar ? 1 : 16 / size;
  const int64_t pairs = variant == RopeVariant::scalar || a.pairing_in == Pairing::half ? vector : vector / 2;
  const bool copies =
      (a.heads[0] > 0 && a.in[0].data != a.out[0].data) || (a.heads[1] > 0 && a.in[1].data != a.out[1].data);
  const int64_t units = a.rotary_dim / 2 / pairs + (copies ? ceil_div(a.head_dim - a.rotary_dim, vector) : 0);
  const int64_t heads = a.heads[0] + a.heads[1];

  // The threads of a token walk over its heads with their table entries in registers, evenly. Few tokens
  // are spread over more blocks instead, a head a thread.
  const bool spread = a.batches * a.tokens < 512;
  const int64_t threads = block_threads(a, spread);
  const int64_t x = std::min(std::max<int64_t>(units, 1), int64_t{rope_max_threads});
  const int64_t most = std::max<int64_t>(threads / x, 1);
  const int64_t group = spread ? std::min(most, heads) : heads;
  const int64_t y = ceil_div(group, ceil_div(group, most));
  const bool token_a_block = variant == RopeVariant::vec16_table;
  const int64_t z =
      token_a_block ? 1 : std::min({std::max<int64_t>(threads / (x * y), 1), a.tokens, int64_t{64}});
  const dim3 block(static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z));
  const dim3 grid(grid_x(ceil_div(a.tokens, z)), grid_yz(ceil_div(heads, group)), grid_yz(a.batches));
  void* arguments[] = {const_cast<RopeArgs*>(&a)};
  return cudaLaunchKernel(fused_rope_entry(a, variant), grid, block, arguments, 0, stream);
}

}  // namespace bitexact
