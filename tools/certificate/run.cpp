#include <algorithm>
#include <chrono>
#include <stdexcept>

#include "certificate.h"
#include "golden_digests.h"

namespace bitexact_certificate {
namespace {

// How long one call may take, so that progress shows and an interrupt is heeded.
constexpr double call_seconds = 0.2;
constexpr int64_t quick_parts = 3;

double now() {
  using namespace std::chrono;
  return duration<double>(steady_clock::now().time_since_epoch()).count();
}

// Throws with the library's own words.
void check(int32_t status) {
  if (status != BITEXACT_STATUS_OK) throw std::runtime_error(bitexact_last_error());
}

// "fused_rope bfloat16 table=bfloat16 compute=float32 separate | half vec16": the words of the form are the
// last two, or for fused_silu_mul the last.
void split_name(Kernel& kernel) {
  size_t at = kernel.name.rfind(' ');
  if (kernel.facts.operation == BITEXACT_OPERATION_FUSED_ROPE) at = kernel.name.rfind(' ', at - 1);
  kernel.numerics = kernel.name.substr(0, at);
  kernel.form = kernel.name.substr(at + 1);
}

int32_t add_parts(bitexact_context* context, int64_t count, Kernel& kernel) {
  bitexact_certify_params params = BITEXACT_CERTIFY_PARAMS_INIT;
  params.kernel_index = kernel.index;
  params.first_part = kernel.report.parts_done;
  params.part_count = count;
  return bitexact_certify(context, &params, &kernel.report);
}

// The exhaustive sweeps come last, a part a tile.
void note_tiles(int64_t first, int64_t count, int64_t differing, Kernel& kernel) {
  const int64_t sweeps = static_cast<int64_t>(kernel.maps.size());
  const int64_t before = kernel.report.parts_total - sweeps * tiles;
  for (int64_t part = std::max(first, before); part < first + count; ++part) {
    kernel.maps[static_cast<size_t>((part - before) / tiles)][static_cast<size_t>((part - before) % tiles)] =
        differing;
  }
}

// Some part of [first, first + count) differs: goes back and runs them one by one, to see which.
void locate(bitexact_context* context, const bitexact_certify_report& before, int64_t count, Kernel& kernel) {
  kernel.report = before;
  for (int64_t i = 0; i < count; ++i) {
    const bitexact_certify_report last = kernel.report;
    check(add_parts(context, 1, kernel));
    // Another digest than PyTorch's counts as one more, but lies in no tile.
    const int64_t differing = kernel.report.mismatches - last.mismatches - (kernel.other_digest() ? 1 : 0);
    note_tiles(last.parts_done, 1, differing, kernel);
  }
}

}  // namespace

std::vector<Kernel> list_kernels(bitexact_context* context, const Selection& selection) {
  std::vector<Kernel> kernels;
  int64_t count = 0;
  check(bitexact_gate_count(context, &count));
  for (int64_t index = 0; index < count; ++index) {
    Kernel kernel;
    kernel.index = index;
    bitexact_gate_report_init(&kernel.facts);
    bitexact_certify_report_init(&kernel.report);
    check(bitexact_gate_get(context, index, &kernel.facts));
    kernel.name = kernel.facts.kernel_name;
    split_name(kernel);
    kernel.has_golden = bitexact::golden_digest(kernel.facts, kernel.golden);
    if (!selection.operation.empty() && selection.operation != operation_name(kernel.facts.operation))
      continue;
    if (!selection.dtype.empty() && selection.dtype != dtype_name(kernel.facts.dtype)) continue;
    kernels.push_back(kernel);
  }
  return kernels;
}

void run(bitexact_context* context, bool quick, const std::function<bool()>& stop, Kernel& kernel) {
  const double start = now();
  const int32_t status = add_parts(context, 0, kernel);
  if (status == BITEXACT_STATUS_UNSUPPORTED || status == BITEXACT_STATUS_HOST_LIBM) {
    kernel.refusal = bitexact_last_error();
    return;
  }
  check(status);
  kernel.maps.assign(static_cast<size_t>(kernel.report.parts_total / tiles), Map(tiles, not_swept));
  const int64_t end = quick ? std::min(quick_parts, kernel.report.parts_total) : kernel.report.parts_total;
  int64_t count = 1;
  while (kernel.report.parts_done < end && !stop()) {
    const bitexact_certify_report before = kernel.report;
    count = std::min(count, end - before.parts_done);
    const double call_start = now();
    check(add_parts(context, count, kernel));
    if (kernel.report.mismatches != before.mismatches) {
      locate(context, before, count, kernel);
    } else {
      note_tiles(before.parts_done, count, 0, kernel);
    }
    const double a_part = (now() - call_start) / static_cast<double>(count);
    // The probe takes longer than the parts that follow it, and says nothing about them.
    count = before.parts_done == 0
                ? 1
                : std::clamp<int64_t>(static_cast<int64_t>(call_seconds / a_part), 1, tiles);
    kernel.seconds = now() - start;
  }
}

}  // namespace bitexact_certificate
