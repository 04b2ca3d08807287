// What the process knows about each CUDA device: found once, shared by all contexts, never freed, since
// static destructors must not call a driver that may be gone.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace bitexact {

// The driver functions used, found through the runtime: the library links to no driver.
struct Driver {
  CUresult (*ctx_get_current)(CUcontext*);
  CUresult (*ctx_set_current)(CUcontext);
  CUresult (*ctx_get_device)(CUdevice*);
  CUresult (*ctx_push_current)(CUcontext);
  CUresult (*ctx_pop_current)(CUcontext*);
};

struct CudaDevice {
  int32_t ordinal;
  CUcontext primary;
  Driver driver;
  char name[256];
  int32_t architecture, image_architecture, driver_version;
  bool from_ptx;
  bool has_memory_pools;
};

// Maps a CUDA error to a status, records its text, and clears the runtime's own error slot.
int32_t cuda_failure(cudaError_t error, const char* what);

// For calls whose failure changes nothing that is promised: clears the error slot; true if there was none.
bool forgiven(cudaError_t error);

// Device `ordinal`, its kernels loaded.
int32_t find_cuda_device(int32_t ordinal, const CudaDevice*& device);

// A zeroed counter in device memory that outlives any graph which writes to it; give it back when done.
int32_t take_counter(const CudaDevice& device, unsigned long long*& counter);
void give_counter_back(const CudaDevice& device, unsigned long long* counter);

// Lets this thread do what a global-mode capture on another thread forbids, without disturbing it.
class RelaxedCapture {
 public:
  RelaxedCapture() : exchanged_(exchange()) {}
  ~RelaxedCapture() {
    if (exchanged_) exchange();
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  bool exchange() { return forgiven(cudaThreadExchangeStreamCaptureMode(&mode_)); }

  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
  bool exchanged_;
};

}  // namespace bitexact
