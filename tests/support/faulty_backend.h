// A backend that does what another one does, except where a test says otherwise.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "backend.h"
#include "status.h"

namespace bitexact_test {

class FaultyBackend : public bitexact::Backend {
 public:
  explicit FaultyBackend(std::unique_ptr<Backend> inner) : inner_(std::move(inner)) {}
  ~FaultyBackend() override {
    for (const auto& [bytes, memory] : left_) inner_->release(memory, nullptr);
  }

  // Set to replace the fused kernels.
  std::function<int32_t(const bitexact::SiluMulArgs&, bitexact_stream)> fused_silu_mul;
  bool only_fast = false;  // it replaces fast ones alone
  std::function<int32_t(const bitexact::RopeArgs&, bitexact_stream)> fused_rope;
  // Set to replace the work on a certificate's parts, which then cost nothing; their probe is as ever.
  std::function<void(bitexact::Sweep, int64_t part, bitexact::Tally&)> tally;
  // Set to replace the reference and the comparison.
  std::function<int32_t(const bitexact::SiluMulArgs&, bitexact_stream)> reference_silu_mul;
  std::function<int32_t(const bitexact::RopeArgs&, bitexact_stream)> reference_rope;
  std::function<int32_t(const bitexact::CompareArgs&, bitexact::Comparison*, bitexact_stream)> comparison;
  // Non-zero: that status instead of doing the work.
  int32_t allocate_status = 0, capture_status = 0, reference_status = 0, download_status = 0;
  bool capturing = false;
  std::function<void()> before_download = [] {};
  // Memory of checks is not given back, but handed out again with what was left in it.
  bool reuses_memory = false;
  int fused_calls = 0, reference_calls = 0, allocations = 0, releases = 0;

  int32_t check_stream(bitexact_stream) override { return 0; }
  int32_t supports(const bitexact::SiluMulArgs& a) override { return inner_->supports(a); }
  bool captured_exp = true;  // false: as on a device that digests were not captured on
  bool has_captured_exp() override { return captured_exp && inner_->has_captured_exp(); }
  int32_t fused(const bitexact::SiluMulArgs& a, bitexact::SiluMulVariant variant,
                bitexact_stream stream) override {
    ++fused_calls;
    if (tally && bitexact::reference::count(a) >= bitexact::certify_inputs) return 0;
    const bool replaced = fused_silu_mul && (is_fast(variant) || !only_fast);
    return replaced ? fused_silu_mul(a, stream) : inner_->fused(a, variant, stream);
  }
  int32_t fused(const bitexact::RopeArgs& a, bitexact::RopeVariant variant, bitexact_stream stream) override {
    ++fused_calls;
    if (tally && !fused_rope && bitexact::reference::count(a) >= bitexact::certify_inputs) return 0;
    return fused_rope ? fused_rope(a, stream) : inner_->fused(a, variant, stream);
  }
  int32_t reference(const bitexact::SiluMulArgs& a, bitexact_stream stream) override {
    ++reference_calls;
    if (reference_silu_mul) return reference_silu_mul(a, stream);
    return reference_status != 0 ? injected(reference_status) : inner_->reference(a, stream);
  }
  int32_t reference(const bitexact::RopeArgs& a, bitexact_stream stream) override {
    ++reference_calls;
    if (reference_rope) return reference_rope(a, stream);
    return reference_status != 0 ? injected(reference_status) : inner_->reference(a, stream);
  }
  int32_t is_capturing(bitexact_stream stream, bool& result) override {
    if (capture_status != 0) return injected(capture_status);
    const int32_t status = inner_->is_capturing(stream, result);
    result = result || capturing;
    return status;
  }
  int32_t allocate(size_t bytes, bitexact_stream stream, void*& memory) override {
    if (allocate_status != 0) return injected(allocate_status);
    ++allocations;
    const auto left = left_.find(bytes);
    if (left != left_.end()) {
      memory = left->second;
      left_.erase(left);
      return 0;
    }
    const int32_t status = inner_->allocate(bytes, stream, memory);
    if (status == 0) sizes_[memory] = bytes;
    return status;
  }
  void release(void* memory, bitexact_stream stream) override {
    ++releases;
    if (reuses_memory) {
      left_.emplace(sizes_[memory], memory);
    } else {
      inner_->release(memory, stream);
    }
  }
  int32_t upload(void* to, const void* from, size_t bytes, bitexact_stream stream) override {
    return inner_->upload(to, from, bytes, stream);
  }
  int32_t fill(void* to, unsigned char byte, size_t bytes, bitexact_stream stream) override {
    return tally && bytes >= bitexact::certify_inputs ? 0 : inner_->fill(to, byte, bytes, stream);
  }
  int32_t compare(const bitexact::CompareArgs& a, bitexact::Comparison* result,
                  bitexact_stream stream) override {
    return comparison ? comparison(a, result, stream) : inner_->compare(a, result, stream);
  }
  int32_t download(void* to, const void* from, size_t bytes, bitexact_stream stream) override {
    before_download();
    return download_status != 0 ? injected(download_status) : inner_->download(to, from, bytes, stream);
  }
  int32_t certify_fill(const bitexact::CertifyArgs<bitexact::SiluMulArgs>& a,
                       bitexact_stream stream) override {
    return tally ? 0 : inner_->certify_fill(a, stream);
  }
  int32_t certify_fill(const bitexact::CertifyArgs<bitexact::RopeArgs>& a, bitexact_stream stream) override {
    return tally ? 0 : inner_->certify_fill(a, stream);
  }
  int32_t certify_tally(const bitexact::CertifyArgs<bitexact::SiluMulArgs>& a, uint64_t first_key,
                        bitexact::Tally* to, bitexact_stream stream) override {
    return tally ? (tally(a.sweep, a.part, *to), 0) : inner_->certify_tally(a, first_key, to, stream);
  }
  int32_t certify_tally(const bitexact::CertifyArgs<bitexact::RopeArgs>& a, uint64_t first_key,
                        bitexact::Tally* to, bitexact_stream stream) override {
    return tally ? (tally(a.sweep, a.part, *to), 0) : inner_->certify_tally(a, first_key, to, stream);
  }
  unsigned long long* position_errors() override { return inner_->position_errors(); }
  int32_t read_position_errors(int64_t& count) override { return inner_->read_position_errors(count); }
  void describe(bitexact_context_info& info) const override { inner_->describe(info); }
  int32_t enter(bool& pushed) override { return inner_->enter(pushed); }
  void leave() override { inner_->leave(); }

 private:
  static int32_t injected(int32_t status) { return bitexact::fail(status, "injected by a test"); }

  std::unique_ptr<Backend> inner_;
  std::map<void*, size_t> sizes_;
  std::multimap<size_t, void*> left_;  // freed, contents kept
};

}  // namespace bitexact_test
