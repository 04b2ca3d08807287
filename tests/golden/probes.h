// The gate's probes as calls of tests/reference, and the digests of what it gives there.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "generate.h"
#include "kernel_table.h"
#include "probe.h"
#include "reference/reference.h"

namespace bitexact_golden {

inline int kernel_of_probe(int probe) {
  int kernel = 0;
  while (bitexact::probe_of(kernel) != probe) ++kernel;
  return kernel;
}

// Only CUDA's expf gives all bits of these; see reference.h.
inline bool needs_cuda(int kernel) {
  if (bitexact::is_rope(kernel)) return false;
  const bitexact::SiluMulArgs a = bitexact::silu_mul_kernel(kernel).args;
  return a.dtype == bitexact::Dtype::float32 || a.compute_float32;
}

inline void run_reference(const bitexact::SiluMulArgs& a) {
  bitexact_silu_mul_params p = BITEXACT_SILU_MUL_PARAMS_INIT;
  p.dtype = static_cast<int32_t>(a.dtype);
  p.compute_dtype = a.compute_float32 ? BITEXACT_DTYPE_FLOAT32 : 0;
  p.silu = static_cast<int32_t>(a.silu);
  p.clamp = static_cast<int32_t>(a.clamp);
  std::memcpy(&p.limit_bits, &a.limit, sizeof(p.limit_bits));
  p.batches = a.batches, p.rows = a.rows, p.cols = a.cols;
  p.gate = a.gate.data, p.gate_batch_stride = a.gate.batch, p.gate_row_stride = a.gate.row;
  p.up = a.up.data, p.up_batch_stride = a.up.batch, p.up_row_stride = a.up.row;
  p.out = a.out.data, p.out_batch_stride = a.out.batch, p.out_row_stride = a.out.row;
  bitexact_reference::silu_mul(p);
}

inline void run_reference(const bitexact::RopeArgs& a) {
  bitexact_rope_params p = BITEXACT_ROPE_PARAMS_INIT;
  p.flags = (a.inverse ? BITEXACT_ROPE_INVERSE : 0) | (a.sum_from_zero ? BITEXACT_ROPE_SUM_FROM_ZERO : 0);
  p.dtype = static_cast<int32_t>(a.dtype);
  p.table_dtype = static_cast<int32_t>(a.table_dtype);
  p.compute_dtype = static_cast<int32_t>(a.compute_dtype);
  p.combine = static_cast<int32_t>(a.combine);
  p.pairing_in = static_cast<int32_t>(a.pairing_in), p.pairing_out = static_cast<int32_t>(a.pairing_out);
  p.batches = a.batches, p.tokens = a.tokens, p.q_heads = a.heads[0], p.k_heads = a.heads[1];
  p.head_dim = a.head_dim, p.rotary_dim = a.rotary_dim, p.table_rows = a.table_rows;
  p.table_width = a.full_table ? a.rotary_dim : a.rotary_dim / 2;
  p.q_in = a.in[0].data;
  p.q_in_batch_stride = a.in[0].batch, p.q_in_token_stride = a.in[0].token, p.q_in_head_stride = a.in[0].head;
  p.q_out = a.out[0].data, p.q_out_batch_stride = a.out[0].batch;
  p.q_out_token_stride = a.out[0].token, p.q_out_head_stride = a.out[0].head;
  p.k_in = a.in[1].data;
  p.k_in_batch_stride = a.in[1].batch, p.k_in_token_stride = a.in[1].token, p.k_in_head_stride = a.in[1].head;
  p.k_out = a.out[1].data, p.k_out_batch_stride = a.out[1].batch;
  p.k_out_token_stride = a.out[1].token, p.k_out_head_stride = a.out[1].head;
  p.cos = a.cos.data, p.cos_batch_stride = a.cos.batch, p.cos_token_stride = a.cos.token;
  p.cos_head_stride = a.cos.head, p.cos_element_stride = a.cos.element;
  p.sin = a.sin.data, p.sin_batch_stride = a.sin.batch, p.sin_token_stride = a.sin.token;
  p.sin_head_stride = a.sin.head, p.sin_element_stride = a.sin.element;
  p.positions = a.positions.data, p.positions_dtype = static_cast<int32_t>(a.positions.dtype);
  p.positions_batch_stride = a.positions.batch, p.positions_token_stride = a.positions.token;
  bitexact_reference::rope(p, nullptr);
}

template <class Args>
uint64_t digest_by_reference(const Args& kernel) {
  auto probe = bitexact::make_probe(kernel);
  uint64_t place = 0, sum = 0;
  for (const Args& a : probe.cases) {
    std::vector<uint8_t> scratch(static_cast<size_t>(bitexact::scratch_bytes(a)));
    const Args call = bitexact::redirected(bitexact::located(a, probe.inputs.data()), scratch.data());
    run_reference(call);
    for (int which = 0; which < 2; ++which) {
      const int64_t count = bitexact::output_elements(call, which);
      const bitexact::View out = bitexact::output_view(call, which, 0);
      const int64_t size = bitexact::size_of(call.dtype);
      for (int64_t i = 0; i < count; ++i) {
        const int64_t d = i % out.shape[3], h = i / out.shape[3];
        const int64_t h2 = h % out.shape[2], t = h / out.shape[2], t2 = t % out.shape[1],
                      b = t / out.shape[1];
        uint64_t bits = 0;
        std::memcpy(&bits,
                    static_cast<const char*>(out.data) +
                        (b * out.stride[0] + t2 * out.stride[1] + h2 * out.stride[2] + d) * size,
                    static_cast<size_t>(size));
        sum += mix(place++ << 32 | bits);
      }
    }
  }
  return sum;
}

inline uint64_t digest_by_reference(int kernel) {
  return bitexact::is_rope(kernel) ? digest_by_reference(bitexact::rope_kernel(kernel).args)
                                   : digest_by_reference(bitexact::silu_mul_kernel(kernel).args);
}

}  // namespace bitexact_golden
