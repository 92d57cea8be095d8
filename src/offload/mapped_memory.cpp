#include "offload/mapped_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include <lockstep/base/error.h>
#include <lockstep/base/unique_fd.h>

#include "base/system_error_text.h"
#include "offload/file_space.h"

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

// A file that has no name is removed with the process, however that ends.
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

}  // namespace lockstep::offload
