#include "faulty_file_calls.h"

#include <dlfcn.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <string_view>

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

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

// Zero: do it. The bytes that it may move are changed.
int error_of(const char* name, std::size_t& bytes) {
  if (!is_faulty(name)) return 0;
  if (current.most_bytes != 0) bytes = std::min(bytes, current.most_bytes);
  return current.error_number;
}

}  // namespace

FaultyFileCalls::FaultyFileCalls(const char* call, const Fault& fault) {
  current = fault;
  calls_made = 0;
  faulty_call = call;
}

FaultyFileCalls::~FaultyFileCalls() { faulty_call = nullptr; }

int FaultyFileCalls::calls() const { return calls_made; }

}  // namespace lockstep::offload

// In front of libc's.
#pragma GCC visibility push(default)
extern "C" {
ssize_t pread(int fd, void* bytes, std::size_t count, off_t offset) {
  static const auto real = lockstep::offload::next<ssize_t (*)(int, void*, std::size_t, off_t)>("pread");
  errno = lockstep::offload::error_of("pread", count);
  return errno != 0 ? -1 : real(fd, bytes, count, offset);
}
ssize_t pwrite(int fd, const void* bytes, std::size_t count, off_t offset) {
  static const auto real =
      lockstep::offload::next<ssize_t (*)(int, const void*, std::size_t, off_t)>("pwrite");
  errno = lockstep::offload::error_of("pwrite", count);
  return errno != 0 ? -1 : real(fd, bytes, count, offset);
}
int posix_fallocate(int fd, off_t offset, off_t count) {
  static const auto real = lockstep::offload::next<int (*)(int, off_t, off_t)>("posix_fallocate");
  std::size_t ignored = 0;
  const int error = lockstep::offload::error_of("posix_fallocate", ignored);
  return error != 0 ? error : real(fd, offset, count);
}
}
#pragma GCC visibility pop
