#include "check_common.h"

namespace bitexact {
namespace {

int32_t check_pointer(const void* pointer, int64_t alignment, const char* name) {
  if (pointer == nullptr) {
    return fail(BITEXACT_STATUS_NULL_POINTER, "%s is null; accepted: null only where a size is zero", name);
  }
  if (is_multiple(pointer, alignment)) return BITEXACT_STATUS_OK;
  return fail(BITEXACT_STATUS_UNALIGNED, "%s is %p; accepted: multiples of %" PRId64 " bytes", name, pointer,
              alignment);
}

int32_t too_large(const char* name) {
  return fail(BITEXACT_STATUS_TOO_LARGE, "%s reaches a byte offset beyond 63 bits; accepted: less", name);
}

}  // namespace

int32_t check_tensor(const char* name, const void* data, int64_t size, int64_t run,
                     std::initializer_list<Axis> axes, NamedRegion& to) {
  BITEXACT_TRY(check_pointer(data, size, name));
  to.name = name;
  to.region.base = reinterpret_cast<uintptr_t>(data);
  if (!to.region.set_run(run, size)) return too_large(name);
  for (const Axis& axis : axes) {
    if (!to.region.add_axis(axis.count, axis.stride, size)) return too_large(name);
  }
  return BITEXACT_STATUS_OK;
}

}  // namespace bitexact
