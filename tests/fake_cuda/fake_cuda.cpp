// A CUDA runtime and driver of host memory: enough of them to run the library's CUDA backend, and each call of
// which can be made to fail.
#include "fake_cuda.h"

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "faults/inject.h"

namespace {

thread_local cudaError_t last_error = cudaSuccess;
thread_local CUcontext current = nullptr;
thread_local std::vector<CUcontext> pushed;
thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

cudaError_t answer(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}
// The error to return at once, if this call is to fail.
#define FAIL_IF_STRUCK(name) \
  if (inject::strikes(name)) return answer(static_cast<cudaError_t>(inject::error()))

const fake_cuda::Device* device_at(int ordinal) {
  const auto& devices = fake_cuda::machine().devices;
  return ordinal >= 0 && static_cast<size_t>(ordinal) < devices.size()
             ? &devices[static_cast<size_t>(ordinal)]
             : nullptr;
}
CUcontext primary(int ordinal) {
  static char contexts[64];
  return reinterpret_cast<CUcontext>(&contexts[ordinal]);
}
int ordinal_of(CUcontext context) {
  for (int i = 0; device_at(i) != nullptr; ++i) {
    if (primary(i) == context) return i;
  }
  return 0;
}

cudaError_t allocate(void** memory, size_t bytes) {
  *memory = std::malloc(bytes + 1);  // a leak here is a leak of device memory
  if (*memory == nullptr) return answer(cudaErrorMemoryAllocation);
  inject::made();
  return cudaSuccess;
}
void release(void* memory) {
  if (memory == nullptr) return;
  inject::gone();
  std::free(memory);
}

// ------------------------------------------------------------------------------ the driver --

CUresult ctx_get_current(CUcontext* context) {
  if (inject::strikes("cuCtxGetCurrent")) return CUDA_ERROR_UNKNOWN;
  *context = current;
  return CUDA_SUCCESS;
}
CUresult ctx_set_current(CUcontext context) {
  if (inject::strikes("cuCtxSetCurrent")) return inject::putting_back(), CUDA_ERROR_UNKNOWN;
  current = context;
  return CUDA_SUCCESS;
}
CUresult ctx_get_device(CUdevice* device) {
  if (inject::strikes("cuCtxGetDevice") || current == nullptr) return CUDA_ERROR_UNKNOWN;
  *device = ordinal_of(current);
  return CUDA_SUCCESS;
}
CUresult ctx_push(CUcontext context) {
  if (inject::strikes("cuCtxPushCurrent")) return CUDA_ERROR_UNKNOWN;
  pushed.push_back(current);
  current = context;
  return CUDA_SUCCESS;
}
CUresult ctx_pop(CUcontext* context) {
  if (inject::strikes("cuCtxPopCurrent")) return inject::putting_back(), CUDA_ERROR_UNKNOWN;
  *context = current;
  current = pushed.back();
  pushed.pop_back();
  return CUDA_SUCCESS;
}

template <class Function>
void give(Function function, void** to) {
  std::memcpy(to, &function, sizeof(function));
}

}  // namespace

namespace fake_cuda {

Machine& machine() {
  static Machine only;
  return only;
}
void reset_thread() {
  current = nullptr;
  pushed.clear();
  last_error = cudaSuccess;
  thread_mode = cudaStreamCaptureModeGlobal;
}

}  // namespace fake_cuda

inject::ThreadState inject::thread_state() { return {current, thread_mode}; }

extern "C" {

cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}
cudaError_t cudaPeekAtLastError() { return last_error; }
const char* cudaGetErrorString(cudaError_t) { return "an error of the fake runtime"; }

cudaError_t cudaDriverGetVersion(int* version) {
  FAIL_IF_STRUCK("cudaDriverGetVersion");
  *version = fake_cuda::machine().driver_version;
  return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned,
                                             unsigned long long, cudaDriverEntryPointQueryResult* found) {
  FAIL_IF_STRUCK("cudaGetDriverEntryPointByVersion");
  *found = cudaDriverEntryPointSuccess;
  if (std::strcmp(symbol, "cuCtxGetCurrent") == 0) return give(ctx_get_current, function), cudaSuccess;
  if (std::strcmp(symbol, "cuCtxSetCurrent") == 0) return give(ctx_set_current, function), cudaSuccess;
  if (std::strcmp(symbol, "cuCtxGetDevice") == 0) return give(ctx_get_device, function), cudaSuccess;
  if (std::strcmp(symbol, "cuCtxPushCurrent") == 0) return give(ctx_push, function), cudaSuccess;
  if (std::strcmp(symbol, "cuCtxPopCurrent") == 0) return give(ctx_pop, function), cudaSuccess;
  std::fprintf(stderr, "the fake runtime has no %s\n", symbol);
  std::abort();
}

cudaError_t cudaGetDeviceCount(int* count) {
  FAIL_IF_STRUCK("cudaGetDeviceCount");
  *count = static_cast<int>(fake_cuda::machine().devices.size());
  return answer(*count == 0 ? cudaErrorNoDevice : cudaSuccess);
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  FAIL_IF_STRUCK("cudaGetDeviceProperties");
  const fake_cuda::Device* const d = device_at(device);
  if (d == nullptr) return answer(cudaErrorInvalidDevice);
  *properties = {};
  std::snprintf(properties->name, sizeof(properties->name), "fake device %d", device);
  properties->major = d->architecture / 10;
  properties->minor = d->architecture % 10;
  properties->memoryPoolsSupported = d->memory_pools;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  FAIL_IF_STRUCK("cudaSetDevice");
  if (device_at(device) == nullptr) return answer(cudaErrorInvalidDevice);
  current = primary(device);
  return cudaSuccess;
}
cudaError_t cudaDeviceSynchronize() {
  FAIL_IF_STRUCK("cudaDeviceSynchronize");
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  FAIL_IF_STRUCK("cudaFuncGetAttributes");
  const fake_cuda::Device& d = *device_at(ordinal_of(current));
  if (d.binary == 0) return answer(cudaErrorNoKernelImageForDevice);
  *attributes = {d.ptx, d.binary};
  return cudaSuccess;
}
cudaError_t cudaLaunchKernel(const void* entry, dim3, dim3, void** arguments, size_t, cudaStream_t) {
  FAIL_IF_STRUCK("cudaLaunchKernel");
  reinterpret_cast<void (*)(void**)>(const_cast<void*>(entry))(arguments);
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  FAIL_IF_STRUCK("cudaMalloc");
  return allocate(memory, bytes);
}
cudaError_t cudaFree(void* memory) {
  const bool struck = inject::strikes("cudaFree");
  release(memory);
  return answer(struck ? static_cast<cudaError_t>(inject::error()) : cudaSuccess);
}
cudaError_t cudaMallocAsync(void** memory, size_t bytes, cudaStream_t) {
  FAIL_IF_STRUCK("cudaMallocAsync");
  return allocate(memory, bytes);
}
cudaError_t cudaFreeAsync(void* memory, cudaStream_t) {
  const bool struck = inject::strikes("cudaFreeAsync");
  release(memory);
  return answer(struck ? static_cast<cudaError_t>(inject::error()) : cudaSuccess);
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  FAIL_IF_STRUCK("cudaMemcpy");
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t) {
  FAIL_IF_STRUCK("cudaMemcpyAsync");
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int byte, size_t bytes, cudaStream_t) {
  FAIL_IF_STRUCK("cudaMemsetAsync");
  std::memset(to, byte, bytes);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  FAIL_IF_STRUCK("cudaStreamCreateWithFlags");
  *stream = static_cast<cudaStream_t>(std::malloc(1));
  inject::made();
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const bool struck = inject::strikes("cudaStreamDestroy");
  inject::gone();
  std::free(stream);
  return answer(struck ? static_cast<cudaError_t>(inject::error()) : cudaSuccess);
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  FAIL_IF_STRUCK("cudaStreamSynchronize");
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  FAIL_IF_STRUCK("cudaStreamIsCapturing");
  *status = fake_cuda::machine().capturing ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  if (inject::strikes("cudaThreadExchangeStreamCaptureMode")) {
    if (*mode == cudaStreamCaptureModeGlobal) inject::putting_back();
    return answer(static_cast<cudaError_t>(inject::error()));
  }
  const cudaStreamCaptureMode before = thread_mode;
  thread_mode = *mode;
  *mode = before;
  return cudaSuccess;
}

}  // extern "C"
