#include <lockstep/formats/tar.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

#include "formats/file_text.h"

namespace lockstep::tar {
namespace {

constexpr std::uint64_t kBlockBytes = 512;
constexpr std::uint64_t kMaxMetadataBytes = std::uint64_t{1} << 20;  // of a long name or of pax records

struct Header {
  char name[100];
  char mode[8], uid[8], gid[8];
  char size[12];
  char mtime[12];
  char checksum[8];
  char type;
  char link[100];
  char magic[6];
  char version[2];
  char user[32], group[32], major[8], minor[8];
  char prefix[155];
  char padding[12];
};
static_assert(sizeof(Header) == kBlockBytes);

template <std::size_t N>
std::string_view text(const char (&field)[N]) {
  const std::string_view whole(field, N);
  return whole.substr(0, whole.find('\0'));
}

/// Octal digits among spaces and zeros, or GNU's big-endian number behind a byte 0x80.
template <std::size_t N>
std::optional<std::uint64_t> number(const char (&field)[N]) {
  std::uint64_t value = 0;
  if (static_cast<unsigned char>(field[0]) == 0x80) {
    for (std::size_t i = 1; i < N; ++i) {
      if (value >> 56 != 0) return std::nullopt;
      value = value << 8 | static_cast<unsigned char>(field[i]);
    }
    return value;
  }
  std::string_view digits = text(field);
  digits.remove_prefix(std::min(digits.find_first_not_of(' '), digits.size()));
  digits = digits.substr(0, digits.find(' '));
  if (digits.empty()) return 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value, 8);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

bool is_zero(std::span<const std::byte> block) {
  return std::ranges::all_of(block, [](std::byte byte) { return byte == std::byte{0}; });
}

/// The sum of the header's bytes, with those of the checksum taken as spaces. Some old programs have added
/// them as signed numbers, which differs where a name is not ASCII.
template <class Byte>
bool is_sum_of(std::span<const std::byte> block, const Header& header) {
  std::int64_t sum = 8 * ' ';
  for (const std::byte byte : block) sum += static_cast<Byte>(byte);
  for (const char byte : header.checksum) sum -= static_cast<Byte>(byte);
  const auto told = number(header.checksum);
  return told && static_cast<std::int64_t>(*told) == sum;
}

bool checksum_fits(std::span<const std::byte> block, const Header& header) {
  return is_sum_of<unsigned char>(block, header) || is_sum_of<signed char>(block, header);
}

/// The settings of records before a header for its file.
struct Extension {
  std::optional<std::string> name;
  std::optional<std::uint64_t> size;
  bool is_sparse = false;  // as GNU tar's --sparse says it: with a map before the data
};

/// One record `LENGTH KEY=VALUE\n` from the front of `records`; false when it is damaged.
bool take_pax_record(std::string_view& records, Extension& extension) {
  std::size_t length = 0;
  const auto [stop, error] = std::from_chars(records.data(), records.data() + records.size(), length);
  const auto digits = static_cast<std::size_t>(stop - records.data());
  if (error != std::errc() || length > records.size() || length < digits + 3) return false;
  const auto record = records.substr(digits, length - digits);
  const auto equals = record.find('=');
  if (record.front() != ' ' || record.back() != '\n' || equals == std::string_view::npos) return false;
  const auto key = record.substr(1, equals - 1);
  const auto value = record.substr(equals + 1, record.size() - equals - 2);
  records.remove_prefix(length);
  if (key == "path") extension.name = value;
  if (key.starts_with("GNU.sparse.")) extension.is_sparse = true;
  if (key != "size") return true;
  std::uint64_t size = 0;
  const auto [end, wrong] = std::from_chars(value.data(), value.data() + value.size(), size);
  if (wrong != std::errc() || end != value.data() + value.size()) return false;
  extension.size = size;
  return true;
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string at_byte(const char* what, std::uint64_t offset) {
  return what + (" at byte " + std::to_string(offset));
}

std::string name_of(const Header& header) {
  const bool is_ustar = std::string_view(header.magic, 5) == "ustar" && header.version[0] == '0';
  const auto prefix = is_ustar ? text(header.prefix) : std::string_view();
  const std::string name(text(header.name));
  return prefix.empty() ? name : std::string(prefix) + "/" + name;
}

bool is_regular(char type) { return type == '0' || type == '\0' || type == '7'; }
bool is_about_next(char type) { return type == 'L' || type == 'K' || type == 'x'; }

/// A header and its content.
struct Member {
  Header header;
  std::span<const std::byte> bytes;
  std::uint64_t offset;
};

std::string sparse_at(std::uint64_t offset) {
  return at_byte("a sparse file, which is not read (tar without --sparse makes no such files),", offset);
}

/// Reads the settings of `member` for the next file; returns a reason when it cannot.
std::string extend(Extension& extension, const Member& member) {
  const char type = member.header.type;
  if (type == 'S') return sparse_at(member.offset);
  if (type != 'L' && type != 'x') return {};
  if (member.bytes.size() > kMaxMetadataBytes) return at_byte("a name of over 1 MiB", member.offset);
  auto records = as_text(member.bytes);
  if (type == 'L') {
    extension.name = records.substr(0, records.find('\0'));
    return {};
  }
  while (!records.empty()) {
    if (!take_pax_record(records, extension)) return at_byte("damaged pax records", member.offset);
  }
  return extension.is_sparse ? sparse_at(member.offset) : std::string();
}

/// The header at `offset`, which moves behind its file; none at the end.
Expected<std::optional<Member>> take_member(std::span<const std::byte> archive, std::uint64_t& offset,
                                            const Extension& extension) {
  const auto rest = archive.subspan(offset);
  if (rest.empty()) return std::optional<Member>();
  if (rest.size() < kBlockBytes) return Unexpected{at_byte("cut short within a header", offset)};
  const auto block = rest.first(kBlockBytes);
  if (is_zero(block)) return std::optional<Member>();
  Member member{.header = {}, .bytes = {}, .offset = offset};
  std::memcpy(&member.header, block.data(), block.size());
  const bool resized = extension.size && is_regular(member.header.type);
  const auto size = resized ? extension.size : number(member.header.size);
  if (!checksum_fits(block, member.header) || !size) return Unexpected{at_byte("a damaged header", offset)};
  const std::uint64_t most = rest.size() - kBlockBytes;
  if (*size > most) return Unexpected{at_byte("cut short within the file", offset)};
  member.bytes = rest.subspan(kBlockBytes, *size);
  const std::uint64_t padding = (kBlockBytes - *size % kBlockBytes) % kBlockBytes;
  if (*size + padding > most) return Unexpected{at_byte("cut short behind the file", offset)};
  offset += kBlockBytes + *size + padding;
  return std::optional(member);
}

}  // namespace

Expected<std::optional<Entry>> Reader::next() {
  if (!failure_.empty()) return Unexpected{failure_};
  auto entry = read_next();
  if (entry) return entry;
  const auto foreign = offset_ == 0
                           ? detail::foreign_file(as_text(archive_).substr(0, detail::kForeignStartBytes))
                           : std::nullopt;
  failure_ = foreign ? std::string(foreign->what) + "; " + std::string(foreign->hint) : entry.error();
  return Unexpected{failure_};
}

Expected<std::optional<Entry>> Reader::read_next() {
  if (archive_.empty()) return Unexpected{"an empty file, where an archive has at least its end"};
  Extension extension;
  std::uint64_t begin = offset_;
  for (;;) {
    const auto member = take_member(archive_, offset_, extension);
    if (!member) return Unexpected{member.error()};
    if (!*member) return std::optional<Entry>();
    const Header& header = (*member)->header;
    if (is_regular(header.type)) {
      return std::optional(Entry{.name = extension.name ? std::move(*extension.name) : name_of(header),
                                 .bytes = (*member)->bytes,
                                 .offset = begin});
    }
    if (auto reason = extend(extension, **member); !reason.empty()) return Unexpected{std::move(reason)};
    if (is_about_next(header.type)) continue;
    extension = {};
    begin = offset_;
  }
}

namespace {

/// A file's name in two: `a/b.seg.png` is `a/b` and `seg.png`.
struct SplitName {
  std::string_view key;
  std::string extension;
};

std::optional<SplitName> split(std::string_view name) {
  const auto slash = name.rfind('/');
  const auto base = slash == std::string_view::npos ? 0 : slash + 1;
  const auto dot = name.find('.', base);
  if (dot == std::string_view::npos || dot == base) return std::nullopt;
  std::string extension(name.substr(dot + 1));
  for (char& letter : extension) {
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  }
  return SplitName{name.substr(0, dot), std::move(extension)};
}

// `__meta__`, and what a folder of such a name holds.
bool is_about_archive(std::string_view name) {
  const auto top = name.substr(0, name.find('/'));
  return top.starts_with("__") && top.ends_with("__");
}

bool has(const Sample& sample, std::string_view extension) {
  return std::ranges::any_of(sample.fields, [&](const Field& field) { return field.extension == extension; });
}

}  // namespace

Expected<std::optional<Sample>> SampleReader::next() {
  if (!failure_.empty()) return Unexpected{failure_};
  std::optional<Sample> sample;
  for (;;) {
    auto entry = first_ ? Expected<std::optional<Entry>>(std::exchange(first_, {})) : entries_.next();
    if (!entry) return Unexpected{failure_ = entry.error()};
    if (!*entry) return sample;
    const auto name = is_about_archive((*entry)->name) ? std::nullopt : split((*entry)->name);
    if (!name) continue;
    if (!sample) sample = Sample{.key = std::string(name->key), .fields = {}, .offset = (*entry)->offset};
    if (sample->key != name->key) {
      first_ = std::move(*entry);
      return sample;
    }
    if (has(*sample, name->extension)) {
      failure_ = "two files '" + (*entry)->name + "', the second at byte " + std::to_string((*entry)->offset);
      return Unexpected{failure_};
    }
    sample->fields.push_back({.extension = name->extension, .bytes = (*entry)->bytes});
  }
}

}  // namespace lockstep::tar
