#include "site.h"

#include "silu_mul.h"

namespace libbitexact {

const bitexact_api* api = nullptr;

namespace {

struct Input {
  PyObject* object;
  View* view;
};

int read_inputs(std::initializer_list<Input> inputs) {
  if (api == nullptr || torch.tensor == nullptr) return not_torch;
  for (const Input& input : inputs)
    if (!is_plain_type(input.object)) return not_torch;
  // Before anything is read: inside a transform a plain tensor may have no memory.
  if (mode_is_active()) return has_mode;
  for (const Input& input : inputs)
    if (const int code = read_plain(input.object, *input.view)) return code;
  return 0;
}

int read_optional(const py::object& object, View& view, bool& present) {
  present = !object.is_none();
  return present ? read_plain(object.ptr(), view) : 0;
}

struct RopeViews {
  View q, k, cos, sin, positions, q_out, k_out;
  bool has_k = false, has_sin = false, has_positions = false;

  int read(const py::object& q_, const py::object& k_, const py::object& cos_, const py::object& sin_,
           const py::object& positions_) {
    if (const int code = read_inputs({{q_.ptr(), &q}, {cos_.ptr(), &cos}})) return code;
    if (const int code = read_optional(k_, k, has_k)) return code;
    if (const int code = read_optional(sin_, sin, has_sin)) return code;
    return read_optional(positions_, positions, has_positions);
  }

  int read_outputs(const py::object& q_, const py::object& k_) {
    if (const int code = read_plain(q_.ptr(), q_out)) return code;
    return has_k ? read_plain(k_.ptr(), k_out) : 0;
  }

  Inputs inputs() const {
    return {&q, has_k ? &k : nullptr, &cos, has_sin ? &sin : nullptr, has_positions ? &positions : nullptr};
  }

  int make(const RopeSpec& spec, bitexact_rope_params& p) const {
    return make_params(spec, q, has_k ? &k : nullptr, cos, has_sin ? &sin : nullptr,
                       has_positions ? &positions : nullptr, q_out, has_k ? &k_out : nullptr, p);
  }

  // What decides the layout besides the tensors' own.
  Key key(const RopeSpec& spec) const {
    const int64_t rotary_dim = rotary_dim_of(spec, cos);
    const bool whole = q.ndim > 0 && rotary_dim == q.shape[q.ndim - 1];
    const bool full = cos.ndim > 0 && rotary_dim == cos.shape[cos.ndim - 1];
    Key key;
    key.reserve(96);
    key.insert(key.end(), {2, spec.pairing_in, spec.pairing_out, whole, full, cos.is_complex, spec.first_half,
                           spec.heads_first, cos.dtype, q.dtype});
    return key;
  }
};

Key silu_key(const SiluSpec& spec) {
  Key key;
  key.reserve(48);
  key.insert(key.end(), {1, spec.silu, spec.compute, spec.clamp});
  return key;
}

Inputs silu_inputs(const View& gate, const View& up) { return {&gate, &up, nullptr, nullptr, nullptr}; }

// Runs without the GIL: every call may wait, be it for a lock of the driver's.
template <typename Call>
int32_t without_gil(Call call) {
  const py::gil_scoped_release release;
  return call();
}

}  // namespace

void Site::set_context(int device, uintptr_t context) {
  const size_t slot = static_cast<size_t>(device + 1);
  if (slot >= contexts_.size()) throw py::index_error("device");
  contexts_[slot].store(reinterpret_cast<bitexact_context*>(context), std::memory_order_release);
}

bitexact_context* Site::context_of(int device) const {
  const size_t slot = static_cast<size_t>(device + 1);
  return slot < contexts_.size() ? contexts_[slot].load(std::memory_order_acquire) : nullptr;
}

py::object Site::silu_mul(const SiluSpec& spec, const py::object& gate, const py::object& up,
                          const py::object& out) {
  View g, u, o;
  if (const int code = read_inputs({{gate.ptr(), &g}, {up.ptr(), &u}})) return py::int_(code);
  py::object result = out;
  if (out.is_none()) {
    if (const int code = same_kind(g, u)) return py::int_(code);
    const std::optional<Layout> layout = layouts_.find(silu_key(spec), silu_inputs(g, u));
    if (!layout) return py::int_(no_layout);
    result = allocate(gate.ptr(), g, *layout, false);
  }
  if (const int code = read_plain(result.ptr(), o)) return py::int_(code);
  bitexact_silu_mul_params p;
  bitexact_silu_mul_reference unused;
  if (const int code = make_params(g, u, o, o, spec, p, unused)) return py::int_(code);
  bitexact_context* const context = context_of(g.device);
  if (context == nullptr) return py::int_(no_context);
  const bitexact_stream stream = stream_of(g.device);
  const int32_t status = without_gil([&] { return api->fused_silu_mul(context, &p, stream); });
  if (status != BITEXACT_STATUS_OK) return py::int_(status);
  if (!out.is_none()) bump_version(result.ptr());
  return result;
}

std::pair<int, int> Site::silu_mul_verify(const SiluSpec& spec, const py::object& gate, const py::object& up,
                                          const py::object& out, const py::object& reference) {
  View g, u, o, r;
  if (const int code =
          read_inputs({{gate.ptr(), &g}, {up.ptr(), &u}, {out.ptr(), &o}, {reference.ptr(), &r}}))
    return {code, 0};
  bitexact_silu_mul_params p;
  bitexact_silu_mul_reference expected;
  if (const int code = make_params(g, u, o, r, spec, p, expected)) return {code, 0};
  bitexact_context* const context = context_of(g.device);
  if (context == nullptr) return {no_context, 0};
  const bitexact_stream stream = stream_of(g.device);
  int32_t verdict = 0;
  const int32_t status =
      without_gil([&] { return api->fused_silu_mul_verify(context, &p, &expected, stream, &verdict); });
  return {status, verdict};
}

int Site::learn_silu_mul(const SiluSpec& spec, const py::object& gate, const py::object& up,
                         const py::object& result) {
  View g, u, r;
  if (const int code = read_inputs({{gate.ptr(), &g}, {up.ptr(), &u}, {result.ptr(), &r}})) return code;
  if (const int code = same_kind(g, r)) return code;
  layouts_.learn(silu_key(spec), silu_inputs(g, u), r, nullptr);
  return 0;
}

py::object Site::rope(const RopeSpec& spec, const py::object& q, const py::object& k, const py::object& cos,
                      const py::object& sin, const py::object& positions, const py::object& q_out,
                      const py::object& k_out) {
  RopeViews v;
  if (const int code = v.read(q, k, cos, sin, positions)) return py::int_(code);
  py::object q_result = q_out, k_result = k_out;
  if (q_out.is_none() || (v.has_k && k_out.is_none())) {
    const std::optional<Layout> layout = layouts_.find(v.key(spec), v.inputs());
    if (!layout) return py::int_(no_layout);
    if (q_out.is_none()) q_result = allocate(q.ptr(), v.q, *layout, false);
    if (v.has_k && k_out.is_none()) k_result = allocate(k.ptr(), v.k, *layout, true);
  }
  if (const int code = v.read_outputs(q_result, k_result)) return py::int_(code);
  bitexact_rope_params p;
  if (const int code = v.make(spec, p)) return py::int_(code);
  bitexact_context* const context = context_of(v.q.device);
  if (context == nullptr) return py::int_(no_context);
  const bitexact_stream stream = stream_of(v.q.device);
  const int32_t status = without_gil([&] { return api->fused_rope(context, &p, stream); });
  if (status != BITEXACT_STATUS_OK) return py::int_(status);
  if (!q_out.is_none()) bump_version(q_result.ptr());
  if (v.has_k && !k_out.is_none()) bump_version(k_result.ptr());
  if (!v.has_k) return q_result;
  return py::make_tuple(q_result, k_result);
}

std::pair<int, int> Site::rope_verify(const RopeSpec& spec, const py::object& q, const py::object& k,
                                      const py::object& cos, const py::object& sin,
                                      const py::object& positions, const py::object& q_out,
                                      const py::object& k_out, const py::object& q_expected,
                                      const py::object& k_expected) {
  RopeViews v;
  if (const int code = v.read(q, k, cos, sin, positions)) return {code, 0};
  if (const int code = v.read_outputs(q_out, k_out)) return {code, 0};
  RopeViews e = v;
  if (const int code = e.read_outputs(q_expected, k_expected)) return {code, 0};
  bitexact_rope_params p, expected;
  if (const int code = v.make(spec, p)) return {code, 0};
  if (const int code = e.make(spec, expected)) return {code, 0};
  bitexact_rope_reference r = BITEXACT_ROPE_REFERENCE_INIT;
  r.q = expected.q_out;
  r.q_batch_stride = expected.q_out_batch_stride;
  r.q_token_stride = expected.q_out_token_stride;
  r.q_head_stride = expected.q_out_head_stride;
  r.k = expected.k_out;
  r.k_batch_stride = expected.k_out_batch_stride;
  r.k_token_stride = expected.k_out_token_stride;
  r.k_head_stride = expected.k_out_head_stride;
  bitexact_context* const context = context_of(v.q.device);
  if (context == nullptr) return {no_context, 0};
  const bitexact_stream stream = stream_of(v.q.device);
  int32_t verdict = 0;
  const int32_t status =
      without_gil([&] { return api->fused_rope_verify(context, &p, &r, stream, &verdict); });
  return {status, verdict};
}

int Site::learn_rope(const RopeSpec& spec, const py::object& q, const py::object& k, const py::object& cos,
                     const py::object& sin, const py::object& positions, const py::object& q_result,
                     const py::object& k_result) {
  RopeViews v;
  if (const int code = v.read(q, k, cos, sin, positions)) return code;
  if (const int code = v.read_outputs(q_result, k_result)) return code;
  if (const int code = same_kind(v.q, v.q_out)) return code;
  if (v.has_k)
    if (const int code = same_kind(v.k, v.k_out)) return code;
  layouts_.learn(v.key(spec), v.inputs(), v.q_out, v.has_k ? &v.k_out : nullptr);
  return 0;
}

}  // namespace libbitexact
