// Reads zip archives, stored or deflated.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <zlib.h>

#include <lockstep/formats/zip_archive.h>

#include "formats/file_text.h"
#include "formats/zip_records.h"

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

// The `size` bytes that `deflated` holds, or nothing where it holds other data or another number of them.
// Memory grows with what comes, not with `size`, which may be a lie.
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

}  // namespace
}  // namespace lockstep::detail

namespace lockstep::zip {
namespace {

using namespace detail;
using lockstep::detail::in_quotes;
using lockstep::detail::is_utf8;
using Bytes = std::span<const std::byte>;

constexpr std::uint64_t kMostBehindEnd = 0xFFFF;  // as long as a comment can be

struct Directory {
  Bytes bytes;                // its entries
  std::uint64_t offset = 0;   // in the file
  std::uint64_t entries = 0;  // that it claims to have
};

/// An entry with the bytes of the file that it takes, header included.
struct Placed {
  Entry entry;
  bool is_deflated = false;
  std::uint64_t size = 0;  // of its content
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

std::string_view text_of(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

/// The directory of that place and size, which ends at `end`.
Expected<Directory> directory_at(Bytes file, std::uint64_t offset, std::uint64_t bytes, std::uint64_t end,
                                 std::uint64_t entries) {
  if (offset > end || end - offset != bytes) {
    return Unexpected{"its directory of " + std::to_string(bytes) + " bytes at byte " +
                      std::to_string(offset) + " does not end where it should"};
  }
  return Directory{.bytes = file.subspan(offset, bytes), .offset = offset, .entries = entries};
}

Expected<Directory> directory64(Bytes file, std::uint64_t locator_offset, const End64Locator& locator) {
  const auto end = record_at<End64>(file.first(locator_offset), locator.end64);
  const bool usable = end && locator.disk == 0 && locator.disks == 1 &&
                      locator.end64 + sizeof(End64) == locator_offset && end->disk == 0 &&
                      end->directory_disk == 0 && end->entries_here == end->entries;
  if (!usable) return Unexpected{"its zip64 end is damaged"};
  return directory_at(file, end->directory, end->directory_bytes, locator.end64, end->entries);
}

/// Where the last record is that may be the end: a comment, or other bytes, may follow.
std::optional<std::uint64_t> last_end(Bytes file) {
  const auto last = file.size() - sizeof(End);
  for (std::uint64_t back = 0; back <= std::min<std::uint64_t>(last, kMostBehindEnd); ++back) {
    if (record_at<End>(file, last - back)) return last - back;
  }
  return std::nullopt;
}

Expected<Directory> find_directory(Bytes file) {
  if (file.size() < sizeof(End)) return Unexpected{std::to_string(file.size()) + " bytes are too few"};
  const auto found = last_end(file);
  if (!found) return Unexpected{"it does not end as an archive does"};
  const auto offset = *found;
  const auto end = record_at<End>(file, offset);
  if (offset >= sizeof(End64Locator)) {
    const auto locator_offset = offset - sizeof(End64Locator);
    if (const auto locator = record_at<End64Locator>(file, locator_offset))
      return directory64(file, locator_offset, *locator);
  }
  const bool usable = end->disk == 0 && end->directory_disk == 0 && end->entries_here == end->entries &&
                      end->comment_bytes <= file.size() - offset - sizeof(End);
  if (!usable) return Unexpected{"its end is damaged, or it has several parts"};
  return directory_at(file, end->directory, end->directory_bytes, offset, end->entries);
}

/// Size and place of an entry, which stand in an extra field when they need 64 bits.
struct Extent {
  std::uint64_t stored_size;
  std::uint64_t size;
  std::uint64_t offset;
};

/// Replaces the numbers of `extent` that do not fit in 32 bits by those of `field`, in its order.
bool widen(Extent& extent, Bytes field) {
  std::uint64_t place = 0;
  for (auto* number : {&extent.size, &extent.stored_size, &extent.offset}) {
    if (*number != kIn64Bits32) continue;
    const auto wide = value_at<std::uint64_t>(field, place);
    if (!wide) return false;
    *number = *wide;
    place += sizeof(*wide);
  }
  return true;
}

std::optional<Extent> extent_of(const DirectoryEntry& record, Bytes extra) {
  Extent extent{record.stored_size, record.size, record.offset};
  while (!extra.empty()) {
    const auto head = value_at<ExtraField>(extra, 0);
    if (!head || extra.size() - sizeof(*head) < head->bytes) return std::nullopt;
    const auto field = extra.subspan(sizeof(*head), head->bytes);
    if (head->id == kZip64Field) return widen(extent, field) ? std::optional(extent) : std::nullopt;
    extra = extra.subspan(sizeof(*head) + field.size());
  }
  return extent;
}

/// Why an entry with that record cannot be read, or an empty string.
std::string unusable(const DirectoryEntry& record, std::string_view name) {
  if (name.empty() || !is_utf8(name)) return "has a name that is no text";
  if ((record.flags & ~(kHowCompressed | kSizesFollow | kUtf8)) != 0) return "is encrypted or a patch";
  if (record.disk != 0) return "lies in another part";
  return {};
}

Expected<Placed> place(Bytes file, const Directory& directory, const DirectoryEntry& record,
                       std::string_view name, const Extent& extent) {
  const auto refuse = [&](const std::string& why) {
    return Unexpected{"entry " + in_quotes(name) + " " + why};
  };
  if (auto why = unusable(record, name); !why.empty()) return refuse(why);
  const auto data = file.first(directory.offset);
  const auto local = record_at<LocalHeader>(data, extent.offset);
  if (!local) return refuse("is not where the directory says");
  const auto rest = data.subspan(extent.offset + sizeof(*local));
  const std::size_t head_bytes = std::size_t{local->name_bytes} + local->extra_bytes;
  if (head_bytes > rest.size() || rest.size() - head_bytes < extent.stored_size)
    return refuse("is longer than the file");
  if (text_of(rest.first(local->name_bytes)) != name) return refuse("has another name in its own header");
  const auto bytes = rest.subspan(head_bytes, extent.stored_size);
  const bool is_compressed = record.method != kStored || extent.size != extent.stored_size;
  return Placed{
      .entry = {.name = name, .bytes = bytes, .crc32 = record.crc32, .is_compressed = is_compressed},
      .is_deflated = record.method == kDeflated,
      .size = extent.size,
      .begin = extent.offset,
      .end = extent.offset + sizeof(*local) + head_bytes + bytes.size()};
}

/// The entry of the directory at `offset`, which is moved behind it.
Expected<Placed> next_entry(Bytes file, const Directory& directory, std::uint64_t& offset) {
  const auto record = record_at<DirectoryEntry>(directory.bytes, offset);
  const std::size_t tail =
      record ? std::size_t{record->name_bytes} + record->extra_bytes + record->comment_bytes : 0;
  if (!record || directory.bytes.size() - offset - sizeof(*record) < tail)
    return Unexpected{"its directory is damaged at byte " + std::to_string(directory.offset + offset)};
  const auto texts = directory.bytes.subspan(offset + sizeof(*record), tail);
  const auto name = text_of(texts.first(record->name_bytes));
  const auto extent = extent_of(*record, texts.subspan(record->name_bytes, record->extra_bytes));
  if (!extent) return Unexpected{"entry " + in_quotes(name) + " has damaged extra fields"};
  offset += sizeof(*record) + tail;
  return place(file, directory, *record, name, *extent);
}

/// Why the entries cannot be told apart, or an empty string.
std::string clash(std::vector<Placed>& placed) {
  std::ranges::sort(placed, {}, &Placed::begin);
  const auto overlap =
      std::ranges::adjacent_find(placed, [](const Placed& a, const Placed& b) { return b.begin < a.end; });
  if (overlap != placed.end()) return "entry " + in_quotes(overlap->entry.name) + " overlaps another one";
  const auto name = [](const Placed& each) { return each.entry.name; };
  std::ranges::sort(placed, {}, name);
  const auto twice = std::ranges::adjacent_find(placed, {}, name);
  if (twice != placed.end()) return "name " + in_quotes(twice->entry.name) + " occurs twice";
  return {};
}

std::uint32_t checksum(Bytes bytes) {
  return static_cast<std::uint32_t>(
      ::crc32_z(0, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()));
}

}  // namespace

Expected<Archive> Archive::parse(std::span<const std::byte> file) {
  const auto directory = find_directory(file);
  if (!directory) return Unexpected{directory.error()};
  std::vector<Placed> placed;
  for (std::uint64_t offset = 0; offset < directory->bytes.size();) {
    auto entry = next_entry(file, *directory, offset);
    if (!entry) return Unexpected{entry.error()};
    placed.push_back(*entry);
  }
  if (placed.size() != directory->entries)
    return Unexpected{"its directory has " + std::to_string(placed.size()) + " entries and claims " +
                      std::to_string(directory->entries)};
  if (auto reason = clash(placed); !reason.empty()) return Unexpected{reason};
  std::vector<Entry> entries;
  auto contents = std::make_shared<Inflated>();
  for (auto& each : placed) {
    if (each.is_deflated) {
      auto content = lockstep::detail::inflated(each.entry.bytes, each.size);
      if (!content) return Unexpected{"entry " + in_quotes(each.entry.name) + " is compressed, and damaged"};
      contents->push_back(std::move(*content));
      each.entry.bytes = contents->back();
      each.entry.is_compressed = false;
    }
    entries.push_back(each.entry);
  }
  return Archive(std::move(entries), std::move(contents));
}

const Entry* Archive::find(std::string_view name) const {
  const auto found = std::ranges::lower_bound(entries_, name, {}, &Entry::name);
  return found != entries_.end() && found->name == name ? &*found : nullptr;
}

Expected<std::span<const std::byte>> Archive::read(std::string_view name) const {
  const auto* entry = find(name);
  if (entry == nullptr) return Unexpected{"it has no entry " + in_quotes(name)};
  if (entry->is_compressed)
    return Unexpected{"entry " + in_quotes(name) + " is compressed in another way than by deflate"};
  if (entry->crc32 != 0 && checksum(entry->bytes) != entry->crc32)
    return Unexpected{"entry " + in_quotes(name) + " is damaged: its checksum differs"};
  return entry->bytes;
}

}  // namespace lockstep::zip
