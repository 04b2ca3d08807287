// Grid sizes within CUDA's limits: kernels stride over what does not fit.
#pragma once

#include <algorithm>
#include <cstdint>

namespace bitexact {

inline unsigned grid_x(int64_t blocks) { return static_cast<unsigned>(std::min<int64_t>(blocks, INT32_MAX)); }
inline unsigned grid_yz(int64_t blocks) { return static_cast<unsigned>(std::min<int64_t>(blocks, 65535)); }
inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace bitexact
