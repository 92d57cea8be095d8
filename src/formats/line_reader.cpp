#include "formats/line_reader.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <utility>

#include <lockstep/base/error.h>

#include "base/system_error_text.h"

namespace lockstep::detail {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{1} << 18;

}  // namespace

struct LineReader::Source {
  // zlib hands plain files through, and goes on with the next member of a concatenated one.
  explicit Source(const std::filesystem::path& path) : file(::gzopen(path.c_str(), "rb")) {}
  ~Source() {
    if (file) ::gzclose(file);
  }
  gzFile file;
};

LineReader::LineReader(const std::filesystem::path& path) : path_(path) {
  errno = 0;
  source_ = std::make_unique<Source>(path);
  if (!source_->file) fail("cannot open", system_error_text(errno ? errno : ENOMEM));
  ::gzbuffer(source_->file, kBlockBytes);
}

LineReader::~LineReader() = default;

void LineReader::fail(const char* what, std::string_view got) const {
  throw DataError("formats",
                  {.what = std::string(what) + " '" + path_.string() + "'", .got = std::string(got)});
}

bool LineReader::fill() {
  std::copy(buffer_.begin() + static_cast<std::ptrdiff_t>(begin_),
            buffer_.begin() + static_cast<std::ptrdiff_t>(end_), buffer_.begin());
  end_ -= std::exchange(begin_, 0);
  if (end_ > kMaxLineBytes) fail("no end of line in the first 64 MiB of a line of", "no text file");
  if (buffer_.size() < end_ + kBlockBytes) buffer_.resize(std::max(2 * buffer_.size(), end_ + kBlockBytes));
  const int count = ::gzread(source_->file, buffer_.data() + end_, kBlockBytes);
  int code = Z_OK;
  const char* reason = ::gzerror(source_->file, &code);
  if (code == Z_ERRNO) fail("cannot read", system_error_text(errno));
  if (code == Z_BUF_ERROR) fail("compressed data is cut short in", "end of file amid a gzip member");
  if (code != Z_OK && code != Z_STREAM_END) fail("compressed data is damaged in", reason);
  end_ += static_cast<std::size_t>(std::max(count, 0));
  return count > 0;
}

bool LineReader::next(std::string_view& line) {
  std::size_t searched = 0;
  std::size_t newline = unread().find('\n');
  while (newline == std::string_view::npos) {
    searched = unread().size();
    if (!fill()) break;
    newline = unread().find('\n', searched);
  }
  if (newline == std::string_view::npos && unread().empty()) return false;
  line = unread().substr(0, newline);
  begin_ += std::min(line.size() + 1, unread().size());
  if (line.ends_with('\r')) line.remove_suffix(1);
  ++line_number_;
  return true;
}

}  // namespace lockstep::detail
