// Arguments of the vector kernels of fused_silu_mul, and how threads are dealt out to rows. Plain C++.
#pragma once

#include <cstddef>

#include "args.h"
#include "reciprocal.h"

namespace bitexact {

// Thread i takes vector i % whole of row i / whole. Behind these threads, each takes one of the elements that no
// whole vector covers. Strides in bytes.
//
// A kernel waits for each 64 bytes of arguments that it comes to, which a call of few rows feels. CUDA puts them 16
// bytes behind the begin of such a line (on sm_90), so all that most threads need stands in the first 48 bytes.
struct SiluMulVectorArgs {
  const char *gate, *up;
  char* out;
  int32_t gate_step, up_step, out_step;  // what a row adds to i vectors: its stride less `whole` vectors
  uint32_t total;                        // vectors of all rows
  uint32_t whole_factor;                 // with whole_shift the reciprocal of `whole`; 0: one row
  uint16_t block;                        // threads of a block
  uint8_t whole_shift;

  int32_t gate_batch, up_batch, out_batch, gate_row, up_row, out_row;
  uint32_t rows, whole, rest, rest_total;  // vectors and single elements of a row; those of all rows
  float limit;
};
static_assert(offsetof(SiluMulVectorArgs, gate_batch) == 48, "the first line");

// Of a block. Small ones: when one ends, the next one's loads start at once. But large ones for many. Measured.
constexpr int vector_threads = 128, large_vector_threads = 1024;
constexpr uint32_t silu_mul_large = 1 << 20;  // vectors

inline SiluMulVectorArgs vector_args(const SiluMulArgs& a, int64_t vector_bytes) {
  const int64_t size = size_of(a.dtype), n = vector_bytes / size, whole = a.cols / n,
                rest = a.cols - whole * n;
  SiluMulVectorArgs v = {};
  auto place = [&](const Rows& x, int32_t& step, int32_t& row, int32_t& batch) {
    row = static_cast<int32_t>(x.row * size);
    step = static_cast<int32_t>(x.row * size - whole * vector_bytes);
    batch = static_cast<int32_t>(x.batch * size);
    return static_cast<char*>(x.data);
  };
  v.gate = place(a.gate, v.gate_step, v.gate_row, v.gate_batch);
  v.up = place(a.up, v.up_step, v.up_row, v.up_batch);
  v.out = place(a.out, v.out_step, v.out_row, v.out_batch);
  v.total = static_cast<uint32_t>(a.rows * whole);
  if (a.rows > 1) {
    const Reciprocal r = reciprocal(whole);
    v.whole_factor = r.factor;
    v.whole_shift = r.shift;
  }
  v.block = v.total < silu_mul_large ? vector_threads : large_vector_threads;
  v.rows = static_cast<uint32_t>(a.rows);
  v.whole = static_cast<uint32_t>(whole);
  v.rest = static_cast<uint32_t>(rest);
  v.rest_total = static_cast<uint32_t>(a.rows * rest);
  v.limit = a.limit;
  return v;
}

}  // namespace bitexact
