#include "status.h"

#include <cstdarg>
#include <cstdio>

#include "bitexact.h"

namespace bitexact {
namespace {

thread_local const char* function_at_work = "";
thread_local const char* last_text = "";
thread_local int32_t last_cuda = 0;
thread_local char buffer[1024];

}  // namespace

void set_function(const char* function) { function_at_work = function; }

int32_t fail(int32_t status, const char* format, ...) {
  int used = std::snprintf(buffer, sizeof(buffer), "%s: ", function_at_work);
  if (used < 0 || used >= static_cast<int>(sizeof(buffer))) used = 0;
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(buffer + used, sizeof(buffer) - static_cast<size_t>(used), format, arguments);
  va_end(arguments);
  last_text = buffer;
  last_cuda = 0;
  return status;
}

int32_t fail_cuda(int32_t status, int32_t cuda_error, const char* cuda_text, const char* what) {
  fail(status, "%s: CUDA error %d (%s)", what, cuda_error, cuda_text);
  last_cuda = cuda_error;
  return status;
}

int32_t answer(int32_t status, const char* static_text) {
  last_text = static_text;
  last_cuda = 0;
  return status;
}

const char* last_error() { return last_text; }
int32_t last_cuda_error() { return last_cuda; }

const char* status_string(int32_t status) {
  switch (status) {
    case BITEXACT_STATUS_OK: return "OK";
    case BITEXACT_STATUS_NULL_POINTER: return "NULL_POINTER: a required pointer is null";
    case BITEXACT_STATUS_STRUCT_SIZE: return "STRUCT_SIZE: struct_size is no version of the struct";
    case BITEXACT_STATUS_UNKNOWN_FIELD: return "UNKNOWN_FIELD: a flag, reserved or newer member is not zero";
    case BITEXACT_STATUS_INVALID_VALUE: return "INVALID_VALUE: a constant is none of the accepted ones";
    case BITEXACT_STATUS_INVALID_SHAPE: return "INVALID_SHAPE: a size is negative or does not fit the others";
    case BITEXACT_STATUS_INVALID_STRIDE: return "INVALID_STRIDE: an output visits one element twice";
    case BITEXACT_STATUS_OVERLAP: return "OVERLAP: an output overlaps another tensor, not exactly in place";
    case BITEXACT_STATUS_TOO_LARGE: return "TOO_LARGE: a byte offset does not fit 63 bits";
    case BITEXACT_STATUS_UNALIGNED: return "UNALIGNED: a pointer is not aligned to its dtype";
    case BITEXACT_STATUS_INVALID_STREAM: return "INVALID_STREAM: a host context takes a null stream only";
    case BITEXACT_STATUS_INVALID_DEVICE: return "INVALID_DEVICE: no such device ordinal";
    case BITEXACT_STATUS_INDEX: return "INDEX: a kernel index is out of range";
    case BITEXACT_STATUS_API_VERSION: return "API_VERSION: the library is older than the table asked for";
    case BITEXACT_STATUS_ENVIRONMENT: return "ENVIRONMENT: BITEXACT_GATE holds an unknown policy";
    case BITEXACT_STATUS_UNSUPPORTED: return "UNSUPPORTED: well-formed, but this build has no such kernel";
    case BITEXACT_STATUS_FORKED: return "FORKED: the context was made before fork(); make one in the child";
    case BITEXACT_STATUS_WRONG_MODE: return "WRONG_MODE: the call does not fit the context's reference mode";
    case BITEXACT_STATUS_NO_DRIVER: return "NO_DRIVER: no CUDA driver on this machine";
    case BITEXACT_STATUS_NO_DEVICE: return "NO_DEVICE: a CUDA driver, but no device";
    case BITEXACT_STATUS_DRIVER_TOO_OLD: return "DRIVER_TOO_OLD: the driver is older than the CUDA runtime";
    case BITEXACT_STATUS_NO_KERNEL_IMAGE: return "NO_KERNEL_IMAGE: no machine code or PTX for this device";
    case BITEXACT_STATUS_OUT_OF_MEMORY: return "OUT_OF_MEMORY: host or device memory";
    case BITEXACT_STATUS_CUDA_ERROR: return "CUDA_ERROR: see bitexact_last_cuda_error()";
    case BITEXACT_STATUS_NO_CUDA_BACKEND: return "NO_CUDA_BACKEND: the library was built without CUDA";
    case BITEXACT_STATUS_HOST_LIBM: return "HOST_LIBM: this libm's expf is not the one the contract names";
    case BITEXACT_STATUS_INTERNAL:
      return "INTERNAL: a defect of the library, or a device that computes wrongly";
    case BITEXACT_STATUS_UNVERIFIED: return "UNVERIFIED: run eager, then hand its result to ..._verify";
    case BITEXACT_STATUS_DECLINED: return "DECLINED: not proven equal, for good; run eager";
    case BITEXACT_STATUS_CAPTURING: return "CAPTURING: undecided and the stream is capturing; run eager";
    default: return "unknown status";
  }
}

}  // namespace bitexact
