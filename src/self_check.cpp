#include "self_check.h"

#include <cinttypes>
#include <cstring>

#include "kernel_table.h"
#include "probe.h"
#include "probe_digests.h"
#include "status.h"
#include "variants.h"

namespace bitexact {
namespace {

constexpr int64_t slice_bytes = int64_t{64} << 20;

// Pairs of bits that a comparison must tell apart: the two zeros, neighbours, an infinity and a NaN, a number
// and a NaN; and those that it must not: a number and itself, NaNs with two payloads.
constexpr int known_pairs = 6, known_mismatches = 4, known_payload_differences = 1;
uint64_t known_bits(Dtype dtype, int pair, bool second) {
  const uint64_t sign = uint64_t{1} << (8 * size_of(dtype) - 1);
  const uint64_t infinity = dtype == Dtype::float16 ? 0x7c00 : sign - (sign >> 8);
  const uint64_t number = infinity >> 1, nan = infinity + 1;
  const uint64_t bits[known_pairs][2] = {{0, sign},     {number, number + 1}, {infinity, nan},
                                         {number, nan}, {number, number},     {nan, nan + 1}};
  return bits[pair][second];
}

constexpr char computes_wrongly[] =
    "this device, its driver or this build computes wrongly, and nothing is proven";

Finding unproven(int32_t status) {
  Finding finding;
  finding.outcome = Outcome::unproven;
  finding.status = status;
  return finding;
}

// Want of memory may pass, so it says nothing about a kernel.
Outcome failure_outcome(int32_t status) {
  return status == BITEXACT_STATUS_OUT_OF_MEMORY ? Outcome::not_now : Outcome::fused_failed;
}

// Memory of one check, released on every path, and the sum of its comparisons.
class Workspace {
 public:
  Workspace(Backend& backend, bitexact_stream stream) : backend_(backend), stream_(stream) {}
  ~Workspace() {
    for (int i = 0; i < blocks_; ++i) backend_.release(memory_[i], stream_);
  }
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  int32_t allocate(size_t bytes, void*& memory) {
    memory = nullptr;
    const int32_t status = backend_.allocate(bytes, stream_, memory);
    if (status == BITEXACT_STATUS_OK) memory_[blocks_++] = memory;
    return status;
  }

  // What no kernel writes: memory that a kernel skips must not hold the right bits by chance.
  int32_t poison(void* memory, unsigned char byte, size_t bytes) {
    return backend_.fill(memory, byte, bytes, stream_);
  }

  // `digested`: what comparisons expect, in their order, makes a digest.
  int32_t begin(bool digested = false) {
    if (digested) place_ = 0;
    void* memory;
    const int32_t status = allocate(sizeof(Comparison), memory);
    if (status != BITEXACT_STATUS_OK) return status;
    result_ = static_cast<Comparison*>(memory);
    return backend_.upload(result_, &sum_, sizeof(sum_), stream_);
  }

  // A comparison that misses a difference proves nothing, so it has to show what it sees. Uses both blocks.
  int32_t try_comparison(Dtype dtype, void* actual, void* expected, bool& sees) {
    void* const memory[2] = {actual, expected};
    for (int second = 0; second < 2; ++second) {
      unsigned char bits[known_pairs * 8];
      for (int pair = 0; pair < known_pairs; ++pair) {
        const uint64_t b = known_bits(dtype, pair, second != 0);
        std::memcpy(bits + pair * size_of(dtype), &b, static_cast<size_t>(size_of(dtype)));
      }
      const int32_t status =
          backend_.upload(memory[second], bits, static_cast<size_t>(known_pairs * size_of(dtype)), stream_);
      if (status != BITEXACT_STATUS_OK) return status;
    }
    auto view = [](const void* data) { return View{data, {1, 1, 1, known_pairs}, {0, 0, 0}, 0}; };
    Comparison seen;
    int32_t status =
        backend_.compare({dtype, known_pairs, view(actual), view(expected), 0}, result_, stream_);
    if (status == BITEXACT_STATUS_OK) status = backend_.download(&seen, result_, sizeof(seen), stream_);
    if (status != BITEXACT_STATUS_OK) return status;
    sees = seen.mismatches == known_mismatches && seen.key == 0 &&
           seen.nan_payload_differences == known_payload_differences &&
           seen.actual == known_bits(dtype, 0, false) && seen.expected == known_bits(dtype, 0, true);
    return backend_.upload(result_, &sum_, sizeof(sum_), stream_);
  }

  // Adds the outputs of `actual` from flat index `actual_first` on.
  template <class Args>
  int32_t compare(const Args& actual, const int64_t (&actual_first)[2], const Args& expected,
                  const int64_t (&expected_first)[2], const Slice<Args>& slice) {
    for (int which = 0; which < 2; ++which) {
      const int64_t count = output_elements(slice.args, which);
      if (count == 0) continue;
      const CompareArgs c{actual.dtype,
                          count,
                          output_view(actual, which, actual_first[which]),
                          output_view(expected, which, expected_first[which]),
                          static_cast<uint64_t>(slice.first[which]) | (which == 1 ? second_output : 0),
                          place_};
      const int32_t status = backend_.compare(c, result_, stream_);
      if (status != BITEXACT_STATUS_OK) return status;
      if (c.actual.data != c.expected.data) compared_ += count;  // with itself: for the digest alone
      if (place_ != no_place) place_ += static_cast<uint64_t>(count);
    }
    return BITEXACT_STATUS_OK;
  }

  // Waits for everything enqueued and reads the sum.
  Finding finish() {
    Finding finding;
    finding.status = backend_.download(&finding.comparison, result_, sizeof(Comparison), stream_);
    finding.compared = compared_;
    if (finding.status != BITEXACT_STATUS_OK) {
      finding.outcome = failure_outcome(finding.status);  // a fault of what was enqueued shows here
    } else {
      finding.outcome = finding.comparison.mismatches == 0 ? Outcome::equal : Outcome::mismatch;
      if (compared_ == 0) finding.outcome = Outcome::not_now;  // nothing compared is nothing proven
    }
    return finding;
  }

 private:
  Backend& backend_;
  bitexact_stream stream_;
  void* memory_[4] = {};
  int blocks_ = 0;
  Comparison* result_ = nullptr;
  Comparison sum_;
  int64_t compared_ = 0;
  uint64_t place_ = no_place;  // of the next output in the digest
};

constexpr int64_t from_start[2] = {0, 0};

template <class Args>
int64_t largest_slice(const Args& call) {
  int64_t bytes = 0;
  for_slices(call, slice_bytes, [&](const Slice<Args>& slice) {
    bytes = std::max(bytes, scratch_bytes(slice.args));
    return BITEXACT_STATUS_OK;
  });
  return bytes;
}

// Counting positions outside the table is for the call itself, not for its checks.
RopeArgs uncounted(RopeArgs a) {
  a.position_errors = nullptr;
  return a;
}
SiluMulArgs uncounted(const SiluMulArgs& a) { return a; }

// The digests of SiLU-mul hold the exponential of the device they were captured on. Where another one's rounds
// otherwise, so does eager there.
bool is_bound(Backend&, const RopeArgs&) { return true; }
bool is_bound(Backend& backend, const SiluMulArgs&) { return backend.has_captured_exp(); }

}  // namespace

Finding not_now(int32_t status) {
  Finding finding;
  finding.status = status;
  return finding;
}

Finding fused_failed(int32_t status) {
  Finding finding;
  finding.outcome = failure_outcome(status);
  finding.status = status;
  return finding;
}

template <class Args, class Variant>
Finding check_probe(Backend& backend, const Args& kernel, Variant variant, bitexact_stream stream) {
  const Probe<Args> probe = make_probe(kernel);
  int64_t bytes = 0;
  for (const Args& a : probe.cases) bytes = std::max(bytes, scratch_bytes(a));
  const size_t size = static_cast<size_t>(bytes);
  Workspace work(backend, stream);
  void *inputs, *actual, *expected;
  int32_t status = work.allocate(probe.inputs.size(), inputs);
  if (status == BITEXACT_STATUS_OK) status = work.allocate(size, actual);
  if (status == BITEXACT_STATUS_OK) status = work.allocate(size, expected);
  if (status == BITEXACT_STATUS_OK) status = work.begin(true);
  if (status == BITEXACT_STATUS_OK)
    status = backend.upload(inputs, probe.inputs.data(), probe.inputs.size(), stream);
  bool sees = false;
  if (status == BITEXACT_STATUS_OK) status = work.try_comparison(kernel.dtype, actual, expected, sees);
  if (status != BITEXACT_STATUS_OK) return not_now(status);
  if (!sees) {
    return unproven(fail(BITEXACT_STATUS_INTERNAL, "the comparison misses differences that are there: %s",
                         computes_wrongly));
  }
  // The reference runs every case, also those that do not fit the variant, and goes on when the fused kernel
  // has failed: it is to stand in for it.
  Finding failure;
  auto runs = [&] { return failure.status == BITEXACT_STATUS_OK; };
  auto failed = [&](int32_t s) { return runs() ? not_now(s) : failure; };
  for (const Args& a : probe.cases) {
    const Slice<Args> whole{uncounted(located(a, inputs)), {0, 0}};
    const Args fused = redirected(whole.args, actual), reference = redirected(whole.args, expected);
    status = work.poison(expected, 0x5a, size);
    if (status == BITEXACT_STATUS_OK) status = backend.reference(reference, stream);
    if (status != BITEXACT_STATUS_OK) return failed(status);
    const bool compares = runs() && fits(fused, variant);
    if (compares) {
      status = work.poison(actual, 0xa5, size);
      if (status == BITEXACT_STATUS_OK) status = backend.load(fused, variant);
      if (status != BITEXACT_STATUS_OK && status != BITEXACT_STATUS_NO_KERNEL_IMAGE) return not_now(status);
      if (status == BITEXACT_STATUS_OK) status = backend.fused(fused, variant, stream);
      if (status != BITEXACT_STATUS_OK) failure = fused_failed(status);
    }
    status = work.compare(compares && runs() ? fused : reference, from_start, reference, from_start, whole);
    if (status != BITEXACT_STATUS_OK) return failed(status);
  }
  const Finding finding = work.finish();
  if (finding.status != BITEXACT_STATUS_OK) return runs() ? finding : failure;
  const uint64_t digest = finding.comparison.digest,
                 right = probe_digests[probe_of(kernel_of(kernel, variant))];
  if (digest != right && is_bound(backend, kernel)) {
    return unproven(fail(BITEXACT_STATUS_INTERNAL,
                         "the built-in reference itself is wrong on the probe (digest 0x%016" PRIx64
                         ", accepted: 0x%016" PRIx64 "): %s",
                         digest, right, computes_wrongly));
  }
  return runs() ? finding : failure;
}

template <class Args, class Variant>
Finding check_live(Backend& backend, const Args& call, Variant variant, bool keep_out,
                   bitexact_stream stream) {
  const bool into_scratch = keep_out || in_place(call);
  const size_t size = static_cast<size_t>(largest_slice(call));
  Workspace work(backend, stream);
  void *expected, *actual = nullptr;
  int32_t status = work.allocate(size, expected);
  if (status == BITEXACT_STATUS_OK && into_scratch) status = work.allocate(size, actual);
  if (status == BITEXACT_STATUS_OK) status = work.begin();
  if (status != BITEXACT_STATUS_OK) return not_now(status);
  if (!into_scratch) {
    status = backend.fused(call, variant, stream);
    if (status != BITEXACT_STATUS_OK) return fused_failed(status);
  }
  Outcome outcome = Outcome::not_now;
  status = for_slices(call, slice_bytes, [&](const Slice<Args>& slice) {
    const Args reference = redirected(uncounted(slice.args), expected);
    int32_t s = backend.reference(reference, stream);
    if (s != BITEXACT_STATUS_OK) return s;
    if (!into_scratch) return work.compare(call, slice.first, reference, from_start, slice);
    const Args fused = redirected(uncounted(slice.args), actual);
    s = work.poison(actual, 0xa5, size);
    if (s != BITEXACT_STATUS_OK) return s;
    s = backend.fused(fused, variant, stream);
    if (s != BITEXACT_STATUS_OK) {
      outcome = Outcome::fused_failed;
      return s;
    }
    return work.compare(fused, from_start, reference, from_start, slice);
  });
  Finding finding = status == BITEXACT_STATUS_OK       ? work.finish()
                    : outcome == Outcome::fused_failed ? fused_failed(status)
                                                       : not_now(status);
  finding.ran_live = !into_scratch;
  return finding;
}

template <class Args, class Variant>
Finding check_against(Backend& backend, const Args& call, Variant variant, const Args& expected,
                      bitexact_stream stream) {
  const size_t size = static_cast<size_t>(largest_slice(call));
  Workspace work(backend, stream);
  void* actual;
  int32_t status = work.allocate(size, actual);
  if (status == BITEXACT_STATUS_OK) status = work.begin();
  if (status != BITEXACT_STATUS_OK) return not_now(status);
  Outcome outcome = Outcome::not_now;
  status = for_slices(call, slice_bytes, [&](const Slice<Args>& slice) {
    const Args fused = redirected(uncounted(slice.args), actual);
    int32_t s = work.poison(actual, 0xa5, size);
    if (s != BITEXACT_STATUS_OK) return s;
    s = backend.fused(fused, variant, stream);
    if (s != BITEXACT_STATUS_OK) {
      outcome = Outcome::fused_failed;
      return s;
    }
    return work.compare(fused, from_start, expected, slice.first, slice);
  });
  if (status == BITEXACT_STATUS_OK) return work.finish();
  return outcome == Outcome::fused_failed ? fused_failed(status) : not_now(status);
}

template Finding check_probe(Backend&, const SiluMulArgs&, SiluMulVariant, bitexact_stream);
template Finding check_probe(Backend&, const RopeArgs&, RopeVariant, bitexact_stream);
template Finding check_live(Backend&, const SiluMulArgs&, SiluMulVariant, bool, bitexact_stream);
template Finding check_live(Backend&, const RopeArgs&, RopeVariant, bool, bitexact_stream);
template Finding check_against(Backend&, const SiluMulArgs&, SiluMulVariant, const SiluMulArgs&,
                               bitexact_stream);
template Finding check_against(Backend&, const RopeArgs&, RopeVariant, const RopeArgs&, bitexact_stream);

}  // namespace bitexact
