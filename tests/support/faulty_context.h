// Contexts over a backend that a test can make fail.
#pragma once

#include "context.h"
#include "contexts.h"
#include "cuda_backend.h"
#include "faulty_backend.h"
#include "host/host_backend.h"

namespace bitexact_test {

// Makes the context; returns its backend, which the context owns.
inline FaultyBackend* make_faulty(Context& context, int32_t device,
                                  const bitexact::GateOptions& options = {}) {
  std::unique_ptr<bitexact::Backend> inner;
  EXPECT_EQ(device == BITEXACT_DEVICE_HOST ? bitexact::open_host_backend(inner)
                                           : bitexact::open_cuda_backend(device, inner),
            BITEXACT_STATUS_OK)
      << bitexact_last_error();
  auto faulty = std::make_unique<FaultyBackend>(std::move(inner));
  FaultyBackend* const backend = faulty.get();
  context.reset(new bitexact_context(std::move(faulty), options));
  return backend;
}

}  // namespace bitexact_test
