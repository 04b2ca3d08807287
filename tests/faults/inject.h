// Makes one chosen call of the CUDA runtime (or of the driver functions that the library finds through it)
// fail. Served by the fake runtime, and by wrappers around the real one.
#pragma once

#include <cstdint>
#include <string>

namespace inject {

// From now on the call number `nth` (from 1; 0: none) of this process fails with the CUDA error given: it
// does nothing but, if it gives something back, that.
void arm(int64_t nth, int error);
void disarm();

// Since arm(): calls seen, and the name of the one that failed, empty if it has not come to it.
int64_t calls();
std::string failed();

// Was the call that failed one that puts back what another call had changed? Nobody can then.
bool failed_putting_back();

// Device memory and streams that exist now.
int64_t alive();

// What a library must leave as it found it, for the calling thread: the current CUDA context, the capture mode.
struct ThreadState {
  void* context;
  int capture_mode;
};
ThreadState thread_state();

// For those that serve it: counts a call, and says whether it is the one.
bool strikes(const char* name);
int error();
void putting_back();
void made();
void gone();

}  // namespace inject
