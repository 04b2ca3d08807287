// The size-first rule for structs that cross the ABI.
#pragma once

#include <cstdint>
#include <cstring>

#include "bitexact.h"
#include "status.h"

namespace bitexact {

// The smallest struct_size that carries anything: the size and the flags themselves. The greatest is more
// than any struct will need, so that a caller's garbage is not read as a length.
constexpr uint32_t least_struct_size = 8, greatest_struct_size = 4096;

template <class T>
int32_t check_struct(const T* s, const char* name) {
  if (s == nullptr) return fail(BITEXACT_STATUS_NULL_POINTER, "%s is null; a struct is required", name);
  if (s->struct_size >= least_struct_size && s->struct_size <= greatest_struct_size)
    return BITEXACT_STATUS_OK;
  return fail(BITEXACT_STATUS_STRUCT_SIZE, "%s->struct_size is %u; accepted: %zu (use the initialiser)", name,
              s->struct_size, sizeof(T));
}

// Copies a caller's struct. A shorter one reads as zero beyond its end; the unknown tail of a longer one
// must be zero, since it asks for something this library cannot read.
template <class T>
int32_t copy_in(const T* from, const char* name, T& to) {
  const int32_t status = check_struct(from, name);
  if (status != BITEXACT_STATUS_OK) return status;
  const uint32_t size = from->struct_size;
  if (size == sizeof(T)) {
    std::memcpy(&to, from, sizeof(T));
    return BITEXACT_STATUS_OK;
  }
  std::memset(&to, 0, sizeof(T));
  std::memcpy(&to, from, size < sizeof(T) ? size : sizeof(T));
  const auto* bytes = reinterpret_cast<const unsigned char*>(from);
  for (uint32_t i = sizeof(T); i < size; ++i) {
    if (bytes[i] != 0) {
      return fail(BITEXACT_STATUS_UNKNOWN_FIELD,
                  "%s: byte %u of a struct of %u is not zero; this library knows %zu bytes", name, i, size,
                  sizeof(T));
    }
  }
  return BITEXACT_STATUS_OK;
}

// The caller's struct itself where it has every field, else a copy made in `space`.
template <class T>
int32_t read_in(const T* from, const char* name, T& space, const T*& to) {
  to = from;
  if (from != nullptr && from->struct_size == sizeof(T)) return BITEXACT_STATUS_OK;
  to = &space;
  return copy_in(from, name, space);
}

// Writes a report up to the caller's struct_size; a longer struct is zeroed beyond what is known.
template <class T>
int32_t copy_out(const T& from, const char* name, T* to) {
  const int32_t status = check_struct(to, name);
  if (status != BITEXACT_STATUS_OK) return status;
  const uint32_t size = to->struct_size;
  auto* bytes = reinterpret_cast<unsigned char*>(to);
  if (size > sizeof(T)) std::memset(bytes + sizeof(T), 0, size - sizeof(T));
  std::memcpy(bytes, &from, size < sizeof(T) ? size : sizeof(T));
  to->struct_size = size;
  return BITEXACT_STATUS_OK;
}

template <class T>
void initialise(T* to) {
  if (to == nullptr) return;
  std::memset(to, 0, sizeof(T));
  to->struct_size = sizeof(T);
}

}  // namespace bitexact
