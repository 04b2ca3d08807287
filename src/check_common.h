// Checks that both operations share.
#pragma once

#include <cinttypes>
#include <initializer_list>

#include "args.h"
#include "bitexact.h"
#include "overlap.h"
#include "status.h"
#include "variants.h"

namespace bitexact {

// Runs a check that returns a status; leaves the calling function with it if it is not OK.
#define BITEXACT_TRY(expression)                                               \
  do {                                                                         \
    const int32_t bitexact_try_status = (expression);                          \
    if (bitexact_try_status != BITEXACT_STATUS_OK) return bitexact_try_status; \
  } while (0)

inline int32_t check_tensor_dtype(int32_t dtype) {
  if (dtype >= BITEXACT_DTYPE_FLOAT32 && dtype <= BITEXACT_DTYPE_BFLOAT16) return BITEXACT_STATUS_OK;
  return fail(BITEXACT_STATUS_INVALID_VALUE, "dtype is %d; accepted: FLOAT32 (1), FLOAT16 (2), BFLOAT16 (3)",
              dtype);
}

inline int32_t check_range(int32_t value, int32_t last, const char* name) {
  if (value >= 0 && value <= last) return BITEXACT_STATUS_OK;
  return fail(BITEXACT_STATUS_INVALID_VALUE, "%s is %d; accepted: 0 to %d", name, value, last);
}

inline int32_t check_flags(uint32_t flags, uint32_t known) {
  if ((flags & ~known) == 0) return BITEXACT_STATUS_OK;
  return fail(BITEXACT_STATUS_UNKNOWN_FIELD, "flags is 0x%x; accepted bits: 0x%x", flags, known);
}

inline int32_t check_zero(int32_t value, const char* name) {
  if (value == 0) return BITEXACT_STATUS_OK;
  return fail(BITEXACT_STATUS_UNKNOWN_FIELD, "%s is %d; accepted: 0", name, value);
}

inline int32_t check_size(int64_t value, const char* name) {
  if (value >= 0) return BITEXACT_STATUS_OK;
  return fail(BITEXACT_STATUS_INVALID_SHAPE, "%s is %" PRId64 "; accepted: >= 0", name, value);
}

// A tensor as the checks see it: where it lies, and its name in messages.
struct NamedRegion {
  const char* name;
  Region region;
};

// Steps of so many elements.
struct Axis {
  int64_t count, stride;
};

// Where a tensor lies whose last axis is `run` elements side by side.
int32_t check_tensor(const char* name, const void* data, int64_t size, int64_t run,
                     std::initializer_list<Axis> axes, NamedRegion& to);

inline int32_t check_disjoint(const NamedRegion& out, const NamedRegion& other) {
  if (!overlap(out.region, other.region)) return BITEXACT_STATUS_OK;
  return fail(BITEXACT_STATUS_OVERLAP,
              "%s overlaps %s; accepted: no common byte, or exactly in place (same pointer and strides)",
              out.name, other.name);
}

inline int32_t check_output(const NamedRegion& out) {
  if (!overlaps_itself(out.region)) return BITEXACT_STATUS_OK;
  return fail(BITEXACT_STATUS_INVALID_STRIDE,
              "%s: its strides visit an element twice; accepted: outputs without internal overlap", out.name);
}

}  // namespace bitexact
