#include "formats/gzip_file.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <string>

#include <lockstep/base/error.h>

#include "base/system_error_text.h"

namespace lockstep::detail {
namespace {

constexpr unsigned kBlockBytes = 1U << 18;

}  // namespace

struct GzipFile::Source {
  // zlib hands plain files through, and goes on with the next member of a concatenated one.
  explicit Source(const std::filesystem::path& path) : file(::gzopen(path.c_str(), "rb")) {}
  ~Source() {
    if (file) ::gzclose(file);
  }
  gzFile file;
};

GzipFile::GzipFile(const std::filesystem::path& path) : path_(path) {
  errno = 0;
  source_ = std::make_unique<Source>(path);
  if (!source_->file) fail("cannot open", system_error_text(errno ? errno : ENOMEM));
  ::gzbuffer(source_->file, kBlockBytes);
}

GzipFile::~GzipFile() = default;

void GzipFile::fail(std::string_view what, std::string_view got) const {
  throw DataError("formats",
                  {.what = std::string(what) + " '" + path_.string() + "'", .got = std::string(got)});
}

std::size_t GzipFile::read(std::span<char> bytes) {
  const auto wanted = static_cast<unsigned>(std::min<std::size_t>(bytes.size(), INT_MAX));
  const int count = ::gzread(source_->file, bytes.data(), wanted);
  int code = Z_OK;
  const char* reason = ::gzerror(source_->file, &code);
  if (code == Z_ERRNO) fail("cannot read", system_error_text(errno));
  if (code == Z_BUF_ERROR) fail("compressed data is cut short in", "end of file amid a gzip member");
  if (code != Z_OK && code != Z_STREAM_END) fail("compressed data is damaged in", reason);
  return static_cast<std::size_t>(std::max(count, 0));
}

}  // namespace lockstep::detail
