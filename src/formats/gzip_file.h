// A file, plain or compressed with gzip, from front to back.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>

namespace lockstep::detail {

/// Told apart by content; concatenated gzip members are read on, and zeros behind them are passed over.
class GzipFile {
 public:
  /// @throws DataError when the file cannot be opened, or is of another compression
  explicit GzipFile(const std::filesystem::path& path);
  ~GzipFile();

  /// Fills `bytes`, less at the end of the file, and says with how many.
  /// @throws DataError naming the file: unreadable, damaged or cut short
  std::size_t read(std::span<char> bytes);

  /// @throws DataError of that text, naming the file
  [[noreturn]] void fail(std::string_view what, std::string_view got, std::string_view hint = {}) const;

 private:
  struct Source;

  bool fill();
  bool begin_member();
  void begin_inflating();
  std::size_t read_plain(std::span<char> bytes);
  std::size_t read_gzip(std::span<char> bytes);

  std::filesystem::path path_;
  std::unique_ptr<Source> source_;
};

}  // namespace lockstep::detail
