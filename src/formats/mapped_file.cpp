#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include <lockstep/base/error.h>
#include <lockstep/formats/mapped_file.h>

#include "base/format.h"

namespace lockstep {
namespace {

struct FileDescriptor {
  ~FileDescriptor() {
    if (value >= 0) ::close(value);
  }
  int value;
};

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path, Access access) {
  // O_NONBLOCK: opening a pipe must fail below, not wait for its writer.
  const FileDescriptor fd{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (fd.value < 0) throw IoError("formats", detail::unreadable_file(path, detail::system_error_text(errno)));
  struct stat status {};
  if (::fstat(fd.value, &status) != 0)
    throw IoError("formats", detail::unreadable_file(path, detail::system_error_text(errno)));
  if (!S_ISREG(status.st_mode))
    throw IoError("formats", detail::unreadable_file(path, "something that is no regular file"));
  if (status.st_size == 0) return;  // mmap refuses length 0
  const auto size = static_cast<std::size_t>(status.st_size);
  const bool is_private = access == Access::kPrivate;
  void* start = ::mmap(nullptr, size, is_private ? PROT_READ | PROT_WRITE : PROT_READ,
                       is_private ? MAP_PRIVATE | MAP_NORESERVE : MAP_SHARED, fd.value, 0);
  if (start == MAP_FAILED)
    throw IoError("formats", detail::unreadable_file(path, detail::system_error_text(errno)));
  bytes_ = {static_cast<std::byte*>(start), size};
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

}  // namespace lockstep
