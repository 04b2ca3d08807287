// Certificates on a GPU: a little of every kernel's, whole ones with PyTorch's digests, a wrong kernel's.
#include "certify.h"
#include "context.h"
#include "contexts.h"
#include "cuda_backend.h"
#include "device.h"
#include "faulty_context.h"
#include "golden_digests.h"
#include "kernel_table.h"
#include "mutant_kernels.h"
#include "mutants.h"
#include "status.h"

using namespace bitexact;
using namespace bitexact_test;

namespace {

int32_t certify(bitexact_context* context, int64_t kernel, int64_t count, bitexact_certify_report& report) {
  bitexact_certify_params params = BITEXACT_CERTIFY_PARAMS_INIT;
  params.kernel_index = kernel;
  params.first_part = report.parts_done;
  params.part_count = count;
  return bitexact_certify(context, &params, &report);
}

int kernel_named(const std::string& name) {
  for (int k = 0; k < kernel_count; ++k) {
    if (kernel_name(k) == name) return k;
  }
  ADD_FAILURE() << "no kernel " << name;
  return 0;
}

TEST(CertifyCuda, TheFirstPartsOfEveryKernelAreEqual) {
  const Context context = make_context(0);
  for (int k = 0; k < kernel_count; ++k) {
    bitexact_certify_report report = BITEXACT_CERTIFY_REPORT_INIT;
    ASSERT_EQ(certify(context.get(), k, 5, report), BITEXACT_STATUS_OK)
        << kernel_name(k) << bitexact_last_error();
    EXPECT_EQ(report.parts_done, 5);
    EXPECT_GT(report.exhaustive_compared + report.sampled_compared, 4 * certify_inputs) << kernel_name(k);
    EXPECT_EQ(report.mismatches, 0) << kernel_name(k) << std::hex << ": inputs " << report.mismatch_inputs[0]
                                    << " " << report.mismatch_inputs[1] << " " << report.mismatch_inputs[2]
                                    << " " << report.mismatch_inputs[3] << ", expected "
                                    << report.mismatch_expected << ", got " << report.mismatch_actual;
    EXPECT_EQ(report.nan_payload_differences, 0) << kernel_name(k);
    // The digest is of the whole domains, where there are any: samples come before them.
    const Plan plan = plan_of(k);
    const bool samples = plan.stretches[1].kind == Stretch::sampled;
    EXPECT_EQ(report.digest == 0, samples && plan.exhaustive()) << kernel_name(k);
  }
}

// The same parts on the GPU and on the host: inputs, results and digests are one.
TEST(CertifyCuda, PartsAreTheSameOnTheHost) {
  const Context cuda = make_context(0), host = make_context(BITEXACT_DEVICE_HOST);
  for (const char* name :
       {"fused_silu_mul float16 sigmoid vec8",
        "fused_rope bfloat16 table=float32 compute=float32 separate interleaved vec16_table",
        "fused_rope float16 table=float64 compute=float64 complex half vec16",
        "fused_rope float32 table=float32 compute=float32 separate+0 half->interleaved scalar"}) {
    bitexact_certify_report on_cuda = BITEXACT_CERTIFY_REPORT_INIT, on_host = on_cuda;
    ASSERT_EQ(certify(cuda.get(), kernel_named(name), 4, on_cuda), BITEXACT_STATUS_OK)
        << bitexact_last_error();
    ASSERT_EQ(certify(host.get(), kernel_named(name), 4, on_host), BITEXACT_STATUS_OK)
        << bitexact_last_error();
    EXPECT_NE(on_cuda.digest, 0u) << name;
    EXPECT_EQ(on_cuda.digest, on_host.digest) << name;
    EXPECT_EQ(on_cuda.exhaustive_compared, on_host.exhaustive_compared) << name;
    EXPECT_EQ(on_cuda.sampled_compared, on_host.sampled_compared) << name;
  }
}

TEST(CertifyCuda, AWholeCertificateHasPyTorchsDigest) {
  for (const char* name : {"fused_silu_mul bfloat16 aten vec16", "fused_silu_mul float32 aten vec8",
                           "fused_rope float16 table=float16 compute=float16 separate half vec16_lanes"}) {
    const Context context = make_context(0);
    const int kernel = kernel_named(name);
    bitexact_certify_report report = BITEXACT_CERTIFY_REPORT_INIT;
    const int64_t total = plan_of(kernel).parts();
    while (report.parts_done < total) {
      const int64_t count = std::min<int64_t>(256, total - report.parts_done);
      ASSERT_EQ(certify(context.get(), kernel, count, report), BITEXACT_STATUS_OK) << bitexact_last_error();
    }
    bitexact_gate_report story = BITEXACT_GATE_REPORT_INIT;
    ASSERT_EQ(bitexact_gate_get(context.get(), kernel, &story), BITEXACT_STATUS_OK);
    uint64_t golden = 0;
    ASSERT_TRUE(golden_digest(story, golden));
    EXPECT_EQ(report.digest, golden) << name;
    EXPECT_EQ(report.mismatches, 0) << name;
    EXPECT_EQ(story.state, BITEXACT_STATE_ACCEPTED) << name;
    EXPECT_EQ(story.basis, BITEXACT_BASIS_CERTIFICATE) << name;
  }
}

// Past the probe, so that it is the sweep that finds it; and its first mismatch is the host's.
TEST(CertifyCuda, ASweepFindsAWrongKernel) {
  const int kernel = kernel_named("fused_silu_mul bfloat16 aten vec16");
  const int64_t part = 1 + 7 * 32 + 7;
  bitexact_certify_report begun = BITEXACT_CERTIFY_REPORT_INIT;
  begun.kernel_index = kernel;
  begun.parts_total = plan_of(kernel).parts();
  begun.parts_done = part;
  Context context;
  FaultyBackend* const backend = make_faulty(context, 0);
  backend->fused_silu_mul = [](const SiluMulArgs& a, bitexact_stream stream) {
    return launch_mutant(a, Mutant::single_rounding, stream) == cudaSuccess ? BITEXACT_STATUS_OK
                                                                            : BITEXACT_STATUS_CUDA_ERROR;
  };
  bitexact_certify_report report = begun;
  ASSERT_EQ(certify(context.get(), kernel, 1, report), BITEXACT_STATUS_OK) << bitexact_last_error();
  EXPECT_GT(report.mismatches, 0);
  const SiluMulArgs a = silu_mul_kernel(kernel).args;
  const uint64_t *in = report.mismatch_inputs, expected = reference::silu_mul(in[0], in[1], a);
  EXPECT_EQ(report.mismatch_expected, expected);
  EXPECT_NE(report.mismatch_actual, expected);
  bitexact_gate_report story = BITEXACT_GATE_REPORT_INIT;
  ASSERT_EQ(bitexact_gate_get(context.get(), kernel, &story), BITEXACT_STATUS_OK);
  EXPECT_EQ(story.state, BITEXACT_STATE_DECLINED);
  EXPECT_EQ(story.mismatch_basis, BITEXACT_BASIS_CERTIFICATE);
}

TEST(CertifyCuda, AKernelThatWritesNothingIsFound) {
  Context context;
  FaultyBackend* const backend = make_faulty(context, 0);
  backend->fused_rope = [](const RopeArgs&, bitexact_stream) { return BITEXACT_STATUS_OK; };
  const int kernel =
      kernel_named("fused_rope float32 table=float32 compute=float32 separate half vec16_lanes");
  bitexact_certify_report report = BITEXACT_CERTIFY_REPORT_INIT;
  report.kernel_index = kernel;
  report.parts_total = plan_of(kernel).parts();
  report.parts_done = 1;
  ASSERT_EQ(certify(context.get(), kernel, 1, report), BITEXACT_STATUS_OK) << bitexact_last_error();
  EXPECT_GT(report.mismatches, certify_inputs);
}

TEST(CertifyCuda, NeverWhileAStreamCaptures) {
  const Context context = make_context(0);
  const Stream stream(cudaStreamDefault);
  bitexact_certify_report report = BITEXACT_CERTIFY_REPORT_INIT;
  ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  EXPECT_EQ(certify(context.get(), 0, 1, report), BITEXACT_STATUS_CAPTURING);
  EXPECT_EQ(report.parts_total, 0);
  cudaGraph_t graph;
  ASSERT_CUDA(cudaStreamEndCapture(stream, &graph));
  ASSERT_CUDA(cudaGraphDestroy(graph));
  EXPECT_EQ(certify(context.get(), 0, 1, report), BITEXACT_STATUS_OK) << bitexact_last_error();
}

}  // namespace
