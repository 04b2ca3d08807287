// What tests of the gate on the host have in common: a context over a faulty backend, and one small call for it.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "cases.h"
#include "context.h"
#include "contexts.h"
#include "faulty_context.h"
#include "reference/reference.h"

namespace bitexact_test {

class GateFixture : public testing::Test {
 protected:
  explicit GateFixture(int32_t dtype) : dtype_(dtype) {}

  void open(int32_t policy, int32_t mode = BITEXACT_REFERENCE_BUILTIN) {
    backend_ = make_faulty(context_, BITEXACT_DEVICE_HOST, bitexact::GateOptions{policy, mode});
    ASSERT_EQ(bitexact_context_set_log(
                  context_.get(),
                  [](int32_t level, const char* text, void* user) {
                    static_cast<GateFixture*>(user)->log_.push_back(std::to_string(level) + " " + text);
                  },
                  this),
              BITEXACT_STATUS_OK);
    remake();
  }

  void remake(bool in_place = false) {
    case_ = std::make_unique<SiluMulCase>(
        make_case({dtype_, 0, 0, 1, 3, 64, 0, 0, false, in_place ? InPlace::gate : InPlace::no}, 5));
    before_ = case_->arena.bytes();
    expected_ = before_;
    bitexact_reference::silu_mul(moved(case_->params, case_->arena, expected_.data()));
  }

  int32_t call() { return bitexact_fused_silu_mul(context_.get(), &case_->params, nullptr); }
  bool right() const { return case_->arena.bytes() == expected_; }
  bool untouched() const { return case_->arena.bytes() == before_; }

  // The framework's own result, and its verdict.
  int32_t verify(int32_t* verdict, bool wrong = false) {
    std::vector<uint8_t> eager = before_;
    const auto p = moved(case_->params, case_->arena, eager.data());
    bitexact_reference::silu_mul(p);
    if (wrong) static_cast<uint16_t*>(p.out)[70] ^= 1;
    bitexact_silu_mul_reference r = BITEXACT_SILU_MUL_REFERENCE_INIT;
    r.out = p.out;
    r.out_batch_stride = p.out_batch_stride;
    r.out_row_stride = p.out_row_stride;
    return bitexact_fused_silu_mul_verify(context_.get(), &case_->params, &r, nullptr, verdict);
  }

  // Is it the caller's call, collapsed? No probe has its shape.
  static bool is_live(const bitexact::SiluMulArgs& a) { return a.cols == 3 * 64; }

  const int32_t dtype_;
  FaultyBackend* backend_ = nullptr;
  Context context_;
  std::unique_ptr<SiluMulCase> case_;
  std::vector<uint8_t> before_, expected_;
  std::vector<std::string> log_;
};

}  // namespace bitexact_test
