#include "comm/peer_memory.h"

#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <cerrno>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>

namespace lockstep::detail {
namespace {

constexpr auto kSwitch = "LOCKSTEP_CMA";

bool is_wanted() {
  const auto value = env::get_int(kSwitch, 1);
  if (value == 0 || value == 1) return value == 1;
  throw ConfigError("comm", {.what = kSwitch, .expected = "0 or 1", .got = std::to_string(value)});
}

std::string first_line_of(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

[[noreturn]] void refuse_gone() {
  throw std::runtime_error("Connection closed by peer: what it offered is gone");
}

// False where the system does not allow it.
bool copy(std::int64_t process, std::uint64_t address, void* to, std::uint64_t bytes) {
  for (std::uint64_t done = 0; done < bytes;) {
    const iovec here{static_cast<char*>(to) + done, bytes - done};
    const iovec there{reinterpret_cast<char*>(address + done), bytes - done};  // NOLINT
    const auto count = ::process_vm_readv(static_cast<pid_t>(process), &here, 1, &there, 1, 0);
    if (count > 0) {
      done += static_cast<std::uint64_t>(count);
    } else if (count < 0 && (errno == EPERM || errno == EACCES || errno == ENOSYS)) {
      return false;
    } else {
      refuse_gone();
    }
  }
  return true;
}

}  // namespace

std::uint64_t machine_of_this_process() {
  struct stat ids {};  // of processes
  const auto boot = first_line_of("/proc/sys/kernel/random/boot_id");
  if (!is_wanted() || boot.empty() || ::stat("/proc/self/ns/pid", &ids) != 0) return 0;
  if (first_line_of("/proc/sys/kernel/yama/ptrace_scope") == "1") ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
  return std::hash<std::string>()(boot + std::to_string(ids.st_dev) + ":" + std::to_string(ids.st_ino)) | 1;
}

bool read_peer_memory(const MemoryOffer& offer, void* to) {
  if (!copy(offer.process, offer.address, to, offer.bytes)) return false;
  std::uint64_t seal = 0;
  copy(offer.process, offer.seal_address, &seal, sizeof seal);
  if (seal != offer.seal || seal == 0) refuse_gone();
  return true;
}

}  // namespace lockstep::detail
