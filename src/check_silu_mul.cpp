#include <cstring>

#include "check.h"
#include "check_common.h"
#include "params.h"
#include "reference_numeric.h"

namespace bitexact {
namespace {

int32_t check_rows(const char* name, const SiluMulArgs& a, const Rows& rows, NamedRegion& to) {
  return check_tensor(name, rows.data, size_of(a.dtype), a.cols,
                      {{a.rows, rows.row}, {a.batches, rows.batch}}, to);
}

bool in_place(const SiluMulArgs& a, const Rows& in) {
  return a.out.data == in.data && (a.rows <= 1 || a.out.row == in.row) &&
         (a.batches <= 1 || a.out.batch == in.batch);
}

// In float32 two roundings are none, so that one is no choice.
bool has_one_rounding(const bitexact_silu_mul_params& p) {
  return p.compute_dtype == BITEXACT_DTYPE_FLOAT32 && p.dtype != BITEXACT_DTYPE_FLOAT32;
}

// Does the dtype that the clamp computes in hold the limit as a finite number above 0? Limited to 0, zeros of
// either sign would be equal.
bool is_limit(const bitexact_silu_mul_params& p) {
  constexpr uint32_t infinity = 0x7f800000;
  float limit;
  std::memcpy(&limit, &p.limit_bits, sizeof(limit));
  const Dtype computes_in = has_one_rounding(p) ? Dtype::float32 : static_cast<Dtype>(p.dtype);
  return p.limit_bits < infinity && reference::round_bits(limit, computes_in) != 0;
}

// Which of the numerics there are, and what is said of the others.
int32_t check_numerics(const bitexact_silu_mul_params& p) {
  BITEXACT_TRY(check_range(p.silu, BITEXACT_SILU_GLU, "silu"));
  BITEXACT_TRY(check_range(p.clamp, BITEXACT_CLAMP_AFTER, "clamp"));
  if (p.compute_dtype != 0 && p.compute_dtype != BITEXACT_DTYPE_FLOAT32) {
    return fail(BITEXACT_STATUS_INVALID_VALUE, "compute_dtype is %d; accepted: 0, FLOAT32 (1)",
                p.compute_dtype);
  }
  if (p.silu == BITEXACT_SILU_CANDLE && p.dtype == BITEXACT_DTYPE_FLOAT32) {
    return fail(
        BITEXACT_STATUS_UNSUPPORTED,
        "silu is CANDLE with dtype FLOAT32; accepted: FLOAT16, BFLOAT16 (in float32 candle computes ATEN)");
  }
  const bool one_rounding = has_one_rounding(p);
  if (one_rounding && p.silu != BITEXACT_SILU_ATEN && p.silu != BITEXACT_SILU_GLU) {
    return fail(BITEXACT_STATUS_UNSUPPORTED,
                "compute_dtype is FLOAT32 with silu %d; accepted: silu ATEN (0), GLU (3)", p.silu);
  }
  if (p.clamp != BITEXACT_CLAMP_NONE && p.silu != BITEXACT_SILU_ATEN) {
    return fail(BITEXACT_STATUS_UNSUPPORTED, "clamp is %d with silu %d; accepted: silu ATEN (0)", p.clamp,
                p.silu);
  }
  if (p.clamp == BITEXACT_CLAMP_AFTER && one_rounding) {
    return fail(BITEXACT_STATUS_UNSUPPORTED,
                "clamp is AFTER (2) with compute_dtype FLOAT32; accepted: compute_dtype 0");
  }
  if (p.clamp == BITEXACT_CLAMP_NONE ? p.limit_bits == 0 : is_limit(p)) return BITEXACT_STATUS_OK;
  return fail(
      BITEXACT_STATUS_INVALID_VALUE,
      "limit_bits is 0x%x with clamp %d; accepted: the bits of a finite float32 that rounds to more than 0 "
      "with a clamp, 0 without one",
      p.limit_bits, p.clamp);
}

// Everything but pointers and strides.
int32_t check_fields(const bitexact_silu_mul_params& p, SiluMulArgs& a, bool& empty) {
  BITEXACT_TRY(check_flags(p.flags, 0));
  BITEXACT_TRY(check_zero(p.reserved, "reserved"));
  BITEXACT_TRY(check_tensor_dtype(p.dtype));
  BITEXACT_TRY(check_numerics(p));
  BITEXACT_TRY(check_size(p.batches, "batches"));
  BITEXACT_TRY(check_size(p.rows, "rows"));
  BITEXACT_TRY(check_size(p.cols, "cols"));
  empty = p.batches == 0 || p.rows == 0 || p.cols == 0;
  a.dtype = static_cast<Dtype>(p.dtype);
  a.compute_float32 = has_one_rounding(p);
  a.clamp = static_cast<Clamp>(p.clamp);
  a.silu = static_cast<Silu>(p.silu);
  std::memcpy(&a.limit, &p.limit_bits, sizeof(a.limit));
  a.batches = p.batches;
  a.rows = p.rows;
  a.cols = p.cols;
  // The kernels do not write to what they only read.
  a.gate = {const_cast<void*>(p.gate), p.gate_batch_stride, p.gate_row_stride};
  a.up = {const_cast<void*>(p.up), p.up_batch_stride, p.up_row_stride};
  a.out = {p.out, p.out_batch_stride, p.out_row_stride};
  return BITEXACT_STATUS_OK;
}

}  // namespace

int32_t check(const bitexact_silu_mul_params* params, SiluMulArgs& a, bool& empty) {
  bitexact_silu_mul_params space;
  const bitexact_silu_mul_params* p;
  BITEXACT_TRY(read_in(params, "params", space, p));
  BITEXACT_TRY(check_fields(*p, a, empty));
  if (empty) return BITEXACT_STATUS_OK;
  NamedRegion gate, up, out;
  BITEXACT_TRY(check_rows("gate", a, a.gate, gate));
  BITEXACT_TRY(check_rows("up", a, a.up, up));
  BITEXACT_TRY(check_rows("out", a, a.out, out));
  BITEXACT_TRY(check_output(out));
  if (!in_place(a, a.gate)) BITEXACT_TRY(check_disjoint(out, gate));
  if (!in_place(a, a.up)) BITEXACT_TRY(check_disjoint(out, up));
  collapse(a);
  return BITEXACT_STATUS_OK;
}

int32_t check(const bitexact_silu_mul_reference* reference, const bitexact_silu_mul_params* params,
              SiluMulArgs& to) {
  bitexact_silu_mul_reference r;
  BITEXACT_TRY(copy_in(reference, "reference", r));
  BITEXACT_TRY(check_flags(r.flags, 0));
  bitexact_silu_mul_params p;
  BITEXACT_TRY(copy_in(params, "params", p));
  bool empty = false;
  BITEXACT_TRY(check_fields(p, to, empty));
  to.out = {const_cast<void*>(r.out), r.out_batch_stride, r.out_row_stride};
  NamedRegion region;
  return check_rows("reference->out", to, to.out, region);
}

}  // namespace bitexact
