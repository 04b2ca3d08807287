#include "report.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "bitexact.h"
#include "plain.h"

namespace bench {
namespace {

using nlohmann::ordered_json;

const char* const empty_name = "empty kernel";

bool starts_with(const std::string& text, const char* start) { return text.rfind(start, 0) == 0; }

// The fastest whose name starts so; nullptr if there is none.
const Measurement* fastest(const std::vector<Measurement>& measurements, const char* start) {
  const Measurement* best = nullptr;
  for (const Measurement& m : measurements) {
    if (starts_with(m.name, start) && (best == nullptr || m.median_us < best->median_us)) best = &m;
  }
  return best;
}

double rounded(double value) { return static_cast<double>(static_cast<int64_t>(value * 1e4 + 0.5)) / 1e4; }

ordered_json described(const Measurement& m, double bytes, const Measurement* limit) {
  ordered_json j{{"work", m.name},
                 {"median_us", rounded(m.median_us)},
                 {"p10_us", rounded(m.p10_us)},
                 {"p90_us", rounded(m.p90_us)}};
  if (bytes > 0) j["tb_per_s"] = rounded(bytes / m.median_us / 1e6);
  if (limit != nullptr) j["ratio_to_limit"] = rounded(limit->median_us / m.median_us);
  if (m.not_held > 0) j["not_held"] = m.not_held;
  return j;
}

}  // namespace

Report::Report(int argc, char** argv, const std::string& title) : title_(title) {
  CLI::App app(title);
  app.add_option("--json", options_.json, "write all numbers into this file");
  app.add_option("--filter", options_.filter, "only shapes whose name holds this");
  app.add_option("--seconds", options_.seconds,
                 "of replays a shape; 0 launches each work once, for a profiler")
      ->check(CLI::NonNegativeNumber);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    std::exit(app.exit(error));
  }
  std::printf("%s\n%-60s %-22s %9s %9s %8s %7s %7s %7s %7s %5s\n", title.c_str(), "shape", "limit",
              "limit us", "bitexact", "p10-p90", "TB/s", "ratio", "memcpy", "-empty", "loose");
}

void Report::shape(const std::string& name, double bytes,
                   const std::function<std::vector<Measurement>(Rotation&)>& measure) {
  if (name != empty_name && name.find(options_.filter) == std::string::npos) return;
  ordered_json entry{{"shape", name}, {"bytes", bytes}};
  try {
    Rotation rotation{0, 0, 0};
    const std::vector<Measurement> measurements = measure(rotation);
    if (rotation.sets > 0) {
      entry["sets"] = rotation.sets;
      entry["launches"] = rotation.launches;
      entry["rounds"] = rotation.rounds;
    }
    for (const Measurement& m : measurements) {
      entry["works"].push_back(described(m, bytes, fastest(measurements, "plain")));
      if (m.name == empty_name) empty_us_ = m.median_us;
    }
    print(name, bytes, measurements);
  } catch (const std::exception& error) {
    cudaGetLastError();  // what one shape left behind is not the next one's fault
    ++failures_;
    entry["error"] = error.what();
    std::printf("%-60s FAILED: %s\n", name.c_str(), error.what());
  }
  std::fflush(stdout);
  shapes_.push_back(entry.dump());
  write();
}

void Report::empty_kernel() {
  shape(empty_name, 0, [this](Rotation& rotation) {
    rotation = {1, 4000, 0};
    const std::vector<Work> works{{empty_name, [](int) { bench::empty_kernel(); }}};
    bench::measure(works, rotation, options_.seconds);  // wakes the device up
    return bench::measure(works, rotation, options_.seconds);
  });
}

void Report::print(const std::string& name, double bytes, const std::vector<Measurement>& measurements) {
  const Measurement *const limit = fastest(measurements, "plain"), *const ours =
                                                                       fastest(measurements, "bitexact");
  int not_held = 0;
  for (const Measurement& m : measurements) not_held += m.not_held;
  if (limit == nullptr || ours == nullptr) {
    for (const Measurement& m : measurements)
      std::printf("%-60s %-22s %9.3f us, %.3f to %.3f\n", name.c_str(), m.name.c_str(), m.median_us, m.p10_us,
                  m.p90_us);
    return;
  }
  const Measurement* const copy = fastest(measurements, "cudaMemcpy");
  std::printf("%-60s %-22s %9.2f %9.2f %3.1f-%-4.1f%% %7.2f %7.3f %7.3f %7.2f %5d\n", name.c_str(),
              limit->name.c_str(), limit->median_us, ours->median_us,
              100 * (ours->p10_us / ours->median_us - 1), 100 * (ours->p90_us / ours->median_us - 1),
              bytes / ours->median_us / 1e6, limit->median_us / ours->median_us,
              copy == nullptr ? 0 : copy->median_us / ours->median_us, ours->median_us - empty_us_, not_held);
}

// After each shape, so that a program that is stopped leaves what it has.
void Report::write() const {
  if (options_.json.empty()) return;
  cudaDeviceProp device;
  check_cuda(cudaGetDeviceProperties(&device, 0), "reading device properties");
  int driver = 0, runtime = 0;
  check_cuda(cudaDriverGetVersion(&driver), "reading the driver version");
  check_cuda(cudaRuntimeGetVersion(&runtime), "reading the runtime version");
  const ordered_json head{{"title", title_},  {"gpu", device.name}, {"cache_bytes", device.l2CacheSize},
                          {"driver", driver}, {"runtime", runtime}, {"build", bitexact_build_info()}};
  std::ofstream out(options_.json);
  std::string text = head.dump();
  text.pop_back();
  out << text << ",\n\"shapes\": [";
  for (size_t i = 0; i < shapes_.size(); ++i) out << (i == 0 ? "\n" : ",\n") << shapes_[i];
  out << "\n]}\n";
  if (!out.flush()) throw std::runtime_error("cannot write " + options_.json);
}

}  // namespace bench
