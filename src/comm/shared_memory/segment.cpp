#include "comm/shared_memory/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <utility>

#include <lockstep/base/env.h>

#include "base/system.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace lockstep::detail {
namespace {

constexpr const char* kSwitches[] = {"LOCKSTEP_SHARED_MEMORY", "LOCKSTEP_CMA"};

bool is_wanted() {
  for (const auto* const name : kSwitches)
    if (env::get(name) == "0") return false;
  return true;
}

// For tests: processes of one machine for which it differs count as those of several.
constexpr const char* kHostForTests = "LOCKSTEP_TEST_HOST";

// Processes know each other by the same numbers where they run under one kernel, in one namespace of process
// ids.
std::uint64_t machine_of_this_process() {
  struct stat ids {};
  const auto boot = boot_id();
  if (!is_wanted() || boot.empty() || ::stat("/proc/self/ns/pid", &ids) != 0) return 0;
  return std::hash<std::string>()(boot + std::to_string(ids.st_dev) + ":" + std::to_string(ids.st_ino) +
                                  env::get(kHostForTests).value_or("")) |
         1U;
}

std::string path_of(const SegmentAddress& address) {
  return "/proc/" + std::to_string(address.process) + "/fd/" + std::to_string(address.descriptor);
}

std::uint64_t random_seal() { return std::uint64_t{std::random_device()()} << 32 | 1U; }

// At a multiple of the size, as a huge page needs it: a part of a mapping that is twice as long. Null where
// there is no room.
std::byte* map_aligned(int fd) {
  void* const room =
      ::mmap(nullptr, 2 * kSegmentBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<std::byte*>(room);
  auto* const end = begin + 2 * kSegmentBytes;
  auto* const data =
      begin + (kSegmentBytes - reinterpret_cast<std::uintptr_t>(begin) % kSegmentBytes) %  // NOLINT
                  kSegmentBytes;
  if (data > begin) ::munmap(begin, static_cast<std::size_t>(data - begin));
  if (end > data + kSegmentBytes)
    ::munmap(data + kSegmentBytes, static_cast<std::size_t>(end - (data + kSegmentBytes)));
  if (::mmap(data, kSegmentBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == MAP_FAILED) {
    ::munmap(data, kSegmentBytes);
    return nullptr;
  }
  ::madvise(data, kSegmentBytes, MADV_DONTFORK);
  return data;
}

}  // namespace

std::optional<ErrorParts> fault_in_memory_switch() {
  for (const auto* const name : kSwitches) {
    const auto value = env::get(name).value_or("1");
    if (value != "0" && value != "1")
      return ErrorParts{.what = std::string("environment variable ") + name,
                        .expected = "0 or 1",
                        .got = '"' + value + '"'};
  }
  return std::nullopt;
}

std::optional<SharedSegment> SharedSegment::create() {
  if (!is_wanted()) return std::nullopt;
  UniqueFd fd(::memfd_create("lockstep", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  // Memory that is not there would be noticed by a signal, at the first use.
  if (!fd || ::ftruncate(fd.get(), kSegmentBytes) != 0 || ::fallocate(fd.get(), 0, 0, kSegmentBytes) != 0)
    return std::nullopt;
  ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
  auto* const data = map_aligned(fd.get());
  if (data == nullptr) return std::nullopt;
  ::madvise(data, kSegmentBytes, MADV_COLLAPSE);
  const auto seal = random_seal();
  std::memcpy(data, &seal, sizeof seal);
  return SharedSegment(data, std::move(fd));
}

std::optional<SharedSegment> SharedSegment::open(const SegmentAddress& address) {
  if (address.machine == 0 || address.machine != machine_of_this_process()) return std::nullopt;
  const UniqueFd fd(::open(path_of(address).c_str(), O_RDWR | O_CLOEXEC));
  struct stat file {};
  if (!fd || ::fstat(fd.get(), &file) != 0 || file.st_size != static_cast<off_t>(kSegmentBytes))
    return std::nullopt;
  auto* const data = map_aligned(fd.get());
  if (data == nullptr) return std::nullopt;
  SharedSegment segment(data, {});
  std::uint64_t seal = 0;
  std::memcpy(&seal, data, sizeof seal);
  if (seal != address.seal) return std::nullopt;
  return segment;
}

SharedSegment::SharedSegment(SharedSegment&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), fd_(std::move(other.fd_)) {}

SharedSegment& SharedSegment::operator=(SharedSegment&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(fd_, other.fd_);
  return *this;
}

SharedSegment::~SharedSegment() {
  if (data_ != nullptr) ::munmap(data_, kSegmentBytes);
}

SegmentAddress SharedSegment::address() const {
  SegmentAddress address{
      .machine = machine_of_this_process(), .process = ::getpid(), .descriptor = fd_.get()};
  std::memcpy(&address.seal, data_, sizeof address.seal);
  return address;
}

// A process that has died, and that nobody has waited for yet, has no descriptors any more.
bool is_gone(const SegmentAddress& address) { return ::access(path_of(address).c_str(), F_OK) != 0; }

}  // namespace lockstep::detail
