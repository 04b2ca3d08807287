// SHA-256 (FIPS 180-4), for recognising tables. Written here so that the library needs no other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace bitexact {

std::array<uint8_t, 32> sha256(const void* data, size_t size);

}  // namespace bitexact
