// The files of loggers: folders version_0, version_1, ..., files to which rows are appended, and the handling
// of write errors.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// Creates `parent`/version_N, with N one more than the largest existing number, from 0, and returns N.
/// Processes that do so at the same time get different numbers. Blocking.
/// @throws IoError naming the folder when it cannot be made
LOCKSTEP_API std::int64_t claim_version(const std::filesystem::path& parent);

/// create_directories. @throws IoError naming the folder when it cannot be made
LOCKSTEP_API void make_folder(const std::filesystem::path& folder);

/// Renames `file`, if there is one, to the first free of metrics.1.csv, metrics.2.csv, ...: the run that
/// wrote it may have been interrupted, and go on now.
/// @throws std::filesystem::filesystem_error
LOCKSTEP_API void put_aside(const std::filesystem::path& file);

/// Runs `write` and returns whether it succeeded. A file or folder that cannot be written is reported in a
/// warning, once for each `place`.
LOCKSTEP_API bool write_or_warn(const std::filesystem::path& place, const std::function<void()>& write);

/// A file to which rows are appended. Flushed rows are in the file, also when this process is killed. A flush
/// that fails leaves no part of a row in the file, and no empty file; its rows are written by the next one.
class LOCKSTEP_API AppendFile {
 public:
  /// What happens to an existing file of that name.
  enum class Existing {
    kReplaced,
    kContinued,
    kPutAside  ///< called FILE.1.EXT
  };

  /// Does not create the file yet.
  explicit AppendFile(std::filesystem::path file, Existing existing = Existing::kReplaced)
      : file_(std::move(file)), existing_(existing) {}

  /// Takes the next bytes of the file.
  void append(std::string_view bytes) { pending_ += bytes; }

  /// Whether flush() has something to write.
  bool pending() const { return !pending_.empty(); }

  /// Writes what was taken; makes the folder when there is none. Blocking.
  /// @throws IoError naming the file, with the system's reason
  void flush();

 private:
  void write_pending(int fd);

  std::filesystem::path file_;
  Existing existing_;
  std::string pending_;
  bool begun_ = false;  // the file is there, with `size_` bytes that are to stay
  off_t size_ = 0;
};

}  // namespace lockstep::detail
