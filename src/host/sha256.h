// SHA-256 (FIPS 180-4), for recognising tables. Written here so that the library needs no other.
#pragma once

#include <cstddef>
#include <string>

namespace bitexact {

// As 64 lower-case hexadecimal digits.
std::string sha256(const void* data, size_t size);

}  // namespace bitexact
