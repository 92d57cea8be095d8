#include "faulty_file_calls.h"

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <string_view>

#include "support/next_function.h"

namespace lockstep::offload {
namespace {

std::atomic<const char*> faulty_call{nullptr};
std::atomic<int> calls_made{0};
Fault current;  // set while no call is under way

// Whether this call has the fault.
bool is_faulty(const char* name) {
  const char* const wanted = faulty_call;
  return wanted != nullptr && std::string_view(wanted) == name && calls_made++ >= current.after;
}

// What a call says to have moved that moved that much, or failed.
ssize_t said(bool has_fault, ssize_t moved) {
  return has_fault && moved > 0 && current.most_bytes != 0 ? std::min(moved, current.most_bytes) : moved;
}

/// Sets errno. Whether the call fails.
bool fails(bool has_fault) {
  if (has_fault) errno = current.error_number;
  return has_fault && current.error_number != 0;
}

}  // namespace

FaultyFileCalls::FaultyFileCalls(const char* call, const Fault& fault) {
  current = fault;
  calls_made = 0;
  faulty_call = call;
}

FaultyFileCalls::~FaultyFileCalls() { faulty_call = nullptr; }

int FaultyFileCalls::calls() const { return calls_made; }

// In front of libc's.
#pragma GCC visibility push(default)
extern "C" {
ssize_t pread(int fd, void* bytes, std::size_t count, off_t offset) {
  static const auto real = test::next_function<ssize_t (*)(int, void*, std::size_t, off_t)>("pread");
  const bool has_fault = is_faulty("pread");
  return fails(has_fault) ? -1 : said(has_fault, real(fd, bytes, count, offset));
}
ssize_t pwrite(int fd, const void* bytes, std::size_t count, off_t offset) {
  static const auto real = test::next_function<ssize_t (*)(int, const void*, std::size_t, off_t)>("pwrite");
  const bool has_fault = is_faulty("pwrite");
  return fails(has_fault) ? -1 : said(has_fault, real(fd, bytes, count, offset));
}
int posix_fallocate(int fd, off_t offset, off_t count) {
  static const auto real = test::next_function<int (*)(int, off_t, off_t)>("posix_fallocate");
  return is_faulty("posix_fallocate") ? current.error_number : real(fd, offset, count);
}
}
#pragma GCC visibility pop

}  // namespace lockstep::offload
