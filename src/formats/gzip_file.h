// A file, plain or compressed with gzip, from front to back, by bytes or by lines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace lockstep::detail {

/// The content tells whether the file is compressed. Concatenated gzip members are read one after the other,
/// and zeros behind them are skipped.
class GzipFile {
 public:
  /// @throws DataError when the file cannot be opened, is of another format, or is a pipe that several ranks
  /// read
  explicit GzipFile(const std::filesystem::path& path);
  ~GzipFile();

  /// Fills `bytes`, less at the end of the file, and returns the number of bytes.
  /// @throws DataError naming the file: unreadable, damaged or cut short
  std::size_t read(std::span<char> bytes);

  /// @throws DataError of that text, naming the file
  [[noreturn]] void fail(std::string_view what, std::string_view got, std::string_view hint = {}) const;

 private:
  struct Source;

  bool fill();
  void require_own_pipe() const;
  bool begin_member();
  void begin_inflating();
  std::size_t read_plain(std::span<char> bytes);
  std::size_t read_gzip(std::span<char> bytes);

  std::filesystem::path path_;
  std::unique_ptr<Source> source_;
};

/// Reads a file in blocks and hands out its lines one by one.
class LineReader {
 public:
  /// @throws DataError when the file cannot be opened
  explicit LineReader(const std::filesystem::path& path) : file_(path) {}

  /// Sets `line` to the next line without its end (LF or CRLF); false at the end of the file. `line` is
  /// valid until the next call.
  /// @throws DataError naming the file: unreadable, damaged or truncated compression, a line of more
  ///     than kMaxLineBytes
  bool next(std::string_view& line);

  /// Number of the line that next() gave last, counted from 1.
  std::int64_t line_number() const { return line_number_; }

  static constexpr std::size_t kMaxLineBytes = std::size_t{64} << 20;

 private:
  bool fill();
  void refuse_other_formats() const;
  std::string_view unread() const { return {buffer_.data() + begin_, end_ - begin_}; }

  GzipFile file_;
  std::vector<char> buffer_;
  std::size_t begin_ = 0;  // of the bytes that were read, but not returned yet
  std::size_t end_ = 0;
  std::int64_t line_number_ = 0;
  bool has_begun_ = false;
};

}  // namespace lockstep::detail
