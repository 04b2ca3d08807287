// SHA-256 (FIPS 180-4), so that whole tables can be pinned by one line.
#pragma once

#include <cstddef>
#include <string>

namespace bitexact_reference {

// 64 hexadecimal digits, lower case.
std::string sha256(const void* data, size_t size);

}  // namespace bitexact_reference
