// fused_silu_mul against a plain kernel that reads twice and writes once.
#include <algorithm>

#include "bitexact.h"
#include "harness.h"

namespace {

struct Shape {
  int64_t rows, cols;
  int32_t dtype;
  bool packed;
};

}  // namespace

int main(int argc, char** argv) {
  bench::Report report(argc, argv, "fused_silu_mul");
  bitexact_context* context = nullptr;
  bench::check_status(bitexact_context_create(nullptr, &context), "making a context");
  const int32_t bf16 = BITEXACT_DTYPE_BFLOAT16;
  for (const Shape& s :
       {Shape{4400, 12288, bf16, false}, Shape{4400, 6144, bf16, false}, Shape{1026, 3584, bf16, false},
        Shape{16, 12288, bf16, false}, Shape{1, 14336, bf16, false}, Shape{8, 14336, bf16, false},
        Shape{256, 14336, bf16, false}, Shape{8192, 14336, bf16, false}, Shape{8192, 28672, bf16, false},
        Shape{32768, 14336, bf16, false}, Shape{4400, 12288, bf16, true}, Shape{1000, 3420, bf16, true},
        Shape{4400, 12288, BITEXACT_DTYPE_FLOAT16, false},
        Shape{4400, 12288, BITEXACT_DTYPE_FLOAT32, false}}) {
    const int64_t size = s.dtype == BITEXACT_DTYPE_FLOAT32 ? 4 : 2, bytes = s.rows * s.cols * size;
    const int64_t set = (3 * bytes + 255) / 256 * 256;
    const int buffers =
        static_cast<int>(std::max<int64_t>(2, std::min<int64_t>(64, (int64_t{600} << 20) / set + 1)));
    char* const memory = static_cast<char*>(bench::activations(static_cast<size_t>(set) * buffers, s.dtype));
    auto call = [&](int i) {
      char* const at = memory + i * set;
      bitexact_silu_mul_params p = BITEXACT_SILU_MUL_PARAMS_INIT;
      p.dtype = s.dtype;
      p.batches = 1;
      p.rows = s.rows;
      p.cols = s.cols;
      p.gate = at;
      p.up = s.packed ? at + s.cols * size : at + bytes;
      p.out = at + 2 * bytes;
      p.gate_row_stride = p.up_row_stride = s.packed ? 2 * s.cols : s.cols;
      p.out_row_stride = s.cols;
      bench::check_status(bitexact_fused_silu_mul(context, &p, bench::stream()), "fused_silu_mul");
    };
    std::vector<bench::Work> works;
    for (const int threads : {128, 512}) {
      works.push_back({"plain " + std::to_string(threads), [=](int i) {
                         char* const at = memory + i * set;
                         bench::plain_two_reads(at, at + bytes, at + 2 * bytes, bytes, threads);
                       }});
    }
    works.push_back({"bitexact", call});
    report.add({std::to_string(s.rows) + " x " + std::to_string(s.cols) + " " + bench::dtype_name(s.dtype) +
                    (s.packed ? " packed" : ""),
                3.0 * static_cast<double>(bytes), "plain", bench::measure(works, buffers)});
    bench::check_cuda(cudaFree(memory), "freeing");
  }
  bitexact_context_destroy(context);
  return 0;
}
