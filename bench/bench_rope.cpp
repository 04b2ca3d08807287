// fused_rope against a plain copy of q and k in the same layout. Tables are shared by all sets of buffers, as by
// the layers of a model, and their bytes are not counted.
#include <cstdio>

#include "bitexact.h"
#include "inputs.h"
#include "plain.h"
#include "report.h"

namespace {

constexpr int32_t bf16 = BITEXACT_DTYPE_BFLOAT16, f16 = BITEXACT_DTYPE_FLOAT16, f32 = BITEXACT_DTYPE_FLOAT32;

enum Flags : unsigned {
  half_table = 1,   // an entry a pair instead of one an element
  interleaved = 2,  // pairing
  in_place = 4,
  packed = 8,        // q, k and v of a token side by side
  heads_first = 16,  // (heads, tokens, head_dim)
  partial = 32       // only the first half of a head turns
};

struct Shape {
  const char* model;
  int64_t tokens, q_heads, k_heads, head_dim;
  int32_t dtype = bf16, table_dtype = bf16;
  unsigned flags = 0;
};

const Shape shapes[] = {
    {"Ideogram-4", 4400, 18, 18, 256},
    {"Ideogram-4", 4400, 18, 18, 256, bf16, bf16, in_place},
    {"Ideogram-4", 4400, 9, 9, 256},
    {"Flux", 4608, 24, 24, 128},
    {"Flux", 4608, 24, 24, 128, bf16, bf16, in_place},
    {"Flux", 4608, 24, 24, 128, bf16, bf16, interleaved},
    {"Flux", 4608, 24, 24, 128, bf16, f32, interleaved},
    {"Flux", 4608, 24, 24, 128, bf16, f32, interleaved | half_table},
    {"Flux", 4608, 24, 24, 128, bf16, f32, interleaved | half_table | in_place},
    {"Flux", 4608, 24, 24, 128, bf16, bf16, packed},
    {"Flux", 4608, 24, 24, 128, bf16, bf16, heads_first},
    {"Flux", 4608, 24, 24, 128, bf16, bf16, partial},
    {"Flux", 4608, 24, 24, 128, f16, f16},
    {"Flux", 4608, 24, 24, 128, f16, f32, half_table},
    {"Flux", 4608, 24, 24, 128, f32, f32},
    {"Flux", 4608, 24, 24, 128, f32, f32, half_table | in_place},
    {"Wan", 32760, 40, 40, 128, bf16, f32, interleaved},
    {"Wan", 75600, 40, 40, 128, bf16, f32, interleaved},
    {"Wan", 75600, 40, 40, 128, bf16, f32, interleaved | half_table},
    {"HunyuanVideo", 118800, 24, 24, 128, bf16, f32, interleaved},
    {"HunyuanVideo", 118800, 24, 24, 128},
    {"Llama-3 8B", 1, 32, 8, 128},
    {"Llama-3 8B", 16, 32, 8, 128},
    {"Llama-3 8B", 64, 32, 8, 128},
    {"Llama-3 8B", 256, 32, 8, 128},
    {"Llama-3 8B", 1024, 32, 8, 128},
    {"Llama-3 8B", 2048, 32, 8, 128},
    {"Llama-3 8B", 8192, 32, 8, 128},
    {"Llama-3 8B", 1, 32, 8, 128, bf16, bf16, in_place},
    {"Llama-3 8B", 16, 32, 8, 128, bf16, bf16, in_place},
    {"Llama-3 8B", 256, 32, 8, 128, bf16, bf16, in_place},
    {"Llama-3 8B", 8192, 32, 8, 128, bf16, bf16, in_place},
    {"Llama-3 8B", 8192, 32, 8, 128, bf16, bf16, half_table},
    {"Llama-3 8B", 8192, 32, 8, 128, bf16, f32},
    {"Llama-3 8B", 8192, 32, 8, 128, bf16, f32, half_table},
    {"Llama-3 8B", 8192, 32, 8, 128, bf16, bf16, packed | in_place},
    {"Llama-3 8B", 16, 32, 8, 128, bf16, bf16, half_table},
    {"Llama-3 8B", 16, 32, 8, 128, bf16, f32},
    {"Llama-3 8B", 16, 32, 8, 128, f16, f16},
    {"Llama-3 8B", 16, 32, 8, 128, f32, f32},
    {"Llama-3 70B", 1, 64, 8, 128},
    {"Llama-3 70B", 16, 64, 8, 128},
    {"Llama-3 70B", 256, 64, 8, 128},
    {"Llama-3 70B", 8192, 64, 8, 128},
    {"Qwen3", 1, 40, 8, 128},
    {"Qwen3", 16, 40, 8, 128},
    {"Qwen3", 256, 40, 8, 128},
    {"Qwen3", 8192, 40, 8, 128},
    {"gpt-oss", 1, 64, 8, 64, bf16, bf16, half_table},
    {"gpt-oss", 16, 64, 8, 64, bf16, bf16, half_table},
    {"gpt-oss", 256, 64, 8, 64, bf16, bf16, half_table},
    {"gpt-oss", 8192, 64, 8, 64, bf16, bf16, half_table},
    {"Phi-3", 1, 32, 32, 96},
    {"Phi-3", 256, 32, 32, 96},
    {"Phi-3", 4096, 32, 32, 96},
    {"Qwen2.5-VL vision", 1024, 16, 16, 80},
    {"Qwen2.5-VL vision", 16384, 16, 16, 80},
    {"odd", 257, 16, 16, 128},
    {"odd", 513, 12, 12, 80},
    {"odd", 1023, 7, 3, 96, bf16, bf16, interleaved},
    {"odd", 4097, 9, 1, 72},
};

std::string name(const Shape& s) {
  std::string text = std::string(s.model) + " " + std::to_string(s.tokens) + " x (" +
                     std::to_string(s.q_heads) + "," + std::to_string(s.k_heads) + ") x " +
                     std::to_string(s.head_dim) + " " + bench::dtype_name(s.dtype) +
                     (s.flags & half_table ? ", half " : ", full ") + bench::dtype_name(s.table_dtype);
  for (const auto& [flag, word] : {std::pair{interleaved, " interleaved"}, std::pair{packed, " packed"},
                                   std::pair{heads_first, " heads first"}, std::pair{partial, " partial"},
                                   std::pair{in_place, " in place"}}) {
    if (s.flags & flag) text += word;
  }
  return text;
}

// Bytes, from one element of the axis to the next.
struct Strides {
  int64_t token, head;
};

struct Sizes {
  int64_t q, k, v, element;  // v stands between tokens of a packed tensor
  explicit Sizes(const Shape& s) {
    element = bench::dtype_bytes(s.dtype);
    q = s.tokens * s.q_heads * s.head_dim * element;
    k = s.tokens * s.k_heads * s.head_dim * element;
    v = s.flags & packed ? k : 0;
  }
  int64_t tensors() const { return q + k + v; }
};

Strides strides(const Shape& s, int64_t heads, const Sizes& sizes) {
  const int64_t head = s.head_dim * sizes.element;
  if (s.flags & packed) return {sizes.tensors() / s.tokens, head};
  if (s.flags & heads_first) return {head, s.tokens * head};
  return {heads * head, head};
}

// The plain copy takes a packed tensor token by token, the others whole.
bench::Strips strips(const Shape& s, char* in, char* out) {
  const Sizes sizes(s);
  if ((s.flags & packed) == 0)
    return {{{in, sizes.q}, {out, sizes.q}, 1, sizes.q},
            {{in + sizes.q, sizes.k}, {out + sizes.q, sizes.k}, 1, sizes.k}};
  const int64_t pitch = sizes.tensors() / s.tokens, q = sizes.q / s.tokens, k = sizes.k / s.tokens;
  return {{{in, pitch}, {out, pitch}, s.tokens, q}, {{in + q, pitch}, {out + q, pitch}, s.tokens, k}};
}

bitexact_rope_params params(const Shape& s, char* in, char* out, const bench::Tables& tables) {
  const Sizes sizes(s);
  const Strides q = strides(s, s.q_heads, sizes), k = strides(s, s.k_heads, sizes);
  const bench::Strips at = strips(s, in, out);
  bitexact_rope_params p = BITEXACT_ROPE_PARAMS_INIT;
  p.dtype = s.dtype;
  p.table_dtype = s.table_dtype;
  p.pairing_in = p.pairing_out = s.flags & interleaved ? BITEXACT_PAIRING_INTERLEAVED : BITEXACT_PAIRING_HALF;
  p.batches = 1;
  p.tokens = p.table_rows = s.tokens;
  p.q_heads = s.q_heads;
  p.k_heads = s.k_heads;
  p.head_dim = s.head_dim;
  p.rotary_dim = tables.full ? tables.width : 2 * tables.width;
  p.table_width = tables.width;
  p.q_in = at.q.in.data;
  p.k_in = at.k.in.data;
  p.q_out = at.q.out.data;
  p.k_out = at.k.out.data;
  p.q_in_token_stride = p.q_out_token_stride = q.token / sizes.element;
  p.q_in_head_stride = p.q_out_head_stride = q.head / sizes.element;
  p.k_in_token_stride = p.k_out_token_stride = k.token / sizes.element;
  p.k_in_head_stride = p.k_out_head_stride = k.head / sizes.element;
  p.cos = tables.cos;
  p.sin = tables.sin;
  p.cos_token_stride = p.sin_token_stride = tables.width;
  p.cos_element_stride = p.sin_element_stride = 1;
  return p;
}

std::vector<bench::Measurement> measure(const Shape& s, bench::Context& context, double seconds,
                                        bench::Rotation& rotation) {
  const Sizes sizes(s);
  const int64_t tensors = (sizes.tensors() + 255) / 256 * 256, moved = 2 * (sizes.q + sizes.k);
  const int64_t set_bytes = s.flags & in_place ? tensors : 2 * tensors;
  rotation = bench::rotation(s.flags & in_place ? moved / 2 : moved, moved);
  const bench::Memory memory(set_bytes * rotation.sets);
  bench::fill_activations(memory.data(), set_bytes * rotation.sets, s.dtype);
  auto in = [&](int set) { return memory.data() + set * set_bytes; };
  auto out = [&](int set) { return s.flags & in_place ? in(set) : in(set) + tensors; };

  const int64_t rotary_dim = s.flags & partial ? s.head_dim / 2 : s.head_dim;
  const int64_t width = s.flags & half_table ? rotary_dim / 2 : rotary_dim;
  const int64_t table_bytes = (s.tokens * width * bench::dtype_bytes(s.table_dtype) + 255) / 256 * 256;
  const bench::Memory tables_memory(2 * table_bytes);
  const bench::Tables tables{
      tables_memory.data(),        tables_memory.data() + table_bytes, s.tokens, width, s.table_dtype,
      (s.flags & half_table) == 0, (s.flags & interleaved) != 0};
  bench::fill_rotations(tables);

  std::vector<bench::Work> works = bench::plain_copies([&](int set) { return strips(s, in(set), out(set)); });
  if (moved > 32 << 20 && (s.flags & (in_place | packed)) == 0 && tensors == sizes.tensors())
    works.push_back(bench::memory_copy(in, tensors));
  works.push_back({"bitexact", [&](int set) {
                     const bitexact_rope_params p = params(s, in(set), out(set), tables);
                     bench::check_status(bitexact_fused_rope(context.get(), &p, bench::stream()),
                                         "fused_rope");
                   }});
  return bench::measure(works, rotation, seconds, context);
}

}  // namespace

int main(int argc, char** argv) try {
  bench::Report report(argc, argv, "fused_rope");
  bench::Context context;
  report.empty_kernel();
  for (const Shape& s : shapes) {
    const Sizes sizes(s);
    report.shape(name(s), 2.0 * static_cast<double>(sizes.q + sizes.k), [&](bench::Rotation& rotation) {
      return measure(s, context, report.options().seconds, rotation);
    });
  }
  return report.exit_code();
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
