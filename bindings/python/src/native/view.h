// A tensor as pointer, sizes and strides, read without a copy of anything.
#pragma once

#include <array>
#include <cstdint>

#include "torch.h"

namespace libbitexact {

constexpr int max_dims = 8;

struct View {
  char* data = nullptr;
  int ndim = 0;
  std::array<int64_t, max_dims> shape{}, strides{};
  int32_t dtype = 0;        // BITEXACT_DTYPE value; of the parts, if complex
  int64_t size = 0;         // bytes of an element; of a part, if complex
  bool is_complex = false;  // strides count parts then
  int device = 0;           // CUDA ordinal or BITEXACT_DEVICE_HOST
};

bool is_plain_type(PyObject* object);

// A tensor of exactly torch.Tensor or Parameter whose bytes are what they look like. Returns 0 or a code.
int read_plain(PyObject* object, View& view);

// Same device, dtype and shape? Returns 0 or a code.
int same_kind(const View& a, const View& b);

// A dtype that the kernels rotate and multiply.
bool is_floating(const View& view);

}  // namespace libbitexact
