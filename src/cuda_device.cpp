#include "cuda_device.h"

#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "bitexact.h"
#include "reference_kernels.h"
#include "status.h"

namespace bitexact {
namespace {

int32_t status_of(cudaError_t error) {
  switch (error) {
    case cudaErrorInsufficientDriver: {
      // The runtime says this both where no driver is installed and where it is too old.
      int version = 0;
      const bool installed = cudaDriverGetVersion(&version) == cudaSuccess && version > 0;
      return installed ? BITEXACT_STATUS_DRIVER_TOO_OLD : BITEXACT_STATUS_NO_DRIVER;
    }
    case cudaErrorCallRequiresNewerDriver:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorSystemDriverMismatch: return BITEXACT_STATUS_DRIVER_TOO_OLD;
    case cudaErrorStubLibrary:
    case cudaErrorSystemNotReady: return BITEXACT_STATUS_NO_DRIVER;
    case cudaErrorNoDevice: return BITEXACT_STATUS_NO_DEVICE;
    case cudaErrorInvalidDevice: return BITEXACT_STATUS_INVALID_DEVICE;
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidDeviceFunction:
    case cudaErrorInvalidKernelImage:
    case cudaErrorInvalidPtx:
    case cudaErrorJitCompilerNotFound:
    case cudaErrorJitCompilationDisabled: return BITEXACT_STATUS_NO_KERNEL_IMAGE;
    case cudaErrorMemoryAllocation: return BITEXACT_STATUS_OUT_OF_MEMORY;
    default: return BITEXACT_STATUS_CUDA_ERROR;
  }
}

#define BITEXACT_CUDA(call, what)                                                 \
  do {                                                                            \
    const cudaError_t bitexact_error = (call);                                    \
    if (bitexact_error != cudaSuccess) return cuda_failure(bitexact_error, what); \
  } while (0)

template <class Function>
cudaError_t resolve(const char* symbol, Function& function) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found;
  // Version 12.0 of these functions: older than any driver that the runtime accepts.
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(symbol, &address, 12000, cudaEnableDefault, &found);
  if (error != cudaSuccess) return error;
  if (found != cudaDriverEntryPointSuccess) return cudaErrorCallRequiresNewerDriver;
  std::memcpy(&function, &address, sizeof(function));
  return cudaSuccess;
}

int32_t find_driver(Driver& d) {
  BITEXACT_CUDA(resolve("cuCtxGetCurrent", d.ctx_get_current), "finding driver functions");
  BITEXACT_CUDA(resolve("cuCtxSetCurrent", d.ctx_set_current), "finding driver functions");
  BITEXACT_CUDA(resolve("cuCtxGetDevice", d.ctx_get_device), "finding driver functions");
  BITEXACT_CUDA(resolve("cuCtxPushCurrent", d.ctx_push_current), "finding driver functions");
  BITEXACT_CUDA(resolve("cuCtxPopCurrent", d.ctx_pop_current), "finding driver functions");
  return BITEXACT_STATUS_OK;
}

// Puts the thread's current context back on every path.
class KeepContext {
 public:
  explicit KeepContext(const Driver& driver) : driver_(driver) { driver_.ctx_get_current(&before_); }
  ~KeepContext() { driver_.ctx_set_current(before_); }
  KeepContext(const KeepContext&) = delete;
  KeepContext& operator=(const KeepContext&) = delete;

 private:
  const Driver& driver_;
  CUcontext before_ = nullptr;
};

// The references serve calls that cannot wait for a check, so they are loaded at once. A fused kernel is loaded
// by its check: all of them would take megabytes of device memory.
int32_t load_references(CudaDevice& device) {
  cudaFuncAttributes attributes = {};
  for (const void* entry : reference_entries().entry) {
    BITEXACT_CUDA(cudaFuncGetAttributes(&attributes, entry), "loading kernels");
  }
  device.image_architecture = attributes.ptxVersion;
  // Machine code is compiled for its own architecture or an older one of the same major number.
  device.from_ptx = attributes.ptxVersion / 10 != attributes.binaryVersion / 10;
  return BITEXACT_STATUS_OK;
}

int32_t examine(int32_t ordinal, CudaDevice& device) {
  cudaDeviceProp properties;
  BITEXACT_CUDA(cudaGetDeviceProperties(&properties, ordinal), "reading device properties");
  device.ordinal = ordinal;
  device.architecture = properties.major * 10 + properties.minor;
  device.has_memory_pools = properties.memoryPoolsSupported != 0;
  std::memcpy(device.name, properties.name, sizeof(device.name) - 1);
  BITEXACT_CUDA(cudaDriverGetVersion(&device.driver_version), "reading the driver version");
  const int32_t status = find_driver(device.driver);
  if (status != BITEXACT_STATUS_OK) return status;
  const KeepContext keep(device.driver);  // before what follows: each call of it may make a context current
  const RelaxedCapture relaxed;
  BITEXACT_CUDA(cudaSetDevice(ordinal), "opening the device");
  BITEXACT_CUDA(cudaFree(nullptr), "opening the device");
  if (device.driver.ctx_get_current(&device.primary) != CUDA_SUCCESS || device.primary == nullptr)
    return cuda_failure(cudaErrorDevicesUnavailable, "reading the device's context");
  return load_references(device);
}

std::mutex& devices_mutex() {
  static auto* const mutex = new std::mutex;
  return *mutex;
}

// Counters of one device, in blocks that are never freed.
struct CounterPool {
  std::mutex mutex;
  std::vector<unsigned long long*> free;
  size_t total = 0;
};
CounterPool& pool_of(const CudaDevice& device) {
  static auto* const pools = new std::map<int32_t, CounterPool>;
  const std::lock_guard<std::mutex> lock(devices_mutex());
  return (*pools)[device.ordinal];
}

}  // namespace

int32_t cuda_failure(cudaError_t error, const char* what) {
  const int32_t status = status_of(error);
  fail_cuda(status, static_cast<int32_t>(error), cudaGetErrorString(error), what);
  cudaGetLastError();
  return status;
}

bool forgiven(cudaError_t error) {
  if (error != cudaSuccess) cudaGetLastError();
  return error == cudaSuccess;
}

int32_t find_cuda_device(int32_t ordinal, const CudaDevice*& device) {
  static auto* const devices = new std::map<int32_t, CudaDevice>;
  int count = 0;
  BITEXACT_CUDA(cudaGetDeviceCount(&count), "counting devices");
  if (ordinal >= count) {
    return fail(BITEXACT_STATUS_INVALID_DEVICE, "device is %d; accepted: 0 to %d, or -1 for the host",
                ordinal, count - 1);
  }
  const std::lock_guard<std::mutex> lock(devices_mutex());
  auto found = devices->find(ordinal);
  if (found == devices->end()) {
    CudaDevice fresh = {};
    const int32_t status = examine(ordinal, fresh);
    if (status != BITEXACT_STATUS_OK) return status;
    found = devices->emplace(ordinal, fresh).first;
  }
  device = &found->second;
  return BITEXACT_STATUS_OK;
}

int32_t take_counter(const CudaDevice& device, unsigned long long*& counter) {
  constexpr size_t block = 4096;
  CounterPool& pool = pool_of(device);
  const std::lock_guard<std::mutex> lock(pool.mutex);
  const RelaxedCapture relaxed;
  if (pool.free.empty()) {
    // So that nothing below, nor giving a counter back, can run out of host memory.
    pool.free.reserve(pool.total + block);
    void* memory = nullptr;
    BITEXACT_CUDA(cudaMalloc(&memory, block * sizeof(*counter)), "allocating counters");
    for (size_t i = 0; i < block; ++i) pool.free.push_back(static_cast<unsigned long long*>(memory) + i);
    pool.total += block;
  }
  counter = pool.free.back();
  // On a stream of its own: the legacy stream may be barred by a capture.
  cudaStream_t stream;
  BITEXACT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "clearing a counter");
  cudaError_t error = cudaMemsetAsync(counter, 0, sizeof(*counter), stream);
  if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
  forgiven(cudaStreamDestroy(stream));
  BITEXACT_CUDA(error, "clearing a counter");
  pool.free.pop_back();
  return BITEXACT_STATUS_OK;
}

void give_counter_back(const CudaDevice& device, unsigned long long* counter) {
  CounterPool& pool = pool_of(device);
  const std::lock_guard<std::mutex> lock(pool.mutex);
  pool.free.push_back(counter);
}

}  // namespace bitexact
