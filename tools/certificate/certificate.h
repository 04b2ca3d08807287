// Certificates of many kernels of one device: what was run, and what came of it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "bitexact.h"

namespace bitexact_certificate {

enum class Verdict { not_run, unsupported, incomplete, failed, equal };

// Of one exhaustive sweep: elements that differ in each of its 32 x 32 tiles, or not_swept.
constexpr int tiles_a_side = 32, tiles = tiles_a_side * tiles_a_side;
constexpr int64_t not_swept = -1;
using Map = std::vector<int64_t>;

struct Kernel {
  int64_t index = 0;
  bitexact_gate_report facts{};      // before the certificate
  std::string name, numerics, form;  // the name is numerics and form
  bitexact_certify_report report{};
  std::vector<Map> maps;
  double seconds = 0;
  std::string refusal;  // the library's words, if it refused
  bool has_golden = false;
  uint64_t golden = 0;

  Verdict verdict() const;
  bool other_digest() const;  // complete, and its digest is not PyTorch's
  bool complete() const { return report.parts_total > 0 && report.parts_done == report.parts_total; }
};

struct Certificate {
  std::string device, selection, started, build, golden_origin;
  bitexact_context_info facts{};
  std::vector<Kernel> kernels;
  bool quick = false, cancelled = false, finished = false;
  std::string error;  // of the run as a whole
  double seconds = 0;

  int64_t count(Verdict verdict) const;
  // The only one that proves anything: every kernel asked for that this device has was swept to the end.
  bool proven() const;
  std::string headline() const;
};

const char* text_of(Verdict verdict);
std::string dtype_name(int32_t dtype);
std::string operation_name(int32_t operation);
std::string hex(uint64_t bits);
std::string digest_text(uint64_t digest);  // all 16 digits, as the captured ones are written

// Axes of the maps of a kernel: what its exhaustive sweeps are over, in their order.
struct Axes {
  std::string name, rows, columns;
};
std::vector<Axes> axes_of(const Kernel& kernel);

struct Selection {
  std::string operation, dtype;  // empty: all
};

// Every kernel of the library that is selected, not yet run.
std::vector<Kernel> list_kernels(bitexact_context* context, const Selection& selection);

// Runs one kernel's certificate, or a quick look at it. Stops early where `stop` says so.
void run(bitexact_context* context, bool quick, const std::function<bool()>& stop, Kernel& kernel);

std::string to_json(const Certificate& certificate);
std::string to_page(const Certificate& certificate);

}  // namespace bitexact_certificate
