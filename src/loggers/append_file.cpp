#include "loggers/append_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/base/unique_fd.h>

#include "base/system_error_text.h"
#include "loggers/put_aside.h"
#include "loggers/version_folder.h"

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const std::string& verb, const fs::path& file, int error_number) {
  throw IoError("loggers", {.what = "cannot " + verb + " '" + file.string() + "'",
                            .got = system_error_text(error_number)});
}

// 0, or the error that stopped it.
int write_at(int fd, std::string_view bytes, off_t place) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(fd, bytes.data(), bytes.size(), place);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    bytes.remove_prefix(static_cast<std::size_t>(written));
    place += written;
  }
  return 0;
}

}  // namespace

void AppendFile::flush() {
  if (pending_.empty()) return;
  // A file that was begun and is gone is not made anew: its first rows would be missing.
  int flags = O_WRONLY | O_CLOEXEC;
  if (!begun_) {
    if (file_.has_parent_path()) make_folder(file_.parent_path());
    if (existing_ == Existing::kPutAside) put_aside(file_);
    flags |= existing_ == Existing::kReplaced ? O_CREAT | O_TRUNC : O_CREAT;
  }
  const UniqueFd fd(::open(file_.c_str(), flags, 0666));
  if (!fd) fail("open", file_, errno);
  if (!begun_) {
    struct stat status {};
    if (::fstat(fd.get(), &status) != 0) fail("look at", file_, errno);
    if (!S_ISREG(status.st_mode)) fail("append to", file_, ESPIPE);
    size_ = status.st_size;
  }
  write_pending(fd.get());
}

void AppendFile::write_pending(int fd) {
  if (const int failure = write_at(fd, pending_, size_)) {
    // What cannot be cut off is overwritten next time.
    [[maybe_unused]] const int ignored = ::ftruncate(fd, size_);
    if (size_ == 0) ::unlink(file_.c_str());
    fail("write", file_, failure);
  }
  begun_ = true;
  size_ += static_cast<off_t>(pending_.size());
  pending_.clear();
}

}  // namespace lockstep::detail
