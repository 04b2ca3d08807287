#include "cuda_backend.h"

#include <pthread.h>

#include <atomic>

#include "certify_kernels.h"
#include "cuda_device.h"
#include "fused_rope.h"
#include "fused_silu_mul.h"
#include "probe_digests.h"
#include "reference_kernels.h"
#include "status.h"

namespace bitexact {
namespace {

// Counts fork() in this process and its parents: CUDA does not survive one.
std::atomic<uint32_t> forks{0};
void count_forks() {
  static const int once =
      pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  static_cast<void>(once);
}

int32_t checked(cudaError_t error, const char* what) {
  return error == cudaSuccess ? BITEXACT_STATUS_OK : cuda_failure(error, what);
}

int32_t load_entry(const void* entry) {
  const RelaxedCapture relaxed;
  cudaFuncAttributes attributes;
  return checked(cudaFuncGetAttributes(&attributes, entry), "loading a kernel");
}

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(const CudaDevice& device)
      : device_(device), born_(forks.load(std::memory_order_relaxed)) {}
  ~CudaBackend() override {
    if (counter_ != nullptr && !forked()) give_counter_back(device_, counter_);
  }

  int32_t open() {
    const Scope scope(*this);
    return scope.status() == BITEXACT_STATUS_OK ? take_counter(device_, counter_) : scope.status();
  }

  int32_t supports(const SiluMulArgs&) override { return BITEXACT_STATUS_OK; }

  bool has_captured_exp() override { return device_.architecture == digests_architecture; }

  int32_t check_stream(bitexact_stream) override { return BITEXACT_STATUS_OK; }

  int32_t fused(const SiluMulArgs& a, SiluMulVariant variant, bitexact_stream stream) override {
    return checked(launch_fused_silu_mul(a, variant, stream), "launching fused_silu_mul");
  }
  int32_t fused(const RopeArgs& a, RopeVariant variant, bitexact_stream stream) override {
    return checked(launch_fused_rope(a, variant, stream), "launching fused_rope");
  }
  int32_t reference(const SiluMulArgs& a, bitexact_stream stream) override {
    return checked(launch_reference_silu_mul(a, stream), "launching the silu_mul reference");
  }
  int32_t reference(const RopeArgs& a, bitexact_stream stream) override {
    return checked(launch_reference_rope(a, stream), "launching the rope reference");
  }

  int32_t load(const SiluMulArgs& a, SiluMulVariant variant) override {
    return load_entry(fused_silu_mul_entry(a, variant));
  }
  int32_t load(const RopeArgs& a, RopeVariant variant) override {
    return load_entry(fused_rope_entry(a, variant));
  }

  int32_t is_capturing(bitexact_stream stream, bool& capturing) override {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const cudaError_t error = cudaStreamIsCapturing(stream, &status);
    // The legacy stream may not even be asked while a blocking stream captures.
    capturing = error == cudaErrorStreamCaptureImplicit || status != cudaStreamCaptureStatusNone;
    if (error == cudaErrorStreamCaptureImplicit) {
      cudaGetLastError();
      return BITEXACT_STATUS_OK;
    }
    return checked(error, "asking whether the stream is capturing");
  }

  int32_t allocate(size_t bytes, bitexact_stream stream, void*& memory) override {
    const RelaxedCapture relaxed;
    return checked(
        device_.has_memory_pools ? cudaMallocAsync(&memory, bytes, stream) : cudaMalloc(&memory, bytes),
        "allocating scratch memory");
  }
  void release(void* memory, bitexact_stream stream) override {
    const RelaxedCapture relaxed;
    forgiven(device_.has_memory_pools ? cudaFreeAsync(memory, stream) : cudaFree(memory));
  }
  int32_t upload(void* to, const void* from, size_t bytes, bitexact_stream stream) override {
    const RelaxedCapture relaxed;
    return checked(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream), "uploading");
  }
  int32_t fill(void* to, unsigned char byte, size_t bytes, bitexact_stream stream) override {
    return checked(cudaMemsetAsync(to, byte, bytes, stream), "filling scratch memory");
  }
  int32_t compare(const CompareArgs& a, Comparison* result, bitexact_stream stream) override {
    return checked(launch_compare(a, result, stream), "launching the comparison");
  }
  int32_t download(void* to, const void* from, size_t bytes, bitexact_stream stream) override {
    const RelaxedCapture relaxed;
    const cudaError_t error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream);
    return checked(error == cudaSuccess ? cudaStreamSynchronize(stream) : error, "reading back");
  }

  int32_t certify_fill(const CertifyArgs<SiluMulArgs>& a, bitexact_stream stream) override {
    return checked(launch_certify_fill(a, stream), "launching the inputs of a certificate");
  }
  int32_t certify_fill(const CertifyArgs<RopeArgs>& a, bitexact_stream stream) override {
    return checked(launch_certify_fill(a, stream), "launching the inputs of a certificate");
  }
  int32_t certify_tally(const CertifyArgs<SiluMulArgs>& a, uint64_t first_key, Tally* tally,
                        bitexact_stream stream) override {
    return checked(launch_certify_tally(a, first_key, tally, stream), "launching the tally of a certificate");
  }
  int32_t certify_tally(const CertifyArgs<RopeArgs>& a, uint64_t first_key, Tally* tally,
                        bitexact_stream stream) override {
    return checked(launch_certify_tally(a, first_key, tally, stream), "launching the tally of a certificate");
  }

  unsigned long long* position_errors() override { return counter_; }
  int32_t read_position_errors(int64_t& count) override {
    // On a stream of its own, so that it waits for no work of the caller's.
    const RelaxedCapture relaxed;
    cudaStream_t stream;
    int32_t status = checked(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
    if (status != BITEXACT_STATUS_OK) return status;
    unsigned long long value = 0;
    status = download(&value, counter_, sizeof(value), stream);
    forgiven(cudaStreamDestroy(stream));
    count = static_cast<int64_t>(value);
    return status;
  }

  void describe(bitexact_context_info& info) const override {
    info.device = device_.ordinal;
    info.architecture = device_.architecture;
    info.image = device_.from_ptx ? BITEXACT_IMAGE_PTX : BITEXACT_IMAGE_SASS;
    info.image_architecture = device_.image_architecture;
    info.driver_version = device_.driver_version;
    info.device_name = device_.name;
  }

  int32_t enter(bool& pushed) override {
    if (forked()) {
      return fail(BITEXACT_STATUS_FORKED,
                  "the context was made before fork(); accepted: one made in this process");
    }
    CUcontext current = nullptr;
    device_.driver.ctx_get_current(&current);
    if (current == device_.primary) return BITEXACT_STATUS_OK;
    CUdevice device = -1;
    // A context of the caller's own on the same device stays: its streams and memory belong to it.
    if (current != nullptr && device_.driver.ctx_get_device(&device) == CUDA_SUCCESS &&
        device == device_.ordinal) {
      return BITEXACT_STATUS_OK;
    }
    if (device_.driver.ctx_push_current(device_.primary) != CUDA_SUCCESS) {
      return cuda_failure(cudaErrorDevicesUnavailable, "making the device current");
    }
    pushed = true;
    return BITEXACT_STATUS_OK;
  }
  void leave() override {
    CUcontext popped;
    device_.driver.ctx_pop_current(&popped);
  }

 private:
  bool forked() const { return born_ != forks.load(std::memory_order_relaxed); }

  const CudaDevice& device_;
  unsigned long long* counter_ = nullptr;
  uint32_t born_;
};

}  // namespace

int32_t open_cuda_backend(int32_t ordinal, std::unique_ptr<Backend>& backend) {
  count_forks();
  const CudaDevice* device = nullptr;
  int32_t status = find_cuda_device(ordinal, device);
  if (status != BITEXACT_STATUS_OK) return status;
  auto opened = std::make_unique<CudaBackend>(*device);
  status = opened->open();
  if (status == BITEXACT_STATUS_OK) backend = std::move(opened);
  return status;
}

int32_t cuda_runtime_version() { return CUDART_VERSION; }

}  // namespace bitexact
