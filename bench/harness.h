// Measures works against each other in one run: every one through a CUDA graph over rotating buffers that
// together exceed the second-level cache several times, in turns, several rounds; the median counts.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace bench {

// Ends the program with the message of a failed CUDA or library call.
void check_cuda(int error, const char* what);
void check_status(int32_t status, const char* what);

const char* dtype_name(int32_t dtype);  // of a BITEXACT_DTYPE

struct Work {
  std::string name;
  std::function<void(int buffer)> enqueue;  // on stream()
};

struct Measurement {
  std::string name;
  double median_us, p10_us, p90_us;
};

cudaStream_t stream();

// Device memory of random numbers that look like activations in `dtype` (a BITEXACT_DTYPE): never zeros,
// which can run faster, and no infinities, which take slow paths.
void* activations(size_t bytes, int32_t dtype);

std::vector<Measurement> measure(const std::vector<Work>& works, int buffers);

// One table row for each shape, as text on stdout and as JSON in the file named by --json.
struct Row {
  std::string shape;
  double bytes;       // read and written, tables not counted
  std::string limit;  // the measurement that the others are set against
  std::vector<Measurement> measurements;
};
class Report {
 public:
  Report(int argc, char** argv, const char* title);
  void add(const Row& row);
  ~Report();

 private:
  std::string title_, file_, rows_;
};

// The plain kernel that moves what silu_mul moves: two reads, one write, a vector a thread.
void plain_two_reads(const void* a, const void* b, void* out, int64_t bytes, int threads);
// The plain copy of q and k in one launch, a vector a thread.
void plain_copy(const void* q, void* q_out, int64_t q_bytes, const void* k, void* k_out, int64_t k_bytes,
                int threads);
void empty_kernel();

}  // namespace bench
