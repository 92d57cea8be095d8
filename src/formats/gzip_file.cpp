#include "formats/gzip_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <zlib.h>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>

#include "base/format.h"
#include "formats/file_text.h"

namespace lockstep::detail {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{1} << 18;
constexpr int kWithGzipHeader = MAX_WBITS + 16;
constexpr std::string_view kMagic = "\x1f\x8b";

}  // namespace

/// The bytes of the file, of which those in `input` from `begin` to `end` are not used yet.
struct GzipFile::Source {
  explicit Source(const std::filesystem::path& path)
      : descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC)), input(kBlockBytes) {}
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;
  ~Source() {
    if (is_gzip) ::inflateEnd(&stream);
    if (descriptor >= 0) ::close(descriptor);
  }

  std::string_view unread() const { return {input.data() + begin, end - begin}; }

  int descriptor;
  std::vector<char> input;
  std::size_t begin = 0, end = 0;
  bool is_gzip = false;
  bool is_in_member = false;
  z_stream stream{};
};

GzipFile::GzipFile(const std::filesystem::path& path) : path_(path), source_(std::make_unique<Source>(path)) {
  auto& source = *source_;
  if (source.descriptor < 0) throw DataError("formats", unreadable_file(path, system_error_text(errno)));
  require_own_pipe();
  while (source.unread().size() < kForeignStartBytes && fill()) {
  }
  source.is_gzip = source.is_in_member = source.unread().starts_with(kMagic);
  if (source.is_gzip) begin_inflating();
  if (const auto foreign = source.is_gzip ? std::nullopt : foreign_file(source.unread()))
    fail("cannot read", foreign->what, foreign->hint);
}

GzipFile::~GzipFile() = default;

void GzipFile::fail(std::string_view what, std::string_view got, std::string_view hint) const {
  throw DataError("formats", {.what = std::string(what) + " '" + path_.string() + "'",
                              .got = std::string(got),
                              .hint = std::string(hint)});
}

// What one rank reads of a pipe is lost for the others.
void GzipFile::require_own_pipe() const {
  struct stat status {};
  const bool is_pipe = ::fstat(source_->descriptor, &status) == 0 && S_ISFIFO(status.st_mode);
  const auto ranks = is_pipe ? env::get("WORLD_SIZE").value_or("1") : "1";
  if (ranks != "1")
    fail("cannot read", "a pipe, which gives each byte to one of " + ranks + " ranks",
         "write it to a file first, which all ranks can read");
}

void GzipFile::begin_inflating() {
  if (::inflateInit2(&source_->stream, kWithGzipHeader) != Z_OK)
    fail("cannot open", system_error_text(ENOMEM));
}

std::size_t GzipFile::read(std::span<char> bytes) {
  std::size_t count = 0;
  while (count < bytes.size()) {
    const auto more = source_->is_gzip ? read_gzip(bytes.subspan(count)) : read_plain(bytes.subspan(count));
    if (more == 0) break;
    count += more;
  }
  return count;
}

bool GzipFile::fill() {
  auto& source = *source_;
  std::copy(source.input.begin() + static_cast<std::ptrdiff_t>(source.begin),
            source.input.begin() + static_cast<std::ptrdiff_t>(source.end), source.input.begin());
  source.end -= std::exchange(source.begin, 0);
  ssize_t count = 0;
  do {
    count = ::read(source.descriptor, source.input.data() + source.end, source.input.size() - source.end);
  } while (count < 0 && errno == EINTR);
  if (count < 0) fail("cannot read", system_error_text(errno));
  source.end += static_cast<std::size_t>(count);
  return count > 0;
}

std::size_t GzipFile::read_plain(std::span<char> bytes) {
  auto& source = *source_;
  if (source.unread().empty() && !fill()) return 0;
  const auto count = std::min(bytes.size(), source.unread().size());
  std::copy_n(source.unread().begin(), count, bytes.begin());
  source.begin += count;
  return count;
}

// Whether another member begins. Zeros may fill up the last block of a tape or a disk.
bool GzipFile::begin_member() {
  auto& source = *source_;
  while (source.unread().size() < kMagic.size() || source.unread().front() == '\0') {
    const auto zeros = std::min(source.unread().find_first_not_of('\0'), source.unread().size());
    source.begin += zeros;
    if (zeros == 0 && !fill()) break;
  }
  if (source.unread().empty()) return false;
  if (!source.unread().starts_with(kMagic))
    fail("compressed data is damaged in", "bytes after the end of a gzip member that begin no other one");
  ::inflateReset(&source.stream);
  return source.is_in_member = true;
}

std::size_t GzipFile::read_gzip(std::span<char> bytes) {
  auto& source = *source_;
  auto& stream = source.stream;
  const auto wanted = std::min<std::size_t>(bytes.size(), std::numeric_limits<uInt>::max());
  for (;;) {
    if (!source.is_in_member && !begin_member()) return 0;
    if (source.unread().empty() && !fill())
      fail("compressed data is cut short in", "end of file amid a gzip member");
    stream.next_in = reinterpret_cast<Bytef*>(source.input.data() + source.begin);
    stream.avail_in = static_cast<uInt>(source.unread().size());
    stream.next_out = reinterpret_cast<Bytef*>(bytes.data());
    stream.avail_out = static_cast<uInt>(wanted);
    const int status = ::inflate(&stream, Z_NO_FLUSH);
    source.begin = source.end - stream.avail_in;
    if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR)
      fail("compressed data is damaged in", stream.msg != nullptr ? stream.msg : "no gzip member");
    if (status == Z_STREAM_END) source.is_in_member = false;
    if (const auto count = wanted - stream.avail_out; count > 0) return count;
  }
}

bool LineReader::fill() {
  std::copy(buffer_.begin() + static_cast<std::ptrdiff_t>(begin_),
            buffer_.begin() + static_cast<std::ptrdiff_t>(end_), buffer_.begin());
  end_ -= std::exchange(begin_, 0);
  if (end_ > kMaxLineBytes) file_.fail("no end of line in the first 64 MiB of a line of", "no text file");
  if (buffer_.size() < end_ + kBlockBytes) buffer_.resize(std::max(2 * buffer_.size(), end_ + kBlockBytes));
  const std::size_t count = file_.read(std::span(buffer_).subspan(end_, kBlockBytes));
  end_ += count;
  if (!std::exchange(has_begun_, true)) refuse_other_formats();
  return count > 0;
}

// Of a compressed file the constructor of GzipFile has not seen what is within.
void LineReader::refuse_other_formats() const {
  constexpr std::size_t kMarkOfTar = 257;
  if (const auto foreign = foreign_file(unread().substr(0, kForeignStartBytes)))
    file_.fail("cannot read", foreign->what, foreign->hint);
  if (unread().substr(std::min(kMarkOfTar, unread().size())).starts_with("ustar"))
    file_.fail("cannot read", "a tar archive", "unpack it first, with tar xf");
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
