// fused_silu_mul against a plain kernel that reads twice and writes once in the same layout.
#include <cstdio>

#include "bitexact.h"
#include "inputs.h"
#include "plain.h"
#include "report.h"

namespace {

constexpr int32_t bf16 = BITEXACT_DTYPE_BFLOAT16, f16 = BITEXACT_DTYPE_FLOAT16, f32 = BITEXACT_DTYPE_FLOAT32;
enum class Form { separate, packed, in_place };  // in place: out is up

struct Shape {
  const char* model;
  int64_t rows, cols;
  int32_t dtype = bf16;
  Form form = Form::separate;
};

const Shape shapes[] = {
    {"Ideogram-4", 4400, 12288},
    {"Ideogram-4", 4400, 12288, bf16, Form::packed},
    {"Ideogram-4", 4400, 12288, bf16, Form::in_place},
    {"Llama-3 8B", 16, 14336, bf16, Form::in_place},
    {"Ideogram-4", 4400, 12288, f16},
    {"Ideogram-4", 4400, 12288, f32},
    {"Ideogram-4", 4400, 6144},
    {"Flux", 4608, 12288},
    {"video", 32768, 14336},
    {"video", 118800, 12288},
    {"Llama-3 8B", 1, 14336},
    {"Llama-3 8B", 16, 14336},
    {"Llama-3 8B", 256, 14336},
    {"Llama-3 8B", 8192, 14336},
    {"Llama-3 8B", 1, 14336, bf16, Form::packed},
    {"Llama-3 8B", 16, 14336, bf16, Form::packed},
    {"Llama-3 8B", 256, 14336, bf16, Form::packed},
    {"Llama-3 8B", 8192, 14336, bf16, Form::packed},
    {"Llama-3 8B", 1, 14336, f16},
    {"Llama-3 8B", 16, 14336, f16},
    {"Llama-3 8B", 1, 14336, f32},
    {"Llama-3 8B", 16, 14336, f32},
    {"Llama-3 70B", 1, 28672},
    {"Llama-3 70B", 16, 28672},
    {"Llama-3 70B", 256, 28672},
    {"Llama-3 70B", 8192, 28672},
    {"Qwen3", 1, 17408},
    {"Qwen3", 16, 17408},
    {"Qwen3", 256, 17408},
    {"gpt-oss", 16, 2880},
    {"gpt-oss", 8192, 2880},
    {"small", 8, 12288},
    {"small", 16, 12288},
    {"small", 64, 12288},
    {"odd", 1026, 3584},
    {"odd", 1000, 3420, bf16, Form::packed},
    {"odd", 1000, 3419, bf16, Form::packed},
    {"odd", 255, 4097},
    {"odd", 77, 1023, f32},
};

std::string name(const Shape& s) {
  const char* const forms[] = {"", " packed", " in place"};
  return std::string(s.model) + " " + std::to_string(s.rows) + " x " + std::to_string(s.cols) + " " +
         bench::dtype_name(s.dtype) + forms[static_cast<int>(s.form)];
}

// From one tensor of a set to the next.
int64_t tensor_bytes(const Shape& s) {
  return (s.rows * s.cols * bench::dtype_bytes(s.dtype) + 255) / 256 * 256;
}

struct Set {
  bench::Join join;
  bitexact_silu_mul_params params;
};
Set set_at(char* at, const Shape& s) {
  const int64_t size = bench::dtype_bytes(s.dtype), row = s.cols * size, bytes = tensor_bytes(s);
  const bool packed = s.form == Form::packed;
  Set set{{{at, packed ? 2 * row : row},
           {packed ? at + row : at + bytes, packed ? 2 * row : row},
           {s.form == Form::in_place ? at + bytes : at + 2 * bytes, row},
           s.rows,
           row},
          BITEXACT_SILU_MUL_PARAMS_INIT};
  bitexact_silu_mul_params& p = set.params;
  p.dtype = s.dtype;
  p.batches = 1;
  p.rows = s.rows;
  p.cols = s.cols;
  p.gate = set.join.a.data;
  p.up = set.join.b.data;
  p.out = set.join.out.data;
  p.gate_row_stride = set.join.a.pitch / size;
  p.up_row_stride = set.join.b.pitch / size;
  p.out_row_stride = set.join.out.pitch / size;
  return set;
}

std::vector<bench::Measurement> measure(const Shape& s, bench::Context& context, double seconds,
                                        bench::Rotation& rotation) {
  const int64_t bytes = tensor_bytes(s), set_bytes = (s.form == Form::in_place ? 2 : 3) * bytes;
  rotation = bench::rotation(set_bytes, 3 * bytes);
  const bench::Memory memory(set_bytes * rotation.sets);
  bench::fill_activations(memory.data(), set_bytes * rotation.sets, s.dtype);
  auto at = [&](int set) { return memory.data() + set * set_bytes; };
  if (s.form == Form::in_place) {
    for (int set = 0; set < rotation.sets; ++set) bench::fill_gates_of_one(at(set), bytes);
  }
  std::vector<bench::Work> works = bench::plain_joins([&](int set) { return set_at(at(set), s).join; });
  if (bytes > 32 << 20 && s.form != Form::in_place) works.push_back(bench::memory_copy(at, set_bytes / 2));
  works.push_back({"bitexact", [&](int set) {
                     const bitexact_silu_mul_params p = set_at(at(set), s).params;
                     bench::check_status(bitexact_fused_silu_mul(context.get(), &p, bench::stream()),
                                         "fused_silu_mul");
                   }});
  return bench::measure(works, rotation, seconds, context);
}

}  // namespace

int main(int argc, char** argv) try {
  bench::Report report(argc, argv, "fused_silu_mul");
  bench::Context context;
  report.empty_kernel();
  for (const Shape& s : shapes) {
    report.shape(
        name(s), 3.0 * static_cast<double>(s.rows * s.cols * bench::dtype_bytes(s.dtype)),
        [&](bench::Rotation& rotation) { return measure(s, context, report.options().seconds, rotation); });
  }
  return report.exit_code();
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
