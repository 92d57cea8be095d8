#include "formats/inflate.h"

#include <algorithm>

#include <zlib.h>

namespace lockstep::detail {
namespace {

constexpr int kRaw = -MAX_WBITS;                      // no header of zlib's
constexpr std::size_t kPiece = std::size_t{1} << 30;  // zlib counts in 32 bits
constexpr std::uint64_t kFirst = std::uint64_t{1} << 16;
constexpr std::uint64_t kMostPerByte = 1032;  // 258 bytes for two bits

class Stream {
 public:
  Stream() : is_open_(::inflateInit2(&stream_, kRaw) == Z_OK) {}
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() {
    if (is_open_) ::inflateEnd(&stream_);
  }

  bool is_open() const { return is_open_; }

  /// Moves on by one step of zlib's: whether there is more to come, the end has come, or data are damaged.
  int step(std::span<const std::byte>& in, std::span<std::byte>& out) {
    const auto in_bytes = std::min(in.size(), kPiece), out_bytes = std::min(out.size(), kPiece);
    stream_.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(in.data()));
    stream_.avail_in = static_cast<uInt>(in_bytes);
    stream_.next_out = reinterpret_cast<Bytef*>(out.data());
    stream_.avail_out = static_cast<uInt>(out_bytes);
    const int status = ::inflate(&stream_, Z_NO_FLUSH);
    in = in.subspan(in_bytes - stream_.avail_in);
    out = out.subspan(out_bytes - stream_.avail_out);
    return status;
  }

 private:
  z_stream stream_{};
  bool is_open_;
};

}  // namespace

std::optional<std::vector<std::byte>> inflated(std::span<const std::byte> deflated, std::uint64_t size) {
  Stream stream;
  if (!stream.is_open() || size / kMostPerByte > deflated.size()) return std::nullopt;
  // One more shows that there is too much.
  std::vector<std::byte> bytes(std::min({size, kFirst, kMostPerByte * deflated.size()}) + 1);
  std::size_t used = 0;
  for (int status = Z_OK; status != Z_STREAM_END;) {
    if (used == bytes.size()) {
      if (used > size) return std::nullopt;
      bytes.resize(std::min<std::uint64_t>(size, 2 * used) + 1);
    }
    auto out = std::span(bytes).subspan(used);
    status = stream.step(deflated, out);
    used = bytes.size() - out.size();
    const bool is_full = out.empty() && status == Z_BUF_ERROR;
    if (status != Z_OK && status != Z_STREAM_END && !is_full) return std::nullopt;
  }
  if (used != size || !deflated.empty()) return std::nullopt;
  bytes.resize(used);
  return bytes;
}

}  // namespace lockstep::detail
