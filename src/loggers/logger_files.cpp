#include "loggers/logger_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <string>
#include <string_view>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/base/unique_fd.h>

#include "base/format.h"

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& folder, const std::error_code& failure) {
  throw IoError("loggers",
                {.what = "cannot make the folder '" + folder.string() + "'", .got = failure.message()});
}

// The number in the name of a version folder; -1 for other names. As in Lightning, `version_3_old` has the
// number 3.
std::int64_t version_in(std::string_view name) {
  constexpr std::string_view kVersionPrefix = "version_";
  if (!name.starts_with(kVersionPrefix)) return -1;
  name.remove_prefix(kVersionPrefix.size());
  name = name.substr(0, name.find('_'));
  std::int64_t version = -1;
  const auto [end, status] = std::from_chars(name.data(), name.data() + name.size(), version);
  return status == std::errc{} && end == name.data() + name.size() ? version : -1;
}

std::int64_t largest_version(const fs::path& parent) try {
  std::int64_t largest = -1;
  for (const auto& entry : fs::directory_iterator(parent)) {
    if (entry.is_directory()) largest = std::max(largest, version_in(entry.path().filename().string()));
  }
  return largest;
} catch (const fs::filesystem_error& error) {
  fail(parent, error.code());
}

}  // namespace

void make_folder(const fs::path& folder) {
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) fail(folder, failure);
}

std::int64_t claim_version(const fs::path& parent) {
  make_folder(parent);
  for (std::int64_t version = largest_version(parent) + 1;; ++version) {
    const auto folder = parent / ("version_" + std::to_string(version));
    std::error_code failure;
    if (fs::create_directory(folder, failure)) return version;
    if (failure && failure != std::errc::file_exists) fail(folder, failure);
  }
}

void put_aside(const std::filesystem::path& file) {
  if (!std::filesystem::is_regular_file(file)) return;
  for (int number = 1;; ++number) {
    auto aside = file;
    aside.replace_filename(file.stem().string() + "." + std::to_string(number) + file.extension().string());
    if (!std::filesystem::exists(aside)) return std::filesystem::rename(file, aside);
  }
}

namespace {

void warn(const std::filesystem::path& place, const char* reason) {
  warn_once("loggers: " + place.string(), place.string() +
                                              " cannot be written; training goes on, and what is " +
                                              "missing is written as soon as it can be: " + reason);
}

}  // namespace

bool write_or_warn(const std::filesystem::path& place, const std::function<void()>& write) {
  try {
    write();
    return true;
  } catch (const IoError& error) {
    warn(place, error.what());
  } catch (const std::filesystem::filesystem_error& error) {
    warn(place, error.what());
  }
  return false;
}

namespace {

[[noreturn]] void fail(const std::string& verb, const fs::path& file, int error_number) {
  throw IoError("loggers", {.what = "cannot " + verb + " '" + file.string() + "'",
                            .got = system_error_text(error_number)});
}

// Writes all `bytes`; returns 0, or the error that stopped it.
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
  // A file that was begun and has been removed is not created again: its first rows would be missing.
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
    // If truncating fails, the rest is overwritten by the next flush.
    [[maybe_unused]] const int ignored = ::ftruncate(fd, size_);
    if (size_ == 0) ::unlink(file_.c_str());
    fail("write", file_, failure);
  }
  begun_ = true;
  size_ += static_cast<off_t>(pending_.size());
  pending_.clear();
}

}  // namespace lockstep::detail
