#include "harness.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "bitexact.h"

namespace bench {
namespace {

__global__ void two_reads(const uint4* a, const uint4* b, uint4* out, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const uint4 x = a[i], y = b[i];
  out[i] = make_uint4(x.x ^ y.x, x.y ^ y.y, x.z ^ y.z, x.w ^ y.w);
}

__global__ void copy_two(const uint4* q, uint4* q_out, int64_t nq, const uint4* k, uint4* k_out, int64_t nk) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < nq) {
    q_out[i] = q[i];
  } else if (i < nq + nk) {
    k_out[i - nq] = k[i - nq];
  }
}

__global__ void nothing() {}

// Magnitudes from 1/8 to 8, both signs.
__global__ void fill(uint32_t* words, int64_t n, bool half) {
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n;
       i += int64_t{gridDim.x} * blockDim.x) {
    uint32_t x = static_cast<uint32_t>(i) * 2654435761u + static_cast<uint32_t>(i >> 32);
    x = (x ^ (x >> 15)) * 0x2c1b3c6du;
    x ^= x >> 12;
    const uint32_t e1 = (x >> 3) % 6, e2 = (x >> 19) % 6;
    words[i] = half ? (x & 0x83ff83ffu) | (12 + e1) << 10 | (12 + e2) << 26
                    : (x & 0x807f807fu) | (124 + e1) << 7 | (124 + e2) << 23;
  }
}

unsigned blocks(int64_t n, int threads) { return static_cast<unsigned>((n + threads - 1) / threads); }

std::string quoted(const std::string& text) { return "\"" + text + "\""; }

}  // namespace

void check_cuda(int error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(static_cast<cudaError_t>(error)));
  std::exit(1);
}

void check_status(int32_t status, const char* what) {
  if (status == BITEXACT_STATUS_OK) return;
  std::fprintf(stderr, "%s: %s\n", what, bitexact_last_error());
  std::exit(1);
}

const char* dtype_name(int32_t dtype) {
  if (dtype == BITEXACT_DTYPE_BFLOAT16) return "bfloat16";
  return dtype == BITEXACT_DTYPE_FLOAT16 ? "float16" : "float32";
}

cudaStream_t stream() {
  static cudaStream_t made = [] {
    cudaStream_t s;
    check_cuda(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking), "making a stream");
    return s;
  }();
  return made;
}

void* activations(size_t bytes, int32_t dtype) {
  void* memory = nullptr;
  check_cuda(cudaMalloc(&memory, bytes), "allocating");
  fill<<<2048, 256>>>(static_cast<uint32_t*>(memory), static_cast<int64_t>(bytes / 4),
                      dtype == BITEXACT_DTYPE_FLOAT16);
  check_cuda(cudaDeviceSynchronize(), "filling");
  return memory;
}

std::vector<Measurement> measure(const std::vector<Work>& works, int buffers) {
  const int launches = (std::max(buffers, 16) + buffers - 1) / buffers * buffers;
  std::vector<cudaGraphExec_t> graphs;
  for (const Work& work : works) {
    for (int i = 0; i < buffers; ++i) work.enqueue(i);
    check_cuda(cudaStreamSynchronize(stream()), work.name.c_str());
    check_cuda(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeGlobal), "capturing");
    for (int i = 0; i < launches; ++i) work.enqueue(i % buffers);
    cudaGraph_t graph;
    check_cuda(cudaStreamEndCapture(stream(), &graph), "capturing");
    cudaGraphExec_t exec;
    check_cuda(cudaGraphInstantiate(&exec, graph, 0), "instantiating");
    check_cuda(cudaGraphLaunch(exec, stream()), "replaying");
    check_cuda(cudaGraphDestroy(graph), "capturing");
    graphs.push_back(exec);
  }
  cudaEvent_t begin, end;
  check_cuda(cudaEventCreate(&begin), "making an event");
  check_cuda(cudaEventCreate(&end), "making an event");
  std::vector<std::vector<float>> times(works.size());
  for (int round = 0; round < 21; ++round) {
    for (size_t w = 0; w < works.size(); ++w) {
      check_cuda(cudaEventRecord(begin, stream()), "timing");
      check_cuda(cudaGraphLaunch(graphs[w], stream()), "replaying");
      check_cuda(cudaEventRecord(end, stream()), "timing");
      check_cuda(cudaEventSynchronize(end), "timing");
      float ms = 0;
      check_cuda(cudaEventElapsedTime(&ms, begin, end), "timing");
      times[w].push_back(ms * 1000 / static_cast<float>(launches));
    }
  }
  std::vector<Measurement> result;
  for (size_t w = 0; w < works.size(); ++w) {
    std::sort(times[w].begin(), times[w].end());
    result.push_back({works[w].name, times[w][10], times[w][2], times[w][18]});
    check_cuda(cudaGraphExecDestroy(graphs[w]), "destroying a graph");
  }
  check_cuda(cudaEventDestroy(begin), "destroying an event");
  check_cuda(cudaEventDestroy(end), "destroying an event");
  return result;
}

Report::Report(int argc, char** argv, const char* title) : title_(title) {
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
      file_ = argv[++i];
    } else {
      std::fprintf(stderr, "usage: %s [--json FILE]\n", argv[0]);
      std::exit(2);
    }
  }
  std::printf("%s\n%-58s %-18s %9s %9s %9s %8s %7s\n", title, "shape", "work", "median us", "p10", "p90",
              "TB/s", "ratio");
}

void Report::add(const Row& row) {
  double limit = 0;
  for (const Measurement& m : row.measurements) {
    if (m.name.compare(0, row.limit.size(), row.limit) == 0 && (limit == 0 || m.median_us < limit))
      limit = m.median_us;
  }
  for (const Measurement& m : row.measurements) {
    const double tb = row.bytes / m.median_us / 1e6, ratio = limit / m.median_us;
    std::printf("%-58s %-18s %9.2f %9.2f %9.2f %8.2f %7.3f\n", row.shape.c_str(), m.name.c_str(), m.median_us,
                m.p10_us, m.p90_us, tb, ratio);
    char numbers[256];
    std::snprintf(numbers, sizeof(numbers),
                  "\"median_us\": %.3f, \"p10_us\": %.3f, \"p90_us\": %.3f, \"tb_per_s\": %.3f, "
                  "\"ratio_to_limit\": %.4f",
                  m.median_us, m.p10_us, m.p90_us, tb, ratio);
    rows_ += std::string(rows_.empty() ? "" : ",\n") + "    {\"shape\": " + quoted(row.shape) +
             ", \"work\": " + quoted(m.name) + ", " + numbers + "}";
  }
  std::fflush(stdout);
}

Report::~Report() {
  if (file_.empty()) return;
  cudaDeviceProp device;
  check_cuda(cudaGetDeviceProperties(&device, 0), "reading device properties");
  int driver = 0, runtime = 0;
  check_cuda(cudaDriverGetVersion(&driver), "reading the driver version");
  check_cuda(cudaRuntimeGetVersion(&runtime), "reading the runtime version");
  std::FILE* out = std::fopen(file_.c_str(), "w");
  if (out == nullptr) {
    std::fprintf(stderr, "cannot write %s\n", file_.c_str());
    std::exit(1);
  }
  std::fprintf(out,
               "{\n  \"title\": \"%s\",\n  \"gpu\": \"%s\",\n  \"driver\": %d,\n  \"runtime\": %d,\n  "
               "\"build\": \"%s\",\n"
               "  \"rows\": [\n%s\n  ]\n}\n",
               title_.c_str(), device.name, driver, runtime, bitexact_build_info(), rows_.c_str());
  std::fclose(out);
}

void plain_two_reads(const void* a, const void* b, void* out, int64_t bytes, int threads) {
  const int64_t n = bytes / 16;
  two_reads<<<blocks(n, threads), threads, 0, stream()>>>(
      static_cast<const uint4*>(a), static_cast<const uint4*>(b), static_cast<uint4*>(out), n);
}

void plain_copy(const void* q, void* q_out, int64_t q_bytes, const void* k, void* k_out, int64_t k_bytes,
                int threads) {
  const int64_t nq = q_bytes / 16, nk = k_bytes / 16;
  copy_two<<<blocks(nq + nk, threads), threads, 0, stream()>>>(
      static_cast<const uint4*>(q), static_cast<uint4*>(q_out), nq, static_cast<const uint4*>(k),
      static_cast<uint4*>(k_out), nk);
}

void empty_kernel() { nothing<<<1, 1, 0, stream()>>>(); }

}  // namespace bench
