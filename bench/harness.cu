#include "harness.h"

#include <algorithm>
#include <memory>
#include <stdexcept>

namespace bench {
namespace {

__device__ unsigned long long nanoseconds() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

// Gives up after a while: a host that cannot queue the rest before the device moves on must not wait for ever.
__global__ void hold(const volatile int* released, int ticket, int* expired) {
  constexpr unsigned long long limit = 20'000'000;
  for (const auto begin = nanoseconds(); *released < ticket;) {
    if (nanoseconds() - begin > limit) {
      *expired = ticket;
      return;
    }
  }
}

class Timer {
 public:
  Timer() {
    check_cuda(cudaEventCreate(&begin_), "making an event");
    check_cuda(cudaEventCreate(&end_), "making an event");
    check_cuda(cudaHostAlloc(&flags_, 2 * sizeof(int), cudaHostAllocMapped), "allocating host memory");
    flags_[0] = flags_[1] = 0;
  }
  ~Timer() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
    cudaFreeHost(flags_);
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  // Microseconds of one replay; `held` says whether all of it was queued before it began.
  double replay(cudaGraphExec_t graph, bool& held) {
    volatile int* const released = flags_;
    hold<<<1, 1, 0, stream()>>>(flags_, ++ticket_, flags_ + 1);
    check_cuda(cudaGetLastError(), "holding the stream");
    check_cuda(cudaEventRecord(begin_, stream()), "timing");
    check_cuda(cudaGraphLaunch(graph, stream()), "replaying");
    check_cuda(cudaEventRecord(end_, stream()), "timing");
    *released = ticket_;
    check_cuda(cudaEventSynchronize(end_), "timing");
    held = const_cast<volatile int*>(flags_)[1] != ticket_;
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, begin_, end_), "timing");
    return ms * 1000.0;
  }

 private:
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  int* flags_ = nullptr;  // the last ticket released by the host, and the last that ran out of patience
  int ticket_ = 0;
};

class Graph {
 public:
  Graph(const Work& work, const Rotation& rotation) {
    // Eagerly first: what happens once (loading a kernel, the gate's check) must not happen in the capture.
    for (int i = 0; i < std::min(rotation.sets, 3); ++i) work.enqueue(i);
    check_cuda(cudaStreamSynchronize(stream()), work.name);
    check_cuda(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal), "capturing " + work.name);
    cudaGraph_t graph = nullptr;
    try {
      for (int i = 0; i < rotation.launches; ++i) work.enqueue(i % rotation.sets);
    } catch (...) {
      cudaStreamEndCapture(stream(), &graph);
      if (graph != nullptr) cudaGraphDestroy(graph);
      throw;
    }
    check_cuda(cudaStreamEndCapture(stream(), &graph), "capturing " + work.name);
    const cudaError_t error = cudaGraphInstantiate(&exec_, graph, 0);
    cudaGraphDestroy(graph);
    check_cuda(error, "instantiating " + work.name);
    check_cuda(cudaGraphUpload(exec_, stream()), "uploading " + work.name);
  }
  ~Graph() {
    if (exec_ != nullptr) cudaGraphExecDestroy(exec_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  cudaGraphExec_t exec() const { return exec_; }

 private:
  cudaGraphExec_t exec_ = nullptr;
};

}  // namespace

void check_cuda(int error, const std::string& what) {
  if (error != cudaSuccess)
    throw std::runtime_error(what + ": " + cudaGetErrorString(static_cast<cudaError_t>(error)));
}

void check_status(int32_t status, const std::string& what) {
  if (status != BITEXACT_STATUS_OK) throw std::runtime_error(what + ": " + bitexact_last_error());
}

cudaStream_t stream() {
  static const cudaStream_t made = [] {
    cudaStream_t s = nullptr;
    check_cuda(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "making a stream");
    return s;
  }();
  return made;
}

Memory::Memory(int64_t bytes) {
  check_cuda(cudaMalloc(&data_, static_cast<size_t>(bytes)),
             "allocating " + std::to_string(bytes) + " bytes");
}
Memory::~Memory() { cudaFree(data_); }

Context::Context() {
  bitexact_context_options options = BITEXACT_CONTEXT_OPTIONS_INIT;
  options.gate_policy = BITEXACT_POLICY_STRICT;
  check_status(bitexact_context_create(&options, &context_), "making a context");
}

std::string Context::kernel() {
  int64_t count = 0, most = 0;
  check_status(bitexact_gate_count(context_, &count), "counting kernels");
  std::string found;
  for (int64_t i = 0; i < count; ++i) {
    bitexact_gate_report report = BITEXACT_GATE_REPORT_INIT;
    check_status(bitexact_gate_get(context_, i, &report), "asking for a kernel");
    int64_t& before = calls_[report.kernel_name];
    if (report.fused_calls - before > most) {
      most = report.fused_calls - before;
      found = report.kernel_name;
    }
    before = report.fused_calls;
  }
  return found.substr(found.find(' ') + 1);
}

Rotation rotation(int64_t set_bytes, int64_t moved_bytes) {
  int device = 0, cache = 0;
  check_cuda(cudaGetDevice(&device), "asking for the device");
  check_cuda(cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize, device), "asking for the cache's size");
  const auto sets = static_cast<int>(3 * int64_t{cache} / set_bytes + 2);
  // A launch takes longer than a microsecond and moves less than five bytes in a picosecond.
  const double microseconds = sets * std::max(1.0, static_cast<double>(moved_bytes) / 5e6);
  const int turns = std::clamp(static_cast<int>(1000.0 / microseconds) + 1, 1, 64);
  return {sets, sets * turns, 0};
}

std::vector<Measurement> measure(const std::vector<Work>& works, Rotation& rotation, double seconds) {
  if (seconds == 0) {
    for (const Work& work : works) work.enqueue(0);
    check_cuda(cudaStreamSynchronize(stream()), "launching each work once");
    return {};
  }
  std::vector<std::unique_ptr<Graph>> graphs;
  for (const Work& work : works) graphs.push_back(std::make_unique<Graph>(work, rotation));
  Timer timer;
  std::vector<Measurement> result;
  double round_us = 0;  // of the second round: the first one warms up
  for (const int round : {0, 1}) {
    for (size_t w = 0; w < works.size(); ++w) {
      bool held = false;
      const double us = timer.replay(graphs[w]->exec(), held);
      if (round == 1) round_us += us;
    }
  }
  rotation.rounds = std::clamp(static_cast<int>(seconds * 1e6 / round_us), 9, 101);
  std::vector<std::vector<double>> times(works.size());
  for (const Work& work : works) result.push_back({work.name, 0, 0, 0});
  for (int round = 0; round < rotation.rounds; ++round) {
    for (size_t i = 0; i < works.size(); ++i) {
      const size_t w =
          (i + static_cast<size_t>(round)) % works.size();  // each follows each other one in turn
      bool held = false;
      times[w].push_back(timer.replay(graphs[w]->exec(), held) / rotation.launches);
      result[w].not_held += held ? 0 : 1;
    }
  }
  for (size_t w = 0; w < works.size(); ++w) {
    std::sort(times[w].begin(), times[w].end());
    const size_t n = times[w].size();
    result[w].median_us = times[w][n / 2];
    result[w].p10_us = times[w][n / 10];
    result[w].p90_us = times[w][n - 1 - n / 10];
  }
  return result;
}

std::vector<Measurement> measure(const std::vector<Work>& works, Rotation& rotation, double seconds,
                                 Context& context) {
  std::vector<Measurement> result = measure(works, rotation, seconds);
  if (!result.empty()) result.back().name += ": " + context.kernel();
  return result;
}

}  // namespace bench
