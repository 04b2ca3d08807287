// Proves on the device at hand that the shipped kernels give the bits of the chains they replace, and writes
// what was swept as JSON and as a page.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <exception>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>

#include "certificate.h"
#include "golden_digests.h"

namespace bitexact_certificate {
namespace {

volatile std::sig_atomic_t interrupted = 0;

struct Options {
  std::string device = "0", json, html;
  Selection selection;
  bool quick = false;
};

struct Destroy {
  void operator()(bitexact_context* context) const { bitexact_context_destroy(context); }
};
using Context = std::unique_ptr<bitexact_context, Destroy>;

Context make_context(const std::string& device) {
  bitexact_context_options options = BITEXACT_CONTEXT_OPTIONS_INIT;
  options.device = device == "host" ? BITEXACT_DEVICE_HOST : std::stoi(device);
  bitexact_context* context = nullptr;
  if (bitexact_context_create(&options, &context) != BITEXACT_STATUS_OK) {
    throw std::runtime_error(bitexact_last_error());
  }
  return Context(context);
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S UTC", std::gmtime(&now));
  return text;
}

std::string describe(const Options& options) {
  const std::string operation = options.selection.operation, dtype = options.selection.dtype;
  if (operation.empty() && dtype.empty()) return "every kernel";
  return "kernels of " + (operation.empty() ? "every operation" : operation) + ", " +
         (dtype.empty() ? "every dtype" : dtype);
}

void write(const std::string& path, const std::string& text) {
  if (path.empty()) return;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) throw std::runtime_error("cannot write " + path);
}

void write_all(const Options& options, const Certificate& certificate) {
  write(options.json, to_json(certificate));
  write(options.html, to_page(certificate));
}

void show_progress(const Certificate& c, size_t done) {
  static const bool terminal = isatty(2) != 0;
  if (!terminal && done % 100 != 0 && done != c.kernels.size()) return;
  std::fprintf(stderr, "%s%zu of %zu kernels, %.1f s, %" PRId64 " differ%s", terminal ? "\r" : "", done,
               c.kernels.size(), c.seconds, c.count(Verdict::failed), terminal ? "\033[K" : "\n");
}

void sweep(const Options& options, bitexact_context* context, Certificate& c) {
  const auto start = std::chrono::steady_clock::now();
  auto stop = [] { return interrupted != 0; };
  for (size_t i = 0; i < c.kernels.size() && !stop(); ++i) {
    run(context, options.quick, stop, c.kernels[i]);
    c.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    show_progress(c, i + 1);
  }
  c.cancelled = stop();
  c.finished = !c.cancelled;
}

int certify(const Options& options) {
  Certificate c;
  c.quick = options.quick;
  c.selection = describe(options);
  c.started = utc_now();
  c.build = bitexact_build_info();
  c.golden_origin = bitexact::golden_origin;
  write_all(options, c);  // whatever ends this program early, no older certificate stays behind
  try {
    const Context context = make_context(options.device);
    bitexact_context_info_init(&c.facts);
    if (bitexact_context_get_info(context.get(), &c.facts) != BITEXACT_STATUS_OK) {
      throw std::runtime_error(bitexact_last_error());
    }
    c.device = c.facts.device_name;
    c.facts.device_name = nullptr;  // it goes with the context
    c.kernels = list_kernels(context.get(), options.selection);
    if (c.kernels.empty()) throw std::runtime_error("no kernel is selected");
    sweep(options, context.get(), c);
  } catch (const std::exception& error) {
    c.error = error.what();
  }
  write_all(options, c);
  std::fprintf(stderr, "\n");
  if (!c.error.empty()) std::fprintf(stderr, "certify: %s\n", c.error.c_str());
  for (const Kernel& k : c.kernels) {
    if (k.verdict() == Verdict::failed) {
      std::fprintf(stderr, "differs: %s: %" PRId64 " elements\n", k.name.c_str(), k.report.mismatches);
    }
  }
  std::printf("%s\n%s on %s: %" PRId64 " kernels equal, %" PRId64 " differ, %" PRId64
              " not supported, %" PRId64 " not swept to the end, %.1f s\n",
              c.headline().c_str(), c.selection.c_str(), c.device.c_str(), c.count(Verdict::equal),
              c.count(Verdict::failed), c.count(Verdict::unsupported),
              c.count(Verdict::incomplete) + c.count(Verdict::not_run), c.seconds);
  if (c.cancelled) return 130;
  return c.proven() || (c.quick && c.finished && c.count(Verdict::failed) == 0) ? 0 : 1;
}

}  // namespace
}  // namespace bitexact_certificate

int main(int argc, char** argv) {
  using namespace bitexact_certificate;
  CLI::App app("Sweeps the shipped kernels over whole input domains on one device, and compares every bit");
  Options options;
  app.add_option("--device", options.device, "CUDA ordinal, or host")
      ->check(CLI::IsMember({"host"}) | CLI::NonNegativeNumber);
  app.add_option("--operation", options.selection.operation, "only this operation")
      ->check(CLI::IsMember({"fused_rope", "fused_silu_mul"}));
  app.add_option("--dtype", options.selection.dtype, "only tensors of this dtype")
      ->check(CLI::IsMember({"bfloat16", "float16", "float32"}));
  app.add_flag("--quick", options.quick, "the first parts of each kernel alone: a look, not a certificate");
  app.add_option("--json", options.json, "write the certificate here");
  app.add_option("--html", options.html, "write a page for people here");
  for (CLI::Option* option : app.get_options()) option->take_last();
  CLI11_PARSE(app, argc, argv);
  std::signal(SIGINT, [](int) { interrupted = 1; });
  std::signal(SIGTERM, [](int) { interrupted = 1; });
  try {
    return certify(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "certify: %s\n", error.what());
    return 1;
  }
}
