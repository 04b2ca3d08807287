#include "memory.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* The part of the driver's interface that is used here; CUdeviceptr is a 64-bit integer. */
static struct {
  int (*init)(unsigned int flags);
  int (*device_get)(int* device, int ordinal);
  int (*primary_context_retain)(void** context, int device);
  int (*context_set_current)(void* context);
  int (*allocate)(uint64_t* memory, size_t bytes);
  int (*upload)(uint64_t to, const void* from, size_t bytes);
  int (*download)(void* to, uint64_t from, size_t bytes);
  int (*free)(uint64_t memory);
} driver;

static int on_device = 0;

static int find(void* library, const char* name, void* function) {
  void* address = dlsym(library, name);
  memcpy(function, &address, sizeof(address));
  return address != NULL;
}

int memory_use_cuda(void) {
  int device = 0;
  void* context = NULL;
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return 0;
  on_device =
      find(library, "cuInit", &driver.init) && find(library, "cuDeviceGet", &driver.device_get) &&
      find(library, "cuDevicePrimaryCtxRetain", &driver.primary_context_retain) &&
      find(library, "cuCtxSetCurrent", &driver.context_set_current) &&
      find(library, "cuMemAlloc_v2", &driver.allocate) && find(library, "cuMemcpyHtoD_v2", &driver.upload) &&
      find(library, "cuMemcpyDtoH_v2", &driver.download) && find(library, "cuMemFree_v2", &driver.free) &&
      driver.init(0) == 0 && driver.device_get(&device, 0) == 0 &&
      driver.primary_context_retain(&context, device) == 0 && driver.context_set_current(context) == 0;
  return on_device;
}

/* An example has no better answer to a failing driver than to stop. */
static void must(int succeeded) {
  if (!succeeded) abort();
}

void* memory_allocate(size_t bytes) {
  uint64_t memory = 0;
  void* on_host = NULL;
  if (on_device) {
    must(driver.allocate(&memory, bytes) == 0);
    return (void*)(uintptr_t)memory;
  }
  on_host = malloc(bytes);
  must(on_host != NULL);
  return on_host;
}

void memory_upload(void* to, const void* from, size_t bytes) {
  if (on_device) {
    must(driver.upload((uint64_t)(uintptr_t)to, from, bytes) == 0);
  } else {
    memcpy(to, from, bytes);
  }
}

void memory_download(void* to, const void* from, size_t bytes) {
  if (on_device) {
    must(driver.download(to, (uint64_t)(uintptr_t)from, bytes) == 0);
  } else {
    memcpy(to, from, bytes);
  }
}

void memory_free(void* memory) {
  if (on_device) {
    must(driver.free((uint64_t)(uintptr_t)memory) == 0);
  } else {
    free(memory);
  }
}
