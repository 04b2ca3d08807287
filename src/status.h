// Statuses and the text behind the last failing one. Thread-local, without allocation.
#pragma once

#include <cstdint>

namespace bitexact {

// Names the public function at work, for the texts of fail().
void set_function(const char* function);

// Records the text "<function>: <formatted>" and returns `status`. Cold: what leads to it stays out of the way of calls
// that go well, which wait for their code too.
__attribute__((cold, format(printf, 2, 3))) int32_t fail(int32_t status, const char* format, ...);

// As fail(), and keeps the raw CUDA error.
__attribute__((cold)) int32_t fail_cuda(int32_t status, int32_t cuda_error, const char* cuda_text,
                                        const char* what);

// As fail() for the gate's normal answers: keeps a pointer to static text and formats nothing.
int32_t answer(int32_t status, const char* static_text);

const char* last_error();
int32_t last_cuda_error();
const char* status_string(int32_t status);

}  // namespace bitexact
