#pragma once

namespace bitexact {

// Version, source revision, compilers, architectures: written by CMake.
extern const char* const build_info;

}  // namespace bitexact
