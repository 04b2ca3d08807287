// What a device can do for the gate: the CUDA backend, the host backend, and the tests' faulty ones.
#pragma once

#include <cstddef>
#include <cstdint>

#include "args.h"
#include "bitexact.h"
#include "certify_sweep.h"

namespace bitexact {

class Backend {
 public:
  virtual ~Backend() = default;

  // Makes the device current for this thread, and puts back what was there.
  class Scope {
   public:
    explicit Scope(Backend& backend) : backend_(backend), status_(backend.enter(pushed_)) {}
    ~Scope() {
      if (pushed_) backend_.leave();
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    int32_t status() const { return status_; }

   private:
    Backend& backend_;
    bool pushed_ = false;
    int32_t status_;
  };

  // UNSUPPORTED and the like for what this device cannot do bit for bit.
  virtual int32_t supports(const SiluMulArgs& a) = 0;

  // Are the bits of its exponential those of the device that digests were captured on?
  virtual bool has_captured_exp() = 0;

  // Statuses are recorded with fail(). Work is enqueued on `stream` in order.
  virtual int32_t check_stream(bitexact_stream stream) = 0;
  virtual int32_t fused(const SiluMulArgs& a, SiluMulVariant variant, bitexact_stream stream) = 0;
  virtual int32_t fused(const RopeArgs& a, RopeVariant variant, bitexact_stream stream) = 0;
  virtual int32_t reference(const SiluMulArgs& a, bitexact_stream stream) = 0;
  virtual int32_t reference(const RopeArgs& a, bitexact_stream stream) = 0;
  virtual int32_t is_capturing(bitexact_stream stream, bool& capturing) = 0;

  // Makes the code resident that fused() would launch, so that its first launch waits for nothing. Not during
  // capture.
  virtual int32_t load(const SiluMulArgs&, SiluMulVariant) { return BITEXACT_STATUS_OK; }
  virtual int32_t load(const RopeArgs&, RopeVariant) { return BITEXACT_STATUS_OK; }

  // For checks, never during capture.
  virtual int32_t allocate(size_t bytes, bitexact_stream stream, void*& memory) = 0;
  virtual void release(void* memory, bitexact_stream stream) = 0;
  virtual int32_t upload(void* to, const void* from, size_t bytes, bitexact_stream stream) = 0;
  virtual int32_t fill(void* to, unsigned char byte, size_t bytes, bitexact_stream stream) = 0;
  virtual int32_t compare(const CompareArgs& a, Comparison* result, bitexact_stream stream) = 0;
  virtual int32_t download(void* to, const void* from, size_t bytes, bitexact_stream stream) = 0;  // waits

  // For certificates: the inputs of a part, and its outputs against the reference, added to *tally.
  virtual int32_t certify_fill(const CertifyArgs<SiluMulArgs>& a, bitexact_stream stream) = 0;
  virtual int32_t certify_fill(const CertifyArgs<RopeArgs>& a, bitexact_stream stream) = 0;
  virtual int32_t certify_tally(const CertifyArgs<SiluMulArgs>& a, uint64_t first_key, Tally* tally,
                                bitexact_stream stream) = 0;
  virtual int32_t certify_tally(const CertifyArgs<RopeArgs>& a, uint64_t first_key, Tally* tally,
                                bitexact_stream stream) = 0;

  // The sticky count of positions outside their table.
  virtual unsigned long long* position_errors() = 0;
  virtual int32_t read_position_errors(int64_t& count) = 0;

  // Fills the fields that describe the device.
  virtual void describe(bitexact_context_info& info) const = 0;

  // For Scope alone: `pushed` is false on entry, and true where leave() has something to undo.
  virtual int32_t enter(bool& pushed) = 0;
  virtual void leave() = 0;
};

}  // namespace bitexact
