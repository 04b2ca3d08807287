// fused_rope against a plain copy of q and k. Tables are shared by all buffers, as by the layers of a model,
// and their bytes are not counted.
#include <algorithm>

#include "bitexact.h"
#include "harness.h"

namespace {

struct Shape {
  int64_t tokens, q_heads, k_heads, head_dim;
  int32_t dtype, table_dtype;
  bool full, interleaved, in_place;
};

}  // namespace

int main(int argc, char** argv) {
  bench::Report report(argc, argv, "fused_rope");
  bitexact_context* context = nullptr;
  bench::check_status(bitexact_context_create(nullptr, &context), "making a context");
  const int32_t bf16 = BITEXACT_DTYPE_BFLOAT16, f16 = BITEXACT_DTYPE_FLOAT16, f32 = BITEXACT_DTYPE_FLOAT32;
  for (const Shape& s : {Shape{4400, 18, 18, 256, bf16, bf16, true, false, false},
                         Shape{4400, 18, 18, 256, bf16, bf16, true, false, true},
                         Shape{4400, 9, 9, 256, bf16, bf16, true, false, false},
                         Shape{4608, 24, 24, 128, bf16, bf16, true, false, false},
                         Shape{4608, 24, 24, 128, bf16, f32, true, true, false},
                         Shape{4608, 24, 24, 128, bf16, f32, false, true, false},
                         Shape{8192, 32, 8, 128, bf16, bf16, true, false, false},
                         Shape{8192, 32, 8, 128, bf16, bf16, false, false, false},
                         Shape{8192, 32, 8, 128, bf16, f32, true, false, false},
                         Shape{8192, 64, 8, 128, bf16, bf16, true, false, false},
                         Shape{2048, 64, 8, 64, bf16, bf16, false, false, false},
                         Shape{32760, 40, 40, 128, bf16, f32, true, true, false},
                         Shape{75600, 40, 40, 128, bf16, f32, true, true, false},
                         Shape{257, 16, 16, 128, bf16, bf16, true, false, false},
                         Shape{256, 32, 8, 128, bf16, bf16, true, false, false},
                         Shape{16, 32, 8, 128, bf16, bf16, true, false, false},
                         Shape{1, 32, 8, 128, bf16, bf16, true, false, false},
                         Shape{4608, 24, 24, 128, f16, f16, true, false, false},
                         Shape{4608, 24, 24, 128, f32, f32, true, false, false}}) {
    const int64_t size = s.dtype == f32 ? 4 : 2, table_size = s.table_dtype == f32 ? 4 : 2;
    const int64_t width = s.full ? s.head_dim : s.head_dim / 2, table_bytes = s.tokens * width * table_size;
    const int64_t q_bytes = s.tokens * s.q_heads * s.head_dim * size,
                  k_bytes = s.tokens * s.k_heads * s.head_dim * size;
    const int64_t set = ((s.in_place ? 1 : 2) * (q_bytes + k_bytes) + 255) / 256 * 256;
    const int buffers =
        static_cast<int>(std::max<int64_t>(2, std::min<int64_t>(64, (int64_t{600} << 20) / set + 1)));
    char* const memory = static_cast<char*>(bench::activations(static_cast<size_t>(set) * buffers, s.dtype));
    char* const tables =
        static_cast<char*>(bench::activations(static_cast<size_t>(2 * table_bytes + 256), s.table_dtype));
    auto q = [=](int i) { return memory + i * set; };
    auto k = [=](int i) { return q(i) + q_bytes; };
    auto q_out = [=](int i) { return s.in_place ? q(i) : k(i) + k_bytes; };
    auto k_out = [=](int i) { return s.in_place ? k(i) : k(i) + k_bytes + q_bytes; };
    std::vector<bench::Work> works;
    for (const int threads : {128, 256, 512}) {
      works.push_back({"copy " + std::to_string(threads), [=](int i) {
                         bench::plain_copy(q(i), q_out(i), q_bytes, k(i), k_out(i), k_bytes, threads);
                       }});
    }
    works.push_back({"bitexact", [=](int i) {
                       bitexact_rope_params p = BITEXACT_ROPE_PARAMS_INIT;
                       p.dtype = s.dtype;
                       p.table_dtype = s.table_dtype;
                       p.pairing_in = p.pairing_out =
                           s.interleaved ? BITEXACT_PAIRING_INTERLEAVED : BITEXACT_PAIRING_HALF;
                       p.batches = 1;
                       p.tokens = p.table_rows = s.tokens;
                       p.q_heads = s.q_heads;
                       p.k_heads = s.k_heads;
                       p.head_dim = p.rotary_dim = s.head_dim;
                       p.table_width = width;
                       p.q_in = q(i);
                       p.k_in = k(i);
                       p.q_out = q_out(i);
                       p.k_out = k_out(i);
                       p.q_in_token_stride = p.q_out_token_stride = s.q_heads * s.head_dim;
                       p.k_in_token_stride = p.k_out_token_stride = s.k_heads * s.head_dim;
                       p.q_in_head_stride = p.q_out_head_stride = s.head_dim;
                       p.k_in_head_stride = p.k_out_head_stride = s.head_dim;
                       p.cos = tables;
                       p.sin = tables + (table_bytes + 255) / 256 * 256;
                       p.cos_token_stride = p.sin_token_stride = width;
                       p.cos_element_stride = p.sin_element_stride = 1;
                       bench::check_status(bitexact_fused_rope(context, &p, bench::stream()), "fused_rope");
                     }});
    report.add({std::to_string(s.tokens) + " x (" + std::to_string(s.q_heads) + "," +
                    std::to_string(s.k_heads) + ") x " + std::to_string(s.head_dim) + " " +
                    bench::dtype_name(s.dtype) + " tables " + (s.full ? "full " : "half ") +
                    bench::dtype_name(s.table_dtype) + (s.interleaved ? " interleaved" : "") +
                    (s.in_place ? " in place" : ""),
                2.0 * static_cast<double>(q_bytes + k_bytes), "copy", bench::measure(works, buffers)});
    bench::check_cuda(cudaFree(memory), "freeing");
    bench::check_cuda(cudaFree(tables), "freeing");
  }
  bitexact_context_destroy(context);
  return 0;
}
