// The real CUDA runtime, each call of which can be made to fail: linked with --wrap for every name below, of
// the test's own calls too, which are made while nothing is armed.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstring>

#include "inject.h"

namespace {

// What an injected error leaves in the runtime's error slot.
thread_local cudaError_t injected = cudaSuccess;

cudaError_t fail() {
  injected = static_cast<cudaError_t>(inject::error());
  return injected;
}

}  // namespace

extern "C" {

#define REAL(name) __real_##name
#define WRAP(name, parameters, arguments) \
  cudaError_t REAL(name) parameters;      \
  cudaError_t __wrap_##name parameters { return inject::strikes(#name) ? fail() : REAL(name) arguments; }
// Those that give something up do so even when they fail.
#define WRAP_END(name, parameters, arguments, counts)     \
  cudaError_t REAL(name) parameters;                      \
  cudaError_t __wrap_##name parameters {                  \
    const bool struck = inject::strikes(#name);           \
    const cudaError_t error = REAL(name) arguments;       \
    if (error == cudaSuccess && (counts)) inject::gone(); \
    return struck ? fail() : error;                       \
  }
#define WRAP_MAKE(name, parameters, arguments)      \
  cudaError_t REAL(name) parameters;                \
  cudaError_t __wrap_##name parameters {            \
    if (inject::strikes(#name)) return fail();      \
    const cudaError_t error = REAL(name) arguments; \
    if (error == cudaSuccess) inject::made();       \
    return error;                                   \
  }

WRAP(cudaDriverGetVersion, (int* version), (version))
WRAP(cudaGetDeviceCount, (int* count), (count))
WRAP(cudaGetDeviceProperties, (cudaDeviceProp * properties, int device), (properties, device))
WRAP(cudaSetDevice, (int device), (device))
WRAP(cudaFuncGetAttributes, (cudaFuncAttributes * attributes, const void* entry), (attributes, entry))
WRAP(cudaLaunchKernel,
     (const void* entry, dim3 grid, dim3 block, void** arguments, size_t shared, cudaStream_t stream),
     (entry, grid, block, arguments, shared, stream))
WRAP_MAKE(cudaMalloc, (void** memory, size_t bytes), (memory, bytes))
WRAP_END(cudaFree, (void* memory), (memory), memory != nullptr)
WRAP_MAKE(cudaMallocAsync, (void** memory, size_t bytes, cudaStream_t stream), (memory, bytes, stream))
WRAP_END(cudaFreeAsync, (void* memory, cudaStream_t stream), (memory, stream), true)
WRAP(cudaMemcpyAsync, (void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream),
     (to, from, bytes, kind, stream))
WRAP(cudaMemsetAsync, (void* to, int byte, size_t bytes, cudaStream_t stream), (to, byte, bytes, stream))
WRAP_MAKE(cudaStreamCreateWithFlags, (cudaStream_t * stream, unsigned flags), (stream, flags))
WRAP_END(cudaStreamDestroy, (cudaStream_t stream), (stream), true)
WRAP(cudaStreamSynchronize, (cudaStream_t stream), (stream))
WRAP(cudaStreamIsCapturing, (cudaStream_t stream, cudaStreamCaptureStatus* status), (stream, status))
cudaError_t REAL(cudaThreadExchangeStreamCaptureMode)(cudaStreamCaptureMode* mode);
cudaError_t __wrap_cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  if (!inject::strikes("cudaThreadExchangeStreamCaptureMode")) {
    return REAL(cudaThreadExchangeStreamCaptureMode)(mode);
  }
  if (*mode == cudaStreamCaptureModeGlobal) inject::putting_back();
  return fail();
}

cudaError_t REAL(cudaGetLastError)();
cudaError_t __wrap_cudaGetLastError() {
  const cudaError_t error = REAL(cudaGetLastError)();
  const cudaError_t first = injected != cudaSuccess ? injected : error;
  injected = cudaSuccess;
  return first;
}
cudaError_t REAL(cudaPeekAtLastError)();
cudaError_t __wrap_cudaPeekAtLastError() {
  return injected != cudaSuccess ? injected : REAL(cudaPeekAtLastError)();
}

// ------------------------------------------------------------------------------ the driver --

static CUresult driver_fails(const char* name) {
  if (std::strcmp(name, "cuCtxSetCurrent") == 0 || std::strcmp(name, "cuCtxPopCurrent") == 0) {
    inject::putting_back();
  }
  return CUDA_ERROR_UNKNOWN;
}

#define WRAP_DRIVER(name, parameters, arguments)                                        \
  static std::atomic<CUresult(*) parameters> real_##name{nullptr};                      \
  static CUresult wrap_##name parameters {                                              \
    return inject::strikes(#name) ? driver_fails(#name) : real_##name.load() arguments; \
  }

WRAP_DRIVER(cuCtxGetCurrent, (CUcontext * context), (context))
WRAP_DRIVER(cuCtxSetCurrent, (CUcontext context), (context))
WRAP_DRIVER(cuCtxGetDevice, (CUdevice * device), (device))
WRAP_DRIVER(cuCtxPushCurrent, (CUcontext context), (context))
WRAP_DRIVER(cuCtxPopCurrent, (CUcontext * context), (context))

cudaError_t REAL(cudaGetDriverEntryPointByVersion)(const char* symbol, void** function, unsigned version,
                                                   unsigned long long flags,
                                                   cudaDriverEntryPointQueryResult* found);
cudaError_t __wrap_cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned version,
                                                    unsigned long long flags,
                                                    cudaDriverEntryPointQueryResult* found) {
  if (inject::strikes("cudaGetDriverEntryPointByVersion")) return fail();
  const cudaError_t error = REAL(cudaGetDriverEntryPointByVersion)(symbol, function, version, flags, found);
  if (error != cudaSuccess || *found != cudaDriverEntryPointSuccess) return error;
#define SWAP(name)                                                           \
  if (std::strcmp(symbol, #name) == 0) {                                     \
    real_##name = reinterpret_cast<decltype(real_##name.load())>(*function); \
    *function = reinterpret_cast<void*>(&wrap_##name);                       \
  }
  SWAP(cuCtxGetCurrent)
  SWAP(cuCtxSetCurrent)
  SWAP(cuCtxGetDevice)
  SWAP(cuCtxPushCurrent)
  SWAP(cuCtxPopCurrent)
  return error;
}

}  // extern "C"

inject::ThreadState inject::thread_state() {
  static CUresult (*get_current)(CUcontext*) = nullptr;
  static CUresult (*set_current)(CUcontext) = nullptr;
  if (set_current == nullptr) {
    cudaDriverEntryPointQueryResult found;
    const auto find = [&](const char* symbol, void* function) {
      REAL(cudaGetDriverEntryPointByVersion)
      (symbol, static_cast<void**>(function), 12000, cudaEnableDefault, &found);
    };
    find("cuCtxGetCurrent", &get_current);
    find("cuCtxSetCurrent", &set_current);
  }
  CUcontext context = nullptr;
  get_current(&context);
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal, own;
  REAL(cudaThreadExchangeStreamCaptureMode)(&mode);
  own = mode;
  REAL(cudaThreadExchangeStreamCaptureMode)(&own);
  set_current(context);  // which asking for the mode may have changed
  return {context, mode};
}
