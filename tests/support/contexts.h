// Contexts that free themselves, and the whole story of one kernel.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "bitexact.h"

namespace bitexact_test {

struct Destroy {
  void operator()(bitexact_context* context) const { bitexact_context_destroy(context); }
};
using Context = std::unique_ptr<bitexact_context, Destroy>;

inline Context make_context(int32_t device, int32_t policy = BITEXACT_POLICY_VERIFY,
                            int32_t mode = BITEXACT_REFERENCE_BUILTIN) {
  bitexact_context_options options = BITEXACT_CONTEXT_OPTIONS_INIT;
  options.device = device;
  options.gate_policy = policy;
  options.reference_mode = mode;
  bitexact_context* context = nullptr;
  EXPECT_EQ(bitexact_context_create(&options, &context), BITEXACT_STATUS_OK) << bitexact_last_error();
  return Context(context);
}

// Reports of all kernels that have seen a call or a check.
inline std::vector<bitexact_gate_report> stories(bitexact_context* context) {
  std::vector<bitexact_gate_report> reports;
  int64_t count = 0;
  EXPECT_EQ(bitexact_gate_count(context, &count), BITEXACT_STATUS_OK);
  for (int64_t i = 0; i < count; ++i) {
    bitexact_gate_report report = BITEXACT_GATE_REPORT_INIT;
    EXPECT_EQ(bitexact_gate_get(context, i, &report), BITEXACT_STATUS_OK);
    if (report.checks + report.fused_calls + report.reference_calls + report.declined_calls > 0) {
      reports.push_back(report);
    }
  }
  return reports;
}

inline bool is_fast(const bitexact_gate_report& report) {
  return std::string(report.kernel_name).find("_fast") != std::string::npos;
}

// Of the one kernel that has a story; where that is a declined fast one, of the one that took over.
inline bitexact_gate_report only_story(bitexact_context* context) {
  auto reports = stories(context);
  const bool handed_over = reports.size() == 2 && is_fast(reports[1]);
  if (handed_over && reports[1].state == BITEXACT_STATE_DECLINED) reports.pop_back();
  EXPECT_EQ(reports.size(), 1u);
  return reports.empty() ? bitexact_gate_report BITEXACT_GATE_REPORT_INIT : reports[0];
}

}  // namespace bitexact_test
