#include "offload/mapped_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/base/unique_fd.h>

#include "base/format.h"
#include "offload/swap_folder.h"

namespace lockstep::offload {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const fs::path& path, const char* what) {
  throw IoError("offload", {.what = std::string("cannot ") + what + " swap file '" + path.string() + "'",
                            .got = detail::system_error_text(errno)});
}

UniqueFd open_file(const fs::path& path, int flags) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC | flags, 0600));
  if (!fd) refuse(path, "open");
  return fd;
}

std::span<std::byte> map(const UniqueFd& fd, const fs::path& path, std::uint64_t bytes) {
  void* const address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (address == MAP_FAILED) refuse(path, "map");
  return {static_cast<std::byte*>(address), bytes};
}

// Removes the name of a file, so that the file is removed when the process ends, however that happens.
struct TakenName {
  ~TakenName() { ::unlink(path.c_str()); }
  const fs::path& path;
};

std::span<std::byte> map_without_name(const fs::path& path, std::uint64_t bytes, const std::string& owner) {
  const auto fd = open_file(path, O_CREAT | O_EXCL);
  const TakenName name{path};
  allocate_file(fd.get(), path, bytes, owner);
  return map(fd, path, bytes);
}

}  // namespace

MappedMemory::MappedMemory(const SwapFolder& folder, std::string_view name, std::uint64_t bytes)
    : bytes_(map_without_name(folder.path() / name, bytes, "rank " + std::to_string(folder.options().rank))) {
}

MappedMemory::MappedMemory(const SwapFile& file)
    : bytes_(map(open_file(file.path(), 0), file.path(), file.bytes())) {}

MappedMemory::~MappedMemory() { ::munmap(bytes_.data(), bytes_.size()); }

namespace {

constexpr std::uint64_t kPageBytes = 4096;

std::uint64_t whole_pages(std::uint64_t bytes) {
  return (std::max<std::uint64_t>(bytes, 1) + kPageBytes - 1) / kPageBytes * kPageBytes;
}

}  // namespace

std::unique_ptr<MappedMemory> MappedPool::take(std::uint64_t bytes) {
  bytes = whole_pages(bytes);
  decltype(unused_) outgrown;  // unmapped without the lock
  std::string name;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = unused_.lower_bound(bytes); found != unused_.end() && found->first < 2 * bytes) {
      auto memory = std::move(found->second);
      unused_bytes_ -= found->first;
      unused_.erase(found);
      use(memory->bytes().size());
      return memory;
    }
    if (unused_bytes_ + bytes > most_in_use_) {
      outgrown = std::exchange(unused_, {});
      unused_bytes_ = 0;
    }
    name = "pool_" + std::to_string(files_++);
  }
  auto memory = std::make_unique<MappedMemory>(folder_, name, bytes);
  const std::lock_guard lock(mutex_);
  use(bytes);
  return memory;
}

void MappedPool::use(std::uint64_t bytes) {
  in_use_ += bytes;
  most_in_use_ = std::max(most_in_use_, in_use_);
}

void MappedPool::give_back(std::unique_ptr<MappedMemory> memory) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t bytes = memory->bytes().size();
  in_use_ -= bytes;
  unused_bytes_ += bytes;
  unused_.emplace(bytes, std::move(memory));
}

std::uint64_t MappedPool::bytes_in_use() const {
  const std::lock_guard lock(mutex_);
  return in_use_;
}

std::uint64_t MappedPool::bytes_unused() const {
  const std::lock_guard lock(mutex_);
  return unused_bytes_;
}

}  // namespace lockstep::offload
