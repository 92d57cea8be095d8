// A file that grows by whole rows, whatever happens.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include <sys/types.h>

#include <lockstep/base/export.h>

namespace lockstep::detail {

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
