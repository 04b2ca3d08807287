// Runs the cases through the C interface: run_c CASES THROUGH DEVICE [LIBRARY]
//   THROUGH  linked (the functions of the library linked with) or table (that of LIBRARY, found by dlopen)
//   DEVICE   host, fake (a CUDA device whose memory is host memory) or cuda
#include <dlfcn.h>

#include <cinttypes>
#include <cstdio>
#include <iostream>

#include "case.h"
#ifdef BITEXACT_CONFORMANCE_CUDA
#include <cuda_runtime_api.h>
#endif

using namespace conformance;

namespace {

enum class Place { host, fake, cuda };

// The functions used, wherever they come from.
struct Functions {
  bitexact_context_create_fn create;
  bitexact_context_destroy_fn destroy;
  bitexact_context_get_info_fn info;
  bitexact_fused_rope_fn rope;
  bitexact_fused_rope_can_use_fn rope_can_use;
  bitexact_fused_silu_mul_fn silu_mul;
  bitexact_fused_silu_mul_can_use_fn silu_mul_can_use;
  bitexact_last_error_fn last_error;
};

Functions linked() {
  return {bitexact_context_create,         bitexact_context_destroy,
          bitexact_context_get_info,       bitexact_fused_rope,
          bitexact_fused_rope_can_use,     bitexact_fused_silu_mul,
          bitexact_fused_silu_mul_can_use, bitexact_last_error};
}

Functions table(const char* path) {
  void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(dlerror());
  const auto get = reinterpret_cast<bitexact_get_api_fn>(dlsym(library, "bitexact_get_api"));
  const bitexact_api* api = nullptr;
  if (get == nullptr || get(BITEXACT_API_VERSION, &api) != BITEXACT_STATUS_OK) {
    throw std::runtime_error("no function table of this version");
  }
  return {api->context_create,     api->context_destroy, api->context_get_info,       api->fused_rope,
          api->fused_rope_can_use, api->fused_silu_mul,  api->fused_silu_mul_can_use, api->last_error};
}

void must(bool holds, const std::string& text) {
  if (!holds) throw std::runtime_error(text);
}

// Memory of the device, filled from and read back to host memory.
class Memory {
 public:
  Memory(const std::vector<uint8_t>& bytes, Place place) : bytes_(bytes), place_(place) {
    base_ = bytes_.data();
#ifdef BITEXACT_CONFORMANCE_CUDA
    if (place != Place::cuda) return;
    void* memory = nullptr;
    must(cudaMalloc(&memory, bytes.size()) == cudaSuccess, "no device memory");
    base_ = static_cast<uint8_t*>(memory);
    must(cudaMemcpy(base_, bytes.data(), bytes.size(), cudaMemcpyHostToDevice) == cudaSuccess &&
             cudaDeviceSynchronize() == cudaSuccess,
         "no copy to the device");
#endif
  }
  ~Memory() {
#ifdef BITEXACT_CONFORMANCE_CUDA
    if (place_ == Place::cuda) cudaFree(base_);
#endif
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  uint8_t* base() const { return base_; }
  const std::vector<uint8_t>& read() {
#ifdef BITEXACT_CONFORMANCE_CUDA
    if (place_ == Place::cuda) {
      must(cudaDeviceSynchronize() == cudaSuccess &&
               cudaMemcpy(bytes_.data(), base_, bytes_.size(), cudaMemcpyDeviceToHost) == cudaSuccess,
           "no copy from the device");
    }
#endif
    return bytes_;
  }

 private:
  std::vector<uint8_t> bytes_;
  Place place_;
  uint8_t* base_;
};

void run(const Json& c, const Functions& f, Place place) {
  const bool rope = is_rope(c);
  const std::vector<uint8_t> before = memory_of(c);
  Memory memory(before, place);
  auto rope_params = bitexact_rope_params BITEXACT_ROPE_PARAMS_INIT;
  auto silu_mul_params = bitexact_silu_mul_params BITEXACT_SILU_MUL_PARAMS_INIT;
  if (rope) {
    rope_params = params_of(c, rope_params, memory.base());
  } else {
    silu_mul_params = params_of(c, silu_mul_params, memory.base());
  }
  // A struct of the greatest size that a case may claim.
  std::vector<uint8_t> block(8192);
  if (rope) {
    std::memcpy(block.data(), &rope_params, sizeof(rope_params));
  } else {
    std::memcpy(block.data(), &silu_mul_params, sizeof(silu_mul_params));
  }
  const auto* const r = reinterpret_cast<const bitexact_rope_params*>(block.data());
  const auto* const s = reinterpret_cast<const bitexact_silu_mul_params*>(block.data());

  int32_t expected = c.at("status");
  const int32_t checked = c.value("check", expected);
  if (place != Place::host) expected = c.value("cuda", expected);
  // The fake device's expf is the host's, which the gate tells from CUDA's.
  if (place == Place::fake && c.contains("cuda")) expected = BITEXACT_STATUS_INTERNAL;
  const int32_t alone = rope ? f.rope_can_use(nullptr, r) : f.silu_mul_can_use(nullptr, s);
  must(alone == checked, "can_use gave " + std::to_string(alone) + ": " + f.last_error());
  if (c.contains("addresses")) return;

  bitexact_context_options options = BITEXACT_CONTEXT_OPTIONS_INIT;
  options.device = place == Place::host ? BITEXACT_DEVICE_HOST : 0;
  bitexact_context* context = nullptr;
  must(f.create(&options, &context) == BITEXACT_STATUS_OK, std::string("no context: ") + f.last_error());
  const int32_t status = rope ? f.rope(context, r, nullptr) : f.silu_mul(context, s, nullptr);
  const std::string text = f.last_error();
  bitexact_context_info info = BITEXACT_CONTEXT_INFO_INIT;
  const std::vector<uint8_t> after = memory.read();
  const int32_t told = f.info(context, &info);
  f.destroy(context);
  must(status == expected, "the call gave " + std::to_string(status) + ": " + text);
  must(told == BITEXACT_STATUS_OK, "get_info failed");
  if (status != BITEXACT_STATUS_OK) {
    must(after == before, "a refused call wrote");
    return;
  }
  if (c.contains("digest")) {
    char hash[17];
    std::snprintf(hash, sizeof(hash), "%016" PRIx64, digest(after));
    must(c.at("digest") == hash, std::string("wrong bytes: digest ") + hash);
  }
  must(info.position_errors == c.value("position_errors", int64_t{0}),
       "position_errors is " + std::to_string(info.position_errors));
  for (const char* key : {"bits", "first"}) {
    if (!c.contains(key)) continue;
    for (const auto& [tensor, hex] : c.at(key).items()) {
      const auto bytes = from_hex(hex);
      const size_t at = c.at("pointers").at(tensor);
      must(std::vector<uint8_t>(after.begin() + static_cast<std::ptrdiff_t>(at),
                                after.begin() + static_cast<std::ptrdiff_t>(at + bytes.size())) == bytes,
           tensor + " does not start with " + hex.get<std::string>());
    }
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 4) {
    std::cerr << "usage: run_c CASES linked|table host|fake|cuda [LIBRARY]\n";
    return 2;
  }
  const std::string through = arguments[2], where = arguments[3];
  const Place place = where == "host" ? Place::host : where == "fake" ? Place::fake : Place::cuda;
  const Functions functions = through == "table" ? table(arguments[4]) : linked();
  int failed = 0, total = 0;
  for (const Json& c : load(arguments[1])) {
    ++total;
    try {
      run(c, functions, place);
    } catch (const std::exception& error) {
      ++failed;
      std::cerr << c.at("name").get<std::string>() << ": " << error.what() << "\n";
    }
  }
  std::cout << total << " cases through " << through << " on " << where << ", " << failed << " failed\n";
  return failed == 0 && total > 0 ? 0 : 1;
}
