// The limits that kernels are held against: plain kernels that move the same bytes in the same layout, a vector a
// thread, in several block sizes; for large ones cudaMemcpyAsync too; and a kernel that does nothing.
#pragma once

#include <functional>

#include "harness.h"

namespace bench {

// Rows of `row_bytes` in memory, `pitch` bytes from one to the next.
struct Layout {
  char* data;
  int64_t pitch;
};

// Copied by the plain kernel. Rows that follow each other without a gap are one long row.
struct Strip {
  Layout in, out;
  int64_t rows, row_bytes;
};

// Read twice and written once by the plain kernel.
struct Join {
  Layout a, b, out;
  int64_t rows, row_bytes;
};

struct Strips {
  Strip q, k;
};

// Works named "plain ...", of which the fastest is the limit.
std::vector<Work> plain_copies(const std::function<Strips(int set)>& strips);
std::vector<Work> plain_joins(const std::function<Join(int set)>& join);

// Named "cudaMemcpyAsync".
Work memory_copy(const std::function<char*(int set)>& from, int64_t bytes);  // to the bytes that follow

void empty_kernel();

}  // namespace bench
