#include "formats/line_reader.h"

#include <algorithm>
#include <utility>

namespace lockstep::detail {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{1} << 18;

}  // namespace

bool LineReader::fill() {
  std::copy(buffer_.begin() + static_cast<std::ptrdiff_t>(begin_),
            buffer_.begin() + static_cast<std::ptrdiff_t>(end_), buffer_.begin());
  end_ -= std::exchange(begin_, 0);
  if (end_ > kMaxLineBytes) file_.fail("no end of line in the first 64 MiB of a line of", "no text file");
  if (buffer_.size() < end_ + kBlockBytes) buffer_.resize(std::max(2 * buffer_.size(), end_ + kBlockBytes));
  const std::size_t count = file_.read(std::span(buffer_).subspan(end_, kBlockBytes));
  end_ += count;
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
