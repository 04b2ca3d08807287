#include "inputs.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "bitexact.h"
#include "harness.h"

namespace bench {
namespace {

__device__ uint32_t scrambled(int64_t i) {
  uint32_t x = static_cast<uint32_t>(i) * 2654435761u + static_cast<uint32_t>(i >> 32);
  x = (x ^ (x >> 15)) * 0x2c1b3c6du;
  return x ^ (x >> 12);
}

// Two 16-bit numbers a word; the second one is the upper half of a float32.
__global__ void activations(uint32_t* words, int64_t n, bool half) {
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n;
       i += int64_t{gridDim.x} * blockDim.x) {
    const uint32_t x = scrambled(i), e1 = (x >> 3) % 6, e2 = (x >> 19) % 6;
    words[i] = half ? (x & 0x83ff83ffu) | (12 + e1) << 10 | (12 + e2) << 26
                    : (x & 0x807f807fu) | (124 + e1) << 7 | (124 + e2) << 23;
  }
}

__global__ void same(uint32_t* words, int64_t n, uint32_t word) {
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n;
       i += int64_t{gridDim.x} * blockDim.x) {
    words[i] = word;
  }
}

template <class T>
__global__ void rotations(T* cos, T* sin, int64_t rows, int64_t width, bool full, bool interleaved) {
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < rows * width;
       i += int64_t{gridDim.x} * blockDim.x) {
    const int64_t row = i / width, entry = i % width;
    const int64_t pair = !full ? entry : interleaved ? entry / 2 : entry % (width / 2);
    const double angle = scrambled(row * width + pair) * (2.0 / 4294967296.0);  // half turns
    cos[i] = static_cast<T>(static_cast<float>(cospi(angle)));
    sin[i] = static_cast<T>(static_cast<float>(sinpi(angle)));
  }
}

template <class T>
void fill(const Tables& t) {
  rotations<<<2048, 256, 0, stream()>>>(static_cast<T*>(t.cos), static_cast<T*>(t.sin), t.rows, t.width,
                                        t.full, t.interleaved);
}

}  // namespace

const char* dtype_name(int32_t dtype) {
  switch (dtype) {
    case BITEXACT_DTYPE_BFLOAT16: return "bfloat16";
    case BITEXACT_DTYPE_FLOAT16: return "float16";
    default: return "float32";
  }
}

int64_t dtype_bytes(int32_t dtype) { return dtype == BITEXACT_DTYPE_FLOAT32 ? 4 : 2; }

void fill_activations(void* memory, int64_t bytes, int32_t dtype) {
  activations<<<2048, 256, 0, stream()>>>(static_cast<uint32_t*>(memory), bytes / 4,
                                          dtype == BITEXACT_DTYPE_FLOAT16);
  check_cuda(cudaStreamSynchronize(stream()), "filling with activations");
}

void fill_gates_of_one(void* memory, int64_t bytes) {
  same<<<2048, 256, 0, stream()>>>(static_cast<uint32_t*>(memory), bytes / 4, 0x3fa43fa4u);  // 1.28125
  check_cuda(cudaStreamSynchronize(stream()), "filling with gates");
}

void fill_rotations(const Tables& tables) {
  switch (tables.dtype) {
    case BITEXACT_DTYPE_BFLOAT16: fill<__nv_bfloat16>(tables); break;
    case BITEXACT_DTYPE_FLOAT16: fill<__half>(tables); break;
    default: fill<float>(tables);
  }
  check_cuda(cudaStreamSynchronize(stream()), "filling with rotations");
}

}  // namespace bench
