// The launcher; the arithmetic and the kernel are in fused_rope.cuh.
#include "common/launch.h"
#include "fused_rope.cuh"
#include "variants.h"

namespace bitexact {

const void* fused_rope_entry(const RopeArgs& a, RopeVariant variant) {
  switch (a.dtype) {
    case Dtype::bfloat16: return rope_entry_of<bf16>(a, variant);
    case Dtype::float16: return rope_entry_of<f16>(a, variant);
    default: return rope_entry_of<float>(a, variant);
  }
}

namespace {

struct Geometry {
  dim3 grid, block;
};

// `units` threads for a head, `groups` heads side by side, blocks of at most `threads` threads, evenly filled.
Geometry geometry(const RopeArgs& a, int64_t units, int64_t groups, int64_t threads, int64_t tokens_a_block) {
  const int64_t x = std::min(std::max<int64_t>(units, 1), threads), most = std::max<int64_t>(threads / x, 1);
  const int64_t y = ceil_div(groups, ceil_div(groups, most));
  const int64_t z = std::min({std::max<int64_t>(tokens_a_block / (x * y), 1), a.tokens, int64_t{64}});
  return {dim3(grid_x(ceil_div(a.tokens, z)), grid_yz(ceil_div(groups, y)), grid_yz(a.batches)),
          dim3(static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z))};
}

// Does a token's q follow the q of the token before it without a gap, and k likewise?
bool is_dense(const RopeArgs& a) {
  auto dense = [&](const Heads& x, int64_t heads) {
    return heads == 0 || (x.head == a.head_dim && x.token == heads * x.head);
  };
  return dense(a.in[0], a.heads[0]) && dense(a.in[1], a.heads[1]) && dense(a.out[0], a.heads[0]) &&
         dense(a.out[1], a.heads[1]);
}

// Where blocks take q or k of whole tokens: both run on without gaps and the tables stay in the cache.
bool is_apart(const RopeArgs& a, const RopeVectorArgs& v) {
  return 2 * v.q_groups == v.groups && v.keep_tables && is_dense(a);
}

// Most threads of a block. Whole tokens, so that their table entries are fetched once; or q or k of them; or two
// heads of several tokens, where those lie side by side; or some heads of one, where they are too many; and less
// where tokens are too few to keep the device busy. Measured.
int64_t most_threads(const RopeArgs& a, const RopeVectorArgs& v, int64_t units, bool heads_first) {
  if (a.batches * a.tokens < rope_few_tokens) return 128;
  if (heads_first) return 2 * units;
  const int64_t q_threads = units * v.q_groups;
  if (is_apart(a, v) && q_threads <= rope_vector_threads) return q_threads;
  return units * v.groups <= rope_vector_threads ? rope_vector_threads : rope_vector_threads / 2;
}

// Lets the blocks of a token follow each other, so that the entries that one fetches serve the others: a power of two
// of blocks, which find their numbers by a shift.
void share_tokens(Geometry& g, RopeVectorArgs& v) {
  uint8_t log = 0;
  while (1u << log < g.grid.y) ++log;
  const int64_t blocks = int64_t{g.grid.x} << log;
  if (log > 8 || blocks > INT32_MAX) return;
  v.log_head_blocks = log;
  v.head_mask = static_cast<uint8_t>((1 << log) - 1);
  g.block.y = static_cast<unsigned>(ceil_div(v.groups, 1 << log));
  g.grid.x = static_cast<unsigned>(blocks);
  g.grid.y = 1;
}

cudaError_t launch_vector(const RopeArgs& a, RopeVariant variant, cudaStream_t stream) {
  RopeVectorArgs v = vector_args(a, variant);
  const int64_t pairs = vector_pairs(size_of(a.dtype), size_of(a.table_dtype), a.pairing_in, variant);
  const int64_t units = std::max<int64_t>(v.rotary_units + tail_vectors(a, 2 * pairs), 1);
  const bool heads_first = is_heads_first(a);
  const int64_t threads = std::max(most_threads(a, v, units, heads_first), units);
  Geometry g = geometry(a, units, v.groups, threads, heads_first ? 256 : 128);
  if (!heads_first && !is_apart(a, v)) share_tokens(g, v);
  void* arguments[] = {&v};
  return cudaLaunchKernel(fused_rope_entry(a, variant), g.grid, g.block, arguments, 0, stream);
}

cudaError_t launch_lanes(const RopeArgs& a, RopeVariant variant, cudaStream_t stream) {
  const int64_t elements = vector_pairs(size_of(a.dtype), size_of(a.table_dtype), a.pairing_in, variant);
  RopeLanesArgs v = lanes_args(a, elements);
  const dim3 grid(grid_x(ceil_div(lanes_warps(v), lanes_threads / rope_lanes)));
  void* arguments[] = {&v};
  return cudaLaunchKernel(fused_rope_entry(a, variant), grid, lanes_threads, arguments, 0, stream);
}

}  // namespace

cudaError_t launch_fused_rope(const RopeArgs& a, RopeVariant variant, cudaStream_t stream) {
  if (variant == RopeVariant::vec16_lanes) return launch_lanes(a, variant, stream);
  if (variant == RopeVariant::vec16_table || variant == RopeVariant::vec8_table) {
    return launch_vector(a, variant, stream);
  }
  const int64_t vector = variant == RopeVariant::scalar ? 1 : 16 / size_of(a.dtype);
  const int64_t pairs = variant == RopeVariant::scalar || a.pairing_in == Pairing::half ? vector : vector / 2;
  const int64_t units = a.rotary_dim / 2 / pairs + tail_vectors(a, vector), heads = a.heads[0] + a.heads[1];
  // The threads of a token walk over its heads with their table entries in registers; few tokens are spread.
  const bool spread = a.batches * a.tokens < rope_spread_tokens;
  const int64_t threads = spread ? 128 : a.pairing_in == Pairing::half ? rope_max_threads : 96;
  Geometry g = geometry(a, units, heads, threads, threads);
  if (!spread) g.grid.y = 1;
  void* arguments[] = {const_cast<RopeArgs*>(&a)};
  return cudaLaunchKernel(fused_rope_entry(a, variant), g.grid, g.block, arguments, 0, stream);
}

}  // namespace bitexact
