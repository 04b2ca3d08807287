#include "inject.h"

#include <atomic>

namespace inject {
namespace {

std::atomic<int64_t> target{0}, seen{0}, things{0};
std::atomic<int> armed_error{0};
std::atomic<const char*> struck{nullptr};
std::atomic<bool> back{false};

}  // namespace

void arm(int64_t nth, int error) {
  struck = nullptr;
  back = false;
  seen = 0;
  armed_error = error;
  target = nth;
}
void disarm() { target = 0; }
int64_t calls() { return seen; }
std::string failed() {
  const char* const name = struck;
  return name != nullptr ? name : "";
}
bool failed_putting_back() { return back; }
int64_t alive() { return things; }

bool strikes(const char* name) {
  if (++seen != target) return false;
  struck = name;
  return true;
}
int error() { return armed_error; }
void putting_back() { back = true; }
void made() { ++things; }
void gone() { --things; }

}  // namespace inject
