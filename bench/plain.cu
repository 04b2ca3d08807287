#include "plain.h"

#include <algorithm>
#include <initializer_list>
#include <stdexcept>

namespace bench {
namespace {

__global__ void nothing() {}

// One number's sign and exponent with another one's low bits: activations stay activations, also in place.
__device__ uint32_t mix(uint32_t a, uint32_t b) { return (a & 0x007f007fu) | (b & 0xff80ff80u); }
__device__ uint16_t mix(uint16_t a, uint16_t b) {
  return static_cast<uint16_t>(mix(uint32_t{a}, uint32_t{b}));
}
__device__ uint2 mix(uint2 a, uint2 b) { return {mix(a.x, b.x), mix(a.y, b.y)}; }
__device__ uint4 mix(uint4 a, uint4 b) {
  return {mix(a.x, b.x), mix(a.y, b.y), mix(a.z, b.z), mix(a.w, b.w)};
}

// Where vector `i` of a tensor of rows stands; lengths in vectors. Without gaps between rows there is nothing to
// divide.
template <bool gaps>
struct Place {
  int64_t i;
  uint32_t row = 0, column = 0;
  __device__ Place(int64_t vector, uint32_t row_vectors) : i(vector) {
    if (gaps) {
      row = static_cast<uint32_t>(i) / row_vectors;
      column = static_cast<uint32_t>(i) - row * row_vectors;
    }
  }
  __device__ int64_t of(int64_t pitch) const { return gaps ? row * pitch + column : i; }
};

template <class V>
struct Copy {
  const V* in;
  V* out;
  int64_t in_pitch, out_pitch, count;
  uint32_t row_vectors;
};

template <class V, bool gaps>
__device__ void move(const Copy<V>& c, int64_t i) {
  const Place<gaps> place(i, c.row_vectors);
  c.out[place.of(c.out_pitch)] = c.in[place.of(c.in_pitch)];
}

template <class V, bool gaps>
__global__ void copy_two(const __grid_constant__ Copy<V> q, const __grid_constant__ Copy<V> k) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < q.count) {
    move<V, gaps>(q, i);
  } else if (i < q.count + k.count) {
    move<V, gaps>(k, i - q.count);
  }
}

template <class V>
struct TwoReads {
  const V *a, *b;
  V* out;
  int64_t a_pitch, b_pitch, out_pitch, count;
  uint32_t row_vectors;
};

template <class V, bool gaps>
__global__ void two_reads(const __grid_constant__ TwoReads<V> t) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= t.count) return;
  const Place<gaps> place(i, t.row_vectors);
  const V a = t.a[place.of(t.a_pitch)], b = t.b[place.of(t.b_pitch)];
  t.out[place.of(t.out_pitch)] = mix(a, b);
}

unsigned blocks(int64_t n, int threads) { return static_cast<unsigned>((n + threads - 1) / threads); }

template <class V>
uint32_t row_vectors(int64_t rows, int64_t row_bytes) {
  const int64_t vectors = row_bytes / static_cast<int64_t>(sizeof(V));
  if (rows > 1 && rows * vectors > UINT32_MAX)
    throw std::runtime_error("too many vectors for a plain kernel");
  return static_cast<uint32_t>(vectors);
}

template <class V>
Copy<V> copy_of(const Strip& s) {
  constexpr int64_t size = sizeof(V);
  return {reinterpret_cast<const V*>(s.in.data),
          reinterpret_cast<V*>(s.out.data),
          s.in.pitch / size,
          s.out.pitch / size,
          s.rows * s.row_bytes / size,
          row_vectors<V>(s.rows, s.row_bytes)};
}

template <class V>
void launch(const Strips& s, int threads) {
  const Copy<V> q = copy_of<V>(s.q), k = copy_of<V>(s.k);
  const auto kernel = s.q.rows > 1 || s.k.rows > 1 ? copy_two<V, true> : copy_two<V, false>;
  kernel<<<blocks(q.count + k.count, threads), threads, 0, stream()>>>(q, k);
}

template <class V>
void launch(const Join& j, int threads) {
  constexpr int64_t size = sizeof(V);
  const TwoReads<V> t{reinterpret_cast<const V*>(j.a.data),
                      reinterpret_cast<const V*>(j.b.data),
                      reinterpret_cast<V*>(j.out.data),
                      j.a.pitch / size,
                      j.b.pitch / size,
                      j.out.pitch / size,
                      j.rows * j.row_bytes / size,
                      row_vectors<V>(j.rows, j.row_bytes)};
  const auto kernel = j.rows > 1 ? two_reads<V, true> : two_reads<V, false>;
  kernel<<<blocks(t.count, threads), threads, 0, stream()>>>(t);
}

template <class Task>
void launch(const Task& task, int vector_bytes, int threads) {
  switch (vector_bytes) {
    case 16: launch<uint4>(task, threads); break;
    case 8: launch<uint2>(task, threads); break;
    case 4: launch<uint32_t>(task, threads); break;
    default: launch<uint16_t>(task, threads);
  }
  check_cuda(cudaGetLastError(), "launching a plain kernel");
}

void merge_rows(std::initializer_list<Layout> layouts, int64_t& rows, int64_t& row_bytes) {
  if (std::any_of(layouts.begin(), layouts.end(), [&](const Layout& l) { return l.pitch != row_bytes; }))
    return;
  row_bytes *= rows;
  rows = 1;
}
Strip merged(Strip s) {
  merge_rows({s.in, s.out}, s.rows, s.row_bytes);
  return s;
}
Strips merged(const Strips& s) { return {merged(s.q), merged(s.k)}; }
Join merged(Join j) {
  merge_rows({j.a, j.b, j.out}, j.rows, j.row_bytes);
  return j;
}

// Bits that must be zero for wide vectors. A single row may lose its last few bytes.
int64_t bits_of(const Layout& l, int64_t rows) {
  return static_cast<int64_t>(reinterpret_cast<intptr_t>(l.data)) | (rows > 1 ? l.pitch : 0);
}
int64_t bits_of(int64_t rows, int64_t row_bytes) { return rows > 1 ? row_bytes : 0; }
int64_t bits_of(const Strip& s) {
  return bits_of(s.in, s.rows) | bits_of(s.out, s.rows) | bits_of(s.rows, s.row_bytes);
}
int64_t bits_of(const Strips& s) { return bits_of(s.q) | bits_of(s.k); }
int64_t bits_of(const Join& j) {
  return bits_of(j.a, j.rows) | bits_of(j.b, j.rows) | bits_of(j.out, j.rows) | bits_of(j.rows, j.row_bytes);
}
int64_t bytes_of(const Strips& s) { return 2 * (s.q.rows * s.q.row_bytes + s.k.rows * s.k.row_bytes); }
int64_t bytes_of(const Join& j) { return 3 * j.rows * j.row_bytes; }

// The widest vectors that every address allows, and the next narrower ones where a launch is so short that more
// threads may pay.
template <class Task>
std::vector<Work> plain(const std::function<Task(int set)>& task_of) {
  const Task first = merged(task_of(0));
  int64_t widest = 16;
  while (widest > 2 && bits_of(first) % widest != 0) widest /= 2;
  const bool small = bytes_of(first) < 8 << 20;
  std::vector<Work> works;
  for (int64_t width = widest; width >= (small ? std::max<int64_t>(widest / 2, 2) : widest); width /= 2) {
    for (const int threads : small ? std::vector<int>{64, 128, 256} : std::vector<int>{128, 256, 512, 1024}) {
      works.push_back({"plain " + std::to_string(width) + " B " + std::to_string(threads),
                       [=](int set) { launch(merged(task_of(set)), static_cast<int>(width), threads); }});
    }
  }
  return works;
}

}  // namespace

std::vector<Work> plain_copies(const std::function<Strips(int set)>& strips) { return plain(strips); }
std::vector<Work> plain_joins(const std::function<Join(int set)>& join) { return plain(join); }

Work memory_copy(const std::function<char*(int set)>& from, int64_t bytes) {
  return {"cudaMemcpyAsync", [=](int set) {
            check_cuda(cudaMemcpyAsync(from(set) + bytes, from(set), static_cast<size_t>(bytes),
                                       cudaMemcpyDeviceToDevice, stream()),
                       "copying");
          }};
}

void empty_kernel() {
  nothing<<<1, 1, 0, stream()>>>();
  check_cuda(cudaGetLastError(), "launching an empty kernel");
}

}  // namespace bench
