// Times works against each other in one run. Each is captured once as a long CUDA graph over so many sets of
// buffers that nothing it reads is left in the second-level cache; the graphs are then replayed in turns. A
// replay is queued whole behind a kernel that holds the stream, so that the time between the two events is the
// device's alone.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "bitexact.h"

namespace bench {

// Both throw std::runtime_error with the message of a failed CUDA or library call.
void check_cuda(int error, const std::string& what);
void check_status(int32_t status, const std::string& what);

cudaStream_t stream();

// Device memory, freed with the object.
class Memory {
 public:
  explicit Memory(int64_t bytes);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  char* data() const { return data_; }

 private:
  char* data_ = nullptr;
};

// A context that refuses to compute anything but with the fused kernel.
class Context {
 public:
  Context();
  ~Context() { bitexact_context_destroy(context_); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  bitexact_context* get() const { return context_; }
  // The kernel that most of the calls since the last question ran, after its operation's name.
  std::string kernel();

 private:
  bitexact_context* context_ = nullptr;
  std::map<std::string, int64_t> calls_;
};

struct Work {
  std::string name;
  std::function<void(int set)> enqueue;  // on stream()
};

struct Measurement {
  std::string name;
  double median_us, p10_us, p90_us;  // one launch
  int not_held = 0;                  // samples whose replay was not queued whole in time
};

// How often a graph goes through how many sets of buffers.
struct Rotation {
  int sets, launches, rounds;
};

// Sets of `set_bytes` that together exceed the device's second-level cache three times; launches that take a
// millisecond or more if each moves `moved_bytes`.
Rotation rotation(int64_t set_bytes, int64_t moved_bytes);

// Replays for about `seconds`, though at least 9 rounds, and notes in `rotation` how many it were. With 0 seconds
// each work is launched once and nothing is measured.
std::vector<Measurement> measure(const std::vector<Work>& works, Rotation& rotation, double seconds);

// The same, whose last work calls in `context`: it is named with the kernel that ran.
std::vector<Measurement> measure(const std::vector<Work>& works, Rotation& rotation, double seconds,
                                 Context& context);

}  // namespace bench
