#include "demo_run.h"

#include <bitset>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <map>
#include <stdexcept>

namespace bitexact_demo {
namespace {

using bitexact_golden::Backend;
using bitexact_golden::Case;

constexpr int64_t size = 2;  // of a bfloat16: the models of the capture run in no other dtype

std::string shape_of(const Case& c) {
  char shape[96];
  if (c.operation == BITEXACT_OPERATION_FUSED_ROPE) {
    std::snprintf(shape, sizeof(shape), "%" PRId64 "x%" PRId64 "x(%" PRId64 "+%" PRId64 ")x%" PRId64,
                  c.rope.batches, c.rope.tokens, c.rope.q_heads, c.rope.k_heads, c.rope.head_dim);
  } else {
    std::snprintf(shape, sizeof(shape), "%" PRId64 "x%" PRId64 "x%" PRId64, c.silu_mul.batches,
                  c.silu_mul.rows, c.silu_mul.cols);
  }
  return shape;
}

uint16_t element(const std::vector<uint8_t>& bytes, size_t index) {
  uint16_t bits;
  std::memcpy(&bits, bytes.data() + index * size, size);
  return bits;
}

// The one kernel that has served a call in this context.
bitexact_gate_report story(bitexact_context* context) {
  int64_t count = 0;
  check(bitexact_gate_count(context, &count));
  for (int64_t i = 0; i < count; ++i) {
    bitexact_gate_report report = BITEXACT_GATE_REPORT_INIT;
    check(bitexact_gate_get(context, i, &report));
    if (report.fused_calls + report.reference_calls > 0) return report;
  }
  throw std::runtime_error("no kernel reports a call");
}

std::string verdict_of(const bitexact_gate_report& report) {
  if (report.reason == BITEXACT_REASON_POLICY) {
    return report.fused_calls > 0 ? "not asked: fused" : "not asked: reference";
  }
  if (report.state == BITEXACT_STATE_ACCEPTED)
    return "accepted, " + std::to_string(report.compared) + " compared";
  return report.state == BITEXACT_STATE_DECLINED ? "DECLINED" : "UNDECIDED";
}

// Backend functions of the device, and what they saw.
struct Watched {
  const Device& device;
  bitexact_context* context;
  double seconds = 0, bytes = 0;
  std::map<const void*, std::vector<uint8_t>> downloaded;  // by address on the device
  std::map<std::string, const void*> outputs;

  void time(const std::function<void()>& call) {
    call();  // the first one includes the gate's check
    seconds = device.seconds(call);
  }

  Backend backend() {
    Backend b;
    b.allocate = device.allocate;
    b.release = device.release;
    b.upload = [this](void* to, const void* from, size_t count) {
      device.upload(to, from, count);
      bytes += static_cast<double>(count);  // a call reads each input once and writes each output once
    };
    b.download = [this](void* to, const void* from, size_t count) {
      device.download(to, from, count);
      const auto* begin = static_cast<const uint8_t*>(to);
      downloaded[from].assign(begin, begin + count);
    };
    b.rope = [this](const bitexact_rope_params& p) {
      outputs = {{"q_out", p.q_out}, {"k_out", p.k_out}};
      time([&] { check(bitexact_fused_rope(context, &p, nullptr)); });
    };
    b.silu_mul = [this](const bitexact_silu_mul_params& p) {
      outputs = {{"out", p.out}};
      time([&] { check(bitexact_fused_silu_mul(context, &p, nullptr)); });
    };
    return b;
  }
};

void compare(const Case& c, const Watched& watched, Result& result) {
  for (const auto& [name, expected] : c.outputs) {
    const std::vector<uint8_t>& bytes = watched.downloaded.at(watched.outputs.at(name));
    const std::vector<uint64_t>& bits = expected.stretches.at(0).bits;
    if (bits.size() * size != bytes.size())
      throw std::runtime_error("the capture does not hold all of " + name);
    result.values += bits.size();
    for (size_t i = 0; i < bits.size(); ++i) {
      result.differing_bits += std::bitset<64>(element(bytes, i) ^ bits[i]).count();
    }
    if (name == "k_out") continue;  // the first values shown are q's
    for (size_t i = 0; i < result.first.size(); ++i) result.first[i] = element(bytes, i);
  }
}

}  // namespace

void check(int32_t status) {
  if (status == BITEXACT_STATUS_OK) return;
  throw std::runtime_error(std::string(bitexact_status_string(status)) + ": " + bitexact_last_error());
}

Case repeated(Case c, int64_t copies) {
  c.rope.batches *= copies;
  c.silu_mul.batches *= copies;
  for (auto& [name, buffer] : c.buffers) {
    if (name == "cos" || name == "sin") continue;  // one for all, with batch stride 0
    buffer.bytes = [once = buffer.bytes, copies] {
      const std::vector<uint8_t> one = once();
      std::vector<uint8_t> all;
      for (int64_t i = 0; i < copies; ++i) all.insert(all.end(), one.begin(), one.end());
      return all;
    };
  }
  for (auto& [name, output] : c.outputs) {
    const std::vector<uint64_t> one = output.stretches.at(0).bits;
    std::vector<uint64_t>& all = output.stretches[0].bits;
    for (int64_t i = 1; i < copies; ++i) all.insert(all.end(), one.begin(), one.end());
    output.digest = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      output.digest += bitexact_golden::digest_term(static_cast<uint32_t>(i), static_cast<uint32_t>(all[i]));
    }
  }
  return c;
}

Result run(const Case& c, const Device& device, bitexact_context* context) {
  Result result;
  result.is_rope = c.operation == BITEXACT_OPERATION_FUSED_ROPE;
  result.shape = shape_of(c);
  try {
    if ((result.is_rope ? c.rope.dtype : c.silu_mul.dtype) != BITEXACT_DTYPE_BFLOAT16) {
      throw std::runtime_error("the capture is not in bfloat16");
    }
    Watched watched{device, context, 0, 0, {}, {}};
    result.problem = c.run(watched.backend());
    result.seconds = watched.seconds;
    result.bytes = watched.bytes;
    compare(c, watched, result);
    const bitexact_gate_report report = story(context);
    result.kernel = report.kernel_name;
    result.verdict = verdict_of(report);
    if (report.state != BITEXACT_STATE_ACCEPTED && report.reason != BITEXACT_REASON_POLICY) {
      result.problem += "the gate did not accept the kernel\n";
    }
  } catch (const std::exception& error) {
    result.problem += std::string(error.what()) + "\n";
  }
  return result;
}

}  // namespace bitexact_demo
