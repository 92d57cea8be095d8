// The files of loggers: folders version_0, version_1, ..., rows that are appended, and what is done where
// nothing can be written.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// Makes `parent`/version_N, with N one more than the largest there is, from 0, and gives N. Processes that
/// do so at the same time get different numbers. Blocking.
/// @throws IoError naming the folder when it cannot be made
LOCKSTEP_API std::int64_t claim_version(const std::filesystem::path& parent);

/// create_directories. @throws IoError naming the folder when it cannot be made
LOCKSTEP_API void make_folder(const std::filesystem::path& folder);

/// Renames `file`, if there is one, to the first free of metrics.1.csv, metrics.2.csv, ...: the run that
/// wrote it may have been interrupted, and go on now.
/// @throws std::filesystem::filesystem_error
LOCKSTEP_API void put_aside(const std::filesystem::path& file);

/// Runs `write`. That a file or folder cannot be written in it is reported, the first time that it happens
/// for `place`. Whether all went well.
LOCKSTEP_API bool write_or_warn(const std::filesystem::path& place, const std::function<void()>& write);

/// Rows that were flushed are in the file, also when this process is killed. A flush that fails leaves no
/// part of a row behind, and no empty file; its rows stay here, for the next one.
class LOCKSTEP_API AppendFile {
 public:
  /// What becomes of a file of that name that is there already.
  enum class Existing {
    kReplaced,
    kContinued,
    kPutAside  ///< called FILE.1.EXT
  };

  /// Touches no file yet.
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
