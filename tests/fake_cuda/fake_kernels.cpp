// Launchers for the fake runtime: the host backend's kernels, launched through cudaLaunchKernel as the real ones
// are. Fused and reference are one and the same: what matters here is what becomes of errors.
#include <algorithm>

#include "certify_kernels.h"
#include "fused_rope.h"
#include "fused_silu_mul.h"
#include "host/fused_host.h"
#include "host/silu_table.h"
#include "reference.h"
#include "reference_kernels.h"

namespace bitexact {
namespace {

using Kernel = void (*)(void** arguments);

template <class T>
const T& argument(void** arguments, int index) {
  return *static_cast<const T*>(arguments[index]);
}

void silu_mul(void** arguments) {
  const auto& a = argument<SiluMulArgs>(arguments, 0);
  if (a.dtype != Dtype::float32 && !a.compute_float32) {
    host_operations().silu_mul(a, silu_table(a.dtype, a.silu));
    return;
  }
  for (int64_t i = 0; i < reference::count(a); ++i) reference::silu_mul_at(a, i);
}

void rope(void** arguments) { host_operations().rope(argument<RopeArgs>(arguments, 0)); }

void compare(void** arguments) {
  const auto& a = argument<CompareArgs>(arguments, 0);
  Comparison* const result = argument<Comparison*>(arguments, 1);
  for (int64_t i = 0; i < a.count; ++i) {
    const auto compared = reference::compare_at(a, i);
    result->digest += compared.share;
    if (compared.difference == reference::Difference::nan_payload) ++result->nan_payload_differences;
    if (compared.difference != reference::Difference::value) continue;
    ++result->mismatches;
    result->key = std::min<unsigned long long>(result->key, a.first_key + static_cast<uint64_t>(i));
  }
}

void fetch_first_mismatch(void** arguments) {
  const auto& a = argument<CompareArgs>(arguments, 0);
  Comparison* const result = argument<Comparison*>(arguments, 1);
  const auto count = static_cast<unsigned long long>(a.count);
  if (result->key < a.first_key || result->key - a.first_key >= count) return;
  const auto compared = reference::compare_at(a, static_cast<int64_t>(result->key - a.first_key));
  result->expected = compared.expected;
  result->actual = compared.actual;
}

template <class Args>
void certify_inputs_of(void** arguments) {
  const auto& a = argument<CertifyArgs<Args>>(arguments, 0);
  for (int64_t i = 0; i < certify_inputs; ++i) certify_fill(a, i);
}

template <class Args>
void certify_outputs_of(void** arguments) {
  const auto& a = argument<CertifyArgs<Args>>(arguments, 0);
  const auto first_key = argument<uint64_t>(arguments, 1);
  Tally& tally = *argument<Tally*>(arguments, 2);
  for (int64_t i = 0; i < certify_inputs; ++i) {
    certify_judge(a, i, [&](int which, const Judged& j) {
      const uint64_t key = first_key + static_cast<uint64_t>(i * certify_outputs(a.call) + which);
      certify_count(j, a.call.dtype, key, tally);
    });
  }
}

const void* entry_of(Kernel kernel) { return reinterpret_cast<const void*>(kernel); }

cudaError_t launch(Kernel kernel, void** arguments, cudaStream_t stream) {
  return cudaLaunchKernel(entry_of(kernel), dim3(), dim3(), arguments, 0, stream);
}

template <class Args>
cudaError_t launch(Kernel kernel, const Args& a, cudaStream_t stream) {
  void* arguments[] = {const_cast<Args*>(&a)};
  return launch(kernel, arguments, stream);
}

}  // namespace

cudaError_t launch_fused_silu_mul(const SiluMulArgs& a, SiluMulVariant, cudaStream_t stream) {
  return launch(silu_mul, a, stream);
}
cudaError_t launch_fused_rope(const RopeArgs& a, RopeVariant, cudaStream_t stream) {
  return launch(rope, a, stream);
}
cudaError_t launch_reference_silu_mul(const SiluMulArgs& a, cudaStream_t stream) {
  return launch(silu_mul, a, stream);
}
cudaError_t launch_reference_rope(const RopeArgs& a, cudaStream_t stream) { return launch(rope, a, stream); }
cudaError_t launch_compare(const CompareArgs& a, Comparison* result, cudaStream_t stream) {
  void* arguments[] = {const_cast<CompareArgs*>(&a), &result};
  const cudaError_t error = launch(compare, arguments, stream);
  return error != cudaSuccess ? error : launch(fetch_first_mismatch, arguments, stream);
}

cudaError_t launch_certify_fill(const CertifyArgs<SiluMulArgs>& a, cudaStream_t stream) {
  return launch(certify_inputs_of<SiluMulArgs>, a, stream);
}
cudaError_t launch_certify_fill(const CertifyArgs<RopeArgs>& a, cudaStream_t stream) {
  return launch(certify_inputs_of<RopeArgs>, a, stream);
}
cudaError_t launch_certify_tally(const CertifyArgs<SiluMulArgs>& a, uint64_t first_key, Tally* tally,
                                 cudaStream_t stream) {
  void* arguments[] = {const_cast<CertifyArgs<SiluMulArgs>*>(&a), &first_key, &tally};
  return launch(certify_outputs_of<SiluMulArgs>, arguments, stream);
}
cudaError_t launch_certify_tally(const CertifyArgs<RopeArgs>& a, uint64_t first_key, Tally* tally,
                                 cudaStream_t stream) {
  void* arguments[] = {const_cast<CertifyArgs<RopeArgs>*>(&a), &first_key, &tally};
  return launch(certify_outputs_of<RopeArgs>, arguments, stream);
}

const void* fused_silu_mul_entry(const SiluMulArgs&, SiluMulVariant) { return entry_of(silu_mul); }
const void* fused_rope_entry(const RopeArgs&, RopeVariant) { return entry_of(rope); }
ReferenceEntries reference_entries() {
  return {{entry_of(silu_mul), entry_of(rope), entry_of(compare), entry_of(fetch_first_mismatch)}};
}

}  // namespace bitexact
