// The part of the DLPack 1 C interface that the fast path reads; layouts are fixed by that standard.
#pragma once

#include <cstdint>

namespace dlpack {

constexpr int32_t cpu = 1;
constexpr int32_t cuda = 2;
constexpr int32_t cuda_host = 3;
constexpr int32_t cuda_managed = 13;

constexpr uint8_t code_int = 0;
constexpr uint8_t code_float = 2;
constexpr uint8_t code_bfloat = 4;
constexpr uint8_t code_complex = 5;

struct Device {
  int32_t type;
  int32_t id;
};

struct DataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};

struct Tensor {
  void* data;
  Device device;
  int32_t ndim;
  DataType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};

// The table behind the capsule `__dlpack_c_exchange_api__` of a tensor type.
struct ExchangeApi {
  uint32_t major;
  uint32_t minor;
  const ExchangeApi* previous;
  void* allocate;
  void* export_managed;
  void* import_managed;
  int (*view)(void* object, Tensor* out);
  int (*current_stream)(int32_t device_type, int32_t device_id, void** out);
};

}  // namespace dlpack
