#include "comm/transport/peer_memory.h"

#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <functional>
#include <random>
#include <stdexcept>
#include <string>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>

namespace lockstep::detail {
namespace {

constexpr auto kSwitch = "LOCKSTEP_CMA";

bool is_wanted() { return env::get(kSwitch) != "0"; }

std::string first_line_of(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

[[noreturn]] void refuse_gone() {
  throw std::runtime_error("Connection closed by peer: what it offered is gone");
}

void* at(std::uint64_t address) { return reinterpret_cast<void*>(address); }  // NOLINT

// Bytes here or there, less those that have been copied.
iovec rest_of(iovec all, std::uint64_t done) {
  const auto skipped = std::min<std::uint64_t>(done, all.iov_len);
  return {static_cast<char*>(all.iov_base) + skipped, all.iov_len - skipped};
}

struct Copy {
  iovec there;
  iovec here;
};

// One after the other. 0, or the number of the error.
int copy_both(std::int64_t process, const Copy& first, const Copy& second) {
  const auto head = first.here.iov_len;
  for (std::uint64_t done = 0; done < head + second.here.iov_len;) {
    const auto past = done - std::min<std::uint64_t>(done, head);
    const std::array here{rest_of(first.here, done), rest_of(second.here, past)};
    const std::array there{rest_of(first.there, done), rest_of(second.there, past)};
    const auto count = ::process_vm_readv(static_cast<pid_t>(process), here.data(), here.size(), there.data(),
                                          there.size(), 0);
    if (count < 0) return errno;
    if (count == 0) return EFAULT;
    done += static_cast<std::uint64_t>(count);
  }
  return 0;
}

bool is_forbidden(int error) { return error == EPERM || error == EACCES || error == ENOSYS; }

}  // namespace

bool MemoryAccess::is_mutual() const {
  return std::ranges::all_of(can_read_all, [](auto can) { return can != 0; });
}

std::optional<ErrorParts> fault_in_memory_switch() {
  const auto value = env::get(kSwitch).value_or("1");
  if (value == "0" || value == "1") return std::nullopt;
  return ErrorParts{
      .what = std::string("environment variable ") + kSwitch, .expected = "0 or 1", .got = '"' + value + '"'};
}

std::uint64_t machine_of_this_process() {
  struct stat ids {};  // of processes
  const auto boot = first_line_of("/proc/sys/kernel/random/boot_id");
  if (!is_wanted() || boot.empty() || ::stat("/proc/self/ns/pid", &ids) != 0) return 0;
  if (first_line_of("/proc/sys/kernel/yama/ptrace_scope") == "1") ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
  return std::hash<std::string>()(boot + std::to_string(ids.st_dev) + ":" + std::to_string(ids.st_ino)) | 1;
}

Seal::Seal() : value_(std::uint64_t{std::random_device()()} << 32 | 1U) {}

MemoryOwner Seal::owner() const {
  return {.machine = machine_of_this_process(),
          .process = ::getpid(),
          .seal_address = reinterpret_cast<std::uint64_t>(&value_),  // NOLINT
          .seal = value_};
}

bool can_read_memory_of(const MemoryOwner& owner) try {
  std::uint64_t seal = 0;
  return !read_peer_memory(owner, {.address = owner.seal_address, .bytes = sizeof seal}, &seal);
} catch (const std::runtime_error&) {
  return false;
}

std::vector<std::uint8_t> can_read_each(std::span<const MemoryOwner> owners, std::size_t own) {
  std::vector<std::uint8_t> can;
  for (const auto& owner : owners) {
    const bool may_be_near = owner.machine != 0 && owner.machine == owners[own].machine;
    can.push_back(may_be_near && can_read_memory_of(owner) ? 1 : 0);
  }
  return can;
}

// The seal is read after what it vouches for. Where only that can be read, the process is there, and the
// system keeps the part from others: secret memory, that of devices.
std::error_code read_peer_memory(const MemoryOwner& owner, const MemoryPart& part, void* to) {
  volatile std::uint64_t seal = 0;  // GCC 12 at -O1 would take it for unchanged by the call below
  auto* const at_seal = const_cast<std::uint64_t*>(&seal);
  const Copy wanted{.there = {at(part.address), part.bytes}, .here = {to, part.bytes}};
  const Copy vouch{.there = {at(owner.seal_address), sizeof seal}, .here = {at_seal, sizeof seal}};
  const auto error = copy_both(owner.process, wanted, vouch);
  if (is_forbidden(error)) return {error, std::generic_category()};
  const bool is_there = error != EFAULT || copy_both(owner.process, {}, vouch) == 0;
  if (error == ESRCH || !is_there) refuse_gone();
  if (error != 0 && error != EFAULT)
    throw std::system_error(error, std::generic_category(), "memory of another process cannot be read");
  if (seal != owner.seal || seal == 0) refuse_gone();
  return {error, std::generic_category()};
}

}  // namespace lockstep::detail
