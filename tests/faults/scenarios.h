// What a caller does with the library, in steps that a fault may hit; and what must hold afterwards, whatever
// the fault was.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "cases.h"
#include "contexts.h"
#include "device.h"
#include "reference/reference.h"

namespace bitexact_test {

struct Answer {
  int32_t status, cuda_error;
  std::string text;
};
inline Answer answer_of(int32_t status) {
  return {status, bitexact_last_cuda_error(), bitexact_last_error()};
}

// A call of each operation, its memory on the device, the bytes before and the bytes it must leave. The rope
// call is in place and has positions outside its table.
template <class Case, class Params>
struct OneCall {
  explicit OneCall(Case made)
      : c(std::move(made)), memory(c.arena.bytes()), params(moved(c.params, c.arena, memory.as())) {}

  bool right() const { return memory.bytes() == expected; }
  bool untouched() const { return memory.bytes() == c.arena.bytes(); }

  Case c;
  DeviceMemory memory;
  Params params;
  std::vector<uint8_t> expected;
  int32_t status = -1;  // of the call; -1: not made
};

struct Calls {
  static RopeShape rope_shape() {
    RopeShape s = plain_rope_shape(40, 2, 1, 16);
    s.positions_dtype = BITEXACT_DTYPE_INT64;
    return s;
  }

  Calls()
      : silu(make_case({BITEXACT_DTYPE_BFLOAT16, 0, 0, 1, 3, 64, 8, 0, false, InPlace::no}, 5)),
        rope(make_case(rope_shape(), 7)) {
    silu.expected = silu.c.arena.bytes();
    bitexact_reference::silu_mul(moved(silu.c.params, silu.c.arena, silu.expected.data()));
    rope.expected = rope.c.arena.bytes();
    bitexact_reference::rope(moved(rope.c.params, rope.c.arena, rope.expected.data()), &positions_outside);
  }

  // The framework's own result for the first call, and its verdict.
  int32_t verify(bitexact_context* context, const DeviceMemory& eager) const {
    const auto out = moved(silu.c.params, silu.c.arena, eager.as());
    bitexact_silu_mul_reference r = BITEXACT_SILU_MUL_REFERENCE_INIT;
    r.out = out.out;
    r.out_batch_stride = out.out_batch_stride;
    r.out_row_stride = out.out_row_stride;
    int32_t verdict = -1;
    return bitexact_fused_silu_mul_verify(context, &silu.params, &r, nullptr, &verdict);
  }

  OneCall<SiluMulCase, bitexact_silu_mul_params> silu;
  OneCall<RopeCase, bitexact_rope_params> rope;
  int64_t positions_outside = 0;
};

enum class Act { run, verify, warm_up, info };

struct Scenario {
  const char* name;
  int32_t policy, mode;
  Act act;
};
inline std::ostream& operator<<(std::ostream& out, const Scenario& s) { return out << s.name; }

inline std::vector<Scenario> scenarios() {
  return {{"first_use", BITEXACT_POLICY_VERIFY, BITEXACT_REFERENCE_BUILTIN, Act::run},
          {"first_use_strict", BITEXACT_POLICY_STRICT, BITEXACT_REFERENCE_BUILTIN, Act::run},
          {"audit", BITEXACT_POLICY_AUDIT, BITEXACT_REFERENCE_BUILTIN, Act::run},
          {"fused", BITEXACT_POLICY_TRUST, BITEXACT_REFERENCE_BUILTIN, Act::run},
          {"reference", BITEXACT_POLICY_REFERENCE, BITEXACT_REFERENCE_BUILTIN, Act::run},
          {"first_use_caller", BITEXACT_POLICY_VERIFY, BITEXACT_REFERENCE_CALLER, Act::verify},
          {"warm_up", BITEXACT_POLICY_VERIFY, BITEXACT_REFERENCE_BUILTIN, Act::warm_up},
          {"info", BITEXACT_POLICY_VERIFY, BITEXACT_REFERENCE_BUILTIN, Act::info}};
}

// Does the scenario once on fresh memory.
inline std::vector<Answer> perform(const Scenario& s, bitexact_context* context, Calls& calls,
                                   const DeviceMemory& eager) {
  std::vector<Answer> answers;
  auto call = [&](int32_t status) {
    answers.push_back(answer_of(status));
    return status;
  };
  switch (s.act) {
    case Act::verify:
      call(calls.verify(context, eager));
      calls.silu.status = call(bitexact_fused_silu_mul(context, &calls.silu.params, nullptr));
      break;
    case Act::warm_up:
      call(bitexact_gate_warm_up(context, &calls.rope.params, &calls.silu.params, nullptr));
      break;
    case Act::info: {
      bitexact_context_info info = BITEXACT_CONTEXT_INFO_INIT;
      call(bitexact_context_get_info(context, &info));
      break;
    }
    default:
      calls.silu.status = call(bitexact_fused_silu_mul(context, &calls.silu.params, nullptr));
      calls.rope.status = call(bitexact_fused_rope(context, &calls.rope.params, nullptr));
      break;
  }
  return answers;
}

// No wrong bit: a served call left the contract's bytes; any other left those from before or, where CUDA
// decides, the contract's.
template <class Call>
void expect_no_wrong_bit(const Call& call, const std::string& what) {
  if (call.status == BITEXACT_STATUS_OK) {
    EXPECT_TRUE(call.right()) << what;
  } else if (call.status == BITEXACT_STATUS_CUDA_ERROR) {
    EXPECT_TRUE(call.right() || call.untouched()) << what;
  } else {
    EXPECT_TRUE(call.untouched()) << what << ": status " << call.status;
  }
}

inline int64_t positions_counted(bitexact_context* context) {
  bitexact_context_info info = BITEXACT_CONTEXT_INFO_INIT;
  EXPECT_EQ(bitexact_context_get_info(context, &info), BITEXACT_STATUS_OK) << bitexact_last_error();
  return info.position_errors;
}

}  // namespace bitexact_test
