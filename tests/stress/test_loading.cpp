// The library as a file: loaded, let go and loaded again; two builds in one process; an exit that forgets its
// contexts. test_loading LIBRARY SECOND COMMAND
#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "bitexact.h"

namespace {

void must(bool holds, const char* text) {
  if (holds) return;
  std::fprintf(stderr, "test_loading: %s\n", text);
  std::exit(1);
}

struct Loaded {
  void* handle = nullptr;
  const bitexact_api* api = nullptr;
};

Loaded load(const char* path, int scope) {
  Loaded l;
  l.handle = dlopen(path, RTLD_NOW | scope);
  if (l.handle == nullptr) std::fprintf(stderr, "%s\n", dlerror());
  must(l.handle != nullptr, "no library");
  const auto get = reinterpret_cast<bitexact_get_api_fn>(dlsym(l.handle, "bitexact_get_api"));
  must(get != nullptr && get(BITEXACT_API_VERSION, &l.api) == BITEXACT_STATUS_OK, "no table");
  return l;
}

bitexact_context* create(const bitexact_api* api, int32_t device, int32_t policy) {
  bitexact_context_options options = BITEXACT_CONTEXT_OPTIONS_INIT;
  options.device = device;
  options.gate_policy = policy;
  bitexact_context* context = nullptr;
  must(api->context_create(&options, &context) == BITEXACT_STATUS_OK, api->last_error());
  return context;
}

// bfloat16 1.0 * silu(1.0) is 0x3f3b.
void call(const bitexact_api* api, bitexact_context* context) {
  std::vector<uint16_t> one(64, 0x3f80), out(64, 0);
  bitexact_silu_mul_params p = BITEXACT_SILU_MUL_PARAMS_INIT;
  p.dtype = BITEXACT_DTYPE_BFLOAT16;
  p.batches = p.rows = 1;
  p.cols = 64;
  p.gate = one.data();
  p.up = one.data();
  p.out = out.data();
  must(api->fused_silu_mul(context, &p, nullptr) == BITEXACT_STATUS_OK, api->last_error());
  for (const uint16_t bits : out) must(bits == 0x3f3b, "wrong bits");
}

int64_t calls_counted(const bitexact_api* api, bitexact_context* context) {
  int64_t count = 0, fused = 0;
  must(api->gate_count(context, &count) == BITEXACT_STATUS_OK, "no count");
  for (int64_t i = 0; i < count; ++i) {
    bitexact_gate_report report = BITEXACT_GATE_REPORT_INIT;
    must(api->gate_get(context, i, &report) == BITEXACT_STATUS_OK, "no report");
    fused += report.fused_calls;
  }
  return fused;
}

void reload(const char* path) {
  const bitexact_api* first = nullptr;
  for (int i = 0; i < 200; ++i) {
    const Loaded l = load(path, i % 2 == 0 ? RTLD_LOCAL : RTLD_GLOBAL);
    if (first == nullptr) first = l.api;
    must(l.api == first, "the table moved: the library was unloaded");
    bitexact_context* const context = create(l.api, BITEXACT_DEVICE_HOST, BITEXACT_POLICY_TRUST);
    call(l.api, context);
    must(dlclose(l.handle) == 0, "dlclose failed");
    // The library stays for those who still hold something of it.
    call(l.api, context);
    l.api->context_destroy(context);
  }
}

void two_builds(const char* path, const char* second) {
  for (const int scope : {RTLD_LOCAL, RTLD_GLOBAL}) {
    const Loaded a = load(path, scope), b = load(second, scope);
    must(a.api != b.api, "both are one library");
    must(a.api->fused_silu_mul != b.api->fused_silu_mul, "one build's functions serve both");
    bitexact_context* const host_a = create(a.api, BITEXACT_DEVICE_HOST, BITEXACT_POLICY_VERIFY);
    bitexact_context* const host_b = create(b.api, BITEXACT_DEVICE_HOST, BITEXACT_POLICY_VERIFY);
    // The second build has a CUDA device, though a fake one; the first sees nothing of it.
    bitexact_context* const cuda_b = create(b.api, 0, BITEXACT_POLICY_VERIFY);
    call(a.api, host_a);
    must(calls_counted(a.api, host_a) == 1 && calls_counted(b.api, host_b) == 0, "counters are shared");
    call(b.api, host_b);
    call(b.api, cuda_b);
    // Errors are told by the library that met them.
    must(a.api->context_get_info(nullptr, nullptr) != BITEXACT_STATUS_OK, "null was taken");
    const char* const told = a.api->last_error();
    must(std::strstr(told, "context") != nullptr, "no text");
    must(b.api->last_error() != told, "the text is shared");
    a.api->context_destroy(host_a);
    call(b.api, host_b);
    call(b.api, cuda_b);
    b.api->context_destroy(host_b);
    b.api->context_destroy(cuda_b);
  }
}

// Exits in each way that there is, contexts and all.
void forget(const char* path, const char* second, const char* how) {
  for (const char* library : {path, second}) {
    const Loaded l = load(library, RTLD_LOCAL);
    call(l.api, create(l.api, BITEXACT_DEVICE_HOST, BITEXACT_POLICY_VERIFY));
    if (library == second) call(l.api, create(l.api, 0, BITEXACT_POLICY_VERIFY));
    dlclose(l.handle);
  }
  if (std::strcmp(how, "exit") == 0) std::exit(0);
  if (std::strcmp(how, "quick_exit") == 0) std::quick_exit(0);
  if (std::strcmp(how, "thread") == 0) std::thread([] { std::exit(0); }).join();
  // Destroyed after main, by a handler that was registered before the library was loaded.
}

const bitexact_api* late_api = nullptr;
bitexact_context* late_context = nullptr;

}  // namespace

int main(int count, char** arguments) {
  must(count >= 4, "usage: test_loading LIBRARY SECOND reload|two_builds|exit|quick_exit|thread|return|late");
  const char* const command = arguments[3];
  if (std::strcmp(command, "reload") == 0) {
    reload(arguments[1]);
  } else if (std::strcmp(command, "two_builds") == 0) {
    two_builds(arguments[1], arguments[2]);
  } else if (std::strcmp(command, "late") == 0) {
    std::atexit([] {
      call(late_api, late_context);
      late_api->context_destroy(late_context);
    });
    late_api = load(arguments[1], RTLD_LOCAL).api;
    late_context = create(late_api, BITEXACT_DEVICE_HOST, BITEXACT_POLICY_VERIFY);
  } else {
    forget(arguments[1], arguments[2], command);
  }
  return 0;
}
