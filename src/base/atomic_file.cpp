#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <string>
#include <system_error>
#include <utility>

#include <lockstep/base/atomic_file.h>
#include <lockstep/base/error.h>

#include "base/format.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kWriteAhead = std::size_t{8}
                                    << 20;  // bytes that are collected before the disk is asked to write them

[[noreturn]] void fail(const std::string& verb, const fs::path& path, int error_number) {
  throw IoError("base", {.what = "cannot " + verb + " '" + path.string() + "'",
                         .got = detail::system_error_text(error_number)});
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

/// The file that `path` leads to. A device or pipe there is refused, since the rename would replace it by a
/// file.
fs::path place_of_file(const fs::path& path) {
  std::error_code failure, ignored;  // a path that does not exist is reported in it, too
  const auto place = fs::is_symlink(path, ignored) ? fs::weakly_canonical(path, failure) : path;
  if (failure) fail("follow", path, failure.value());
  const auto status = fs::status(place, ignored);
  if (!fs::exists(status) || fs::is_regular_file(status)) return place;
  throw IoError("base", {.what = "cannot replace '" + path.string() + "'",
                         .expected = "a file, or nothing of that name",
                         .got = fs::is_directory(status) ? "a directory" : "a device, pipe or socket"});
}

/// A file with a unique name beside the target; removed unless it was renamed.
class TemporaryFile {
 public:
  explicit TemporaryFile(const fs::path& path) : target_(place_of_file(path)) {
    const auto& target = target_;
    static std::atomic<unsigned> counter{0};
    // A run that was killed and had this process id may have left a file of that name; then the next name is
    // tried.
    do {
      path_ = folder_of(target) / ("." + target.filename().string() + "." + std::to_string(::getpid()) + "-" +
                                   std::to_string(counter++) + ".tmp");
      fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    } while (fd_ < 0 && errno == EEXIST);
    if (fd_ < 0) fail("create a file beside", target, errno);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (fd_ >= 0) ::close(fd_);
    if (!renamed_) ::unlink(path_.c_str());
  }

  int fd() const { return fd_; }

  void rename_to_target() {
    if (::fsync(fd_) != 0) fail("sync", target_, errno);
    if (::close(std::exchange(fd_, -1)) != 0) fail("close", target_, errno);
    if (std::rename(path_.c_str(), target_.c_str()) != 0) fail("replace", target_, errno);
    renamed_ = true;
  }

 private:
  fs::path target_;
  fs::path path_;
  int fd_ = -1;
  bool renamed_ = false;
};

}  // namespace

void FileWriter::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd_, bytes.data(), std::min(bytes.size(), kWriteAhead));
    if (written < 0 && errno != EINTR) fail("write", target_, errno);
    if (written <= 0) continue;
    bytes = bytes.subspan(static_cast<std::size_t>(written));
    written_ += written;
    if (written_ - handed_over_ >= static_cast<std::int64_t>(kWriteAhead)) hand_over();
  }
}

// Starts the writing to disk early, which would otherwise wait for fsync. fsync reports what fails here.
void FileWriter::hand_over() {
  (void)::sync_file_range(fd_, handed_over_, written_ - handed_over_, SYNC_FILE_RANGE_WRITE);
  handed_over_ = written_;
}

void write_file_atomically(const fs::path& path, const std::function<void(FileWriter&)>& fill) {
  TemporaryFile file(path);
  FileWriter writer(file.fd(), path);
  fill(writer);
  file.rename_to_target();
  sync_folder(folder_of(path));
}

void write_file_atomically(const fs::path& path, std::span<const std::byte> bytes) {
  write_file_atomically(path, [&](FileWriter& writer) { writer.write(bytes); });
}

void write_file_atomically(const fs::path& path, std::string_view text) {
  write_file_atomically(path, std::as_bytes(std::span(text)));
}

void sync_folder(const fs::path& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) fail("open folder", folder, errno);
  const int failure = ::fsync(fd) == 0 ? 0 : errno;
  ::close(fd);
  // Some file systems cannot sync folders and say so with EINVAL; nothing more can be done there.
  if (failure != 0 && failure != EINVAL) fail("sync folder", folder, failure);
}

namespace {

// "File exists" would not say what is in the way.
[[noreturn]] void fail_to_create(const fs::path& folder, const std::error_code& failure) {
  std::error_code ignored;
  if (failure != std::errc::file_exists) fail("create folder", folder, failure.value());
  const bool is_link = fs::is_symlink(folder, ignored);
  throw IoError("base",
                {.what = "cannot create folder '" + folder.string() + "'",
                 .got = is_link ? "File exists: a link to '" + fs::read_symlink(folder, ignored).string() +
                                      "', which is no folder"
                                : "File exists: a file of that name"});
}

}  // namespace

void create_folders(const fs::path& folder) {
  std::error_code failure;
  if (folder.empty() || fs::is_directory(folder, failure)) return;
  create_folders(folder.parent_path());
  if (!fs::create_directory(folder, failure)) {
    if (failure) fail_to_create(folder, failure);
    return;  // another process was faster, and syncs it
  }
  sync_folder(folder_of(folder));
}

}  // namespace lockstep
