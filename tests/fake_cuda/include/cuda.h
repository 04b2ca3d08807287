// The few driver types that the library names, for a build over the fake runtime.
#pragma once

using CUdevice = int;
using CUcontext = struct CUctx_st*;
enum CUresult { CUDA_SUCCESS = 0, CUDA_ERROR_UNKNOWN = 999 };
