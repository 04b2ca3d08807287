#include "host_backend.h"

#include <cfenv>

#include <cstdlib>
#include <cstring>

#include "fused_host.h"
#include "reference.h"
#include "status.h"

namespace bitexact {
namespace {

// The calling thread's floating-point environment, set to IEEE defaults while this lives: rounding to
// nearest, subnormals kept. Callers may have changed any of it.
class DefaultEnvironment {
 public:
  DefaultEnvironment() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultEnvironment() { std::fesetenv(&saved_); }
  DefaultEnvironment(const DefaultEnvironment&) = delete;
  DefaultEnvironment& operator=(const DefaultEnvironment&) = delete;

 private:
  std::fenv_t saved_;
};

template <class Args>
int32_t fill_all(const CertifyArgs<Args>& a) {
  for (int64_t i = 0; i < certify_inputs; ++i) certify_fill(a, i);
  return BITEXACT_STATUS_OK;
}

template <class Args>
int32_t tally_all(const CertifyArgs<Args>& a, uint64_t first_key, Tally& tally) {
  const DefaultEnvironment environment;
  for (int64_t i = 0; i < certify_inputs; ++i) {
    certify_judge(a, i, [&](int which, const Judged& j) {
      const uint64_t key = first_key + static_cast<uint64_t>(i * certify_outputs(a.call) + which);
      const auto before = tally.key;
      certify_count(j, a.call.dtype, key, tally);
      if (tally.key == before) return;
      std::memcpy(tally.inputs, j.inputs, sizeof(tally.inputs));
      tally.expected = j.expected;
      tally.actual = j.actual;
    });
  }
  return BITEXACT_STATUS_OK;
}

class HostBackend final : public Backend {
 public:
  int32_t check_stream(bitexact_stream stream) override {
    if (stream == nullptr) return BITEXACT_STATUS_OK;
    return fail(BITEXACT_STATUS_INVALID_STREAM, "stream is %p with a host context; accepted: null",
                static_cast<void*>(stream));
  }

  bool has_captured_exp() override { return true; }  // supports() refuses what depends on this machine's
  int32_t supports(const SiluMulArgs& a) override {
    if (a.dtype == Dtype::float32 || a.compute_float32) {
      return fail(BITEXACT_STATUS_UNSUPPORTED,
                  "dtype or compute_dtype is FLOAT32 on the host, where expf in float32 is not proven equal "
                  "to CUDA's; "
                  "accepted: FLOAT16, BFLOAT16 with compute_dtype 0");
    }
    const DefaultEnvironment environment;  // a table is built once, for every thread
    if (silu_table(a.dtype, a.silu).proven) return BITEXACT_STATUS_OK;
    return fail(
        BITEXACT_STATUS_HOST_LIBM,
        "silu over all 65536 inputs with this machine's expf is not what CUDA gives; accepted: another libm");
  }

  int32_t fused(const SiluMulArgs& a, SiluMulVariant, bitexact_stream) override {
    const DefaultEnvironment environment;
    host_operations().silu_mul(a, silu_table(a.dtype, a.silu));
    return BITEXACT_STATUS_OK;
  }
  int32_t fused(const RopeArgs& a, RopeVariant, bitexact_stream) override {
    const DefaultEnvironment environment;
    host_operations().rope(a);
    return BITEXACT_STATUS_OK;
  }
  int32_t reference(const SiluMulArgs& a, bitexact_stream) override {
    const DefaultEnvironment environment;
    for (int64_t i = 0; i < reference::count(a); ++i) reference::silu_mul_at(a, i);
    return BITEXACT_STATUS_OK;
  }
  int32_t reference(const RopeArgs& a, bitexact_stream) override {
    const DefaultEnvironment environment;
    for (int64_t i = 0; i < reference::count(a); ++i) {
      if (reference::rope_at(a, i) && a.position_errors != nullptr) {
        __atomic_fetch_add(a.position_errors, 1, __ATOMIC_RELAXED);
      }
    }
    return BITEXACT_STATUS_OK;
  }
  int32_t is_capturing(bitexact_stream, bool& capturing) override {
    capturing = false;
    return BITEXACT_STATUS_OK;
  }

  int32_t allocate(size_t bytes, bitexact_stream, void*& memory) override {
    // A multiple of the alignment, as aligned_alloc wants it.
    memory = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (memory != nullptr) return BITEXACT_STATUS_OK;
    return fail(BITEXACT_STATUS_OUT_OF_MEMORY, "allocating %zu bytes of scratch memory", bytes);
  }
  void release(void* memory, bitexact_stream) override { std::free(memory); }
  int32_t upload(void* to, const void* from, size_t bytes, bitexact_stream) override {
    std::memcpy(to, from, bytes);
    return BITEXACT_STATUS_OK;
  }
  int32_t fill(void* to, unsigned char byte, size_t bytes, bitexact_stream) override {
    std::memset(to, byte, bytes);
    return BITEXACT_STATUS_OK;
  }
  int32_t compare(const CompareArgs& a, Comparison* result, bitexact_stream) override {
    for (int64_t i = 0; i < a.count; ++i) {
      const auto compared = reference::compare_at(a, i);
      result->digest += compared.share;
      if (compared.difference == reference::Difference::nan_payload) ++result->nan_payload_differences;
      if (compared.difference != reference::Difference::value) continue;
      ++result->mismatches;
      const uint64_t key = a.first_key + static_cast<uint64_t>(i);
      if (key >= result->key) continue;
      result->key = key;
      result->expected = compared.expected;
      result->actual = compared.actual;
    }
    return BITEXACT_STATUS_OK;
  }
  int32_t download(void* to, const void* from, size_t bytes, bitexact_stream) override {
    std::memcpy(to, from, bytes);
    return BITEXACT_STATUS_OK;
  }

  int32_t certify_fill(const CertifyArgs<SiluMulArgs>& a, bitexact_stream) override { return fill_all(a); }
  int32_t certify_fill(const CertifyArgs<RopeArgs>& a, bitexact_stream) override { return fill_all(a); }
  int32_t certify_tally(const CertifyArgs<SiluMulArgs>& a, uint64_t first_key, Tally* tally,
                        bitexact_stream) override {
    return tally_all(a, first_key, *tally);
  }
  int32_t certify_tally(const CertifyArgs<RopeArgs>& a, uint64_t first_key, Tally* tally,
                        bitexact_stream) override {
    return tally_all(a, first_key, *tally);
  }

  unsigned long long* position_errors() override { return &position_errors_; }
  int32_t read_position_errors(int64_t& count) override {
    count = static_cast<int64_t>(__atomic_load_n(&position_errors_, __ATOMIC_RELAXED));
    return BITEXACT_STATUS_OK;
  }

  void describe(bitexact_context_info& info) const override {
    info.device = BITEXACT_DEVICE_HOST;
    info.image = BITEXACT_IMAGE_HOST;
    info.device_name = "host";
  }

  int32_t enter(bool&) override { return BITEXACT_STATUS_OK; }
  void leave() override {}

 private:
  unsigned long long position_errors_ = 0;
};

}  // namespace

int32_t open_host_backend(std::unique_ptr<Backend>& backend) {
  backend = std::make_unique<HostBackend>();
  return BITEXACT_STATUS_OK;
}

}  // namespace bitexact
