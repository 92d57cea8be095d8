// The records of a zip archive as they lie in the file: little-endian, without padding.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

namespace lockstep::zip::detail {

static_assert(std::endian::native == std::endian::little);

inline constexpr std::uint16_t kStored = 0;
inline constexpr std::uint16_t kDeflated = 8;
inline constexpr std::uint16_t kHowCompressed = 3 << 1;  // flags: how hard, or of LZMA that its end is marked
inline constexpr std::uint16_t kSizesFollow = 1 << 3;    // flag: the local header does not know the sizes
inline constexpr std::uint16_t kUtf8 = 1 << 11;          // flag: the name is UTF-8
inline constexpr std::uint16_t kIn64Bits = 0xFFFF;       // "see the zip64 record", in fields of 16 bits
inline constexpr std::uint32_t kIn64Bits32 = 0xFFFF'FFFF;
inline constexpr std::uint16_t kZip64Field = 0x0001;    // identifies an extra field
inline constexpr std::uint16_t kPaddingField = 0x4246;  // "FB", as PyTorch pads
inline constexpr std::uint16_t kVersion = 45;           // of the format: knows zip64
inline constexpr std::uint16_t kFirstOfJanuary1980 = 33;

#pragma pack(push, 1)

struct LocalHeader {
  static constexpr std::uint32_t kSignature = 0x0403'4b50;
  std::uint32_t signature = kSignature;
  std::uint16_t version = kVersion;
  std::uint16_t flags = kUtf8;
  std::uint16_t method = kStored;
  std::uint16_t time = 0;
  std::uint16_t date = kFirstOfJanuary1980;
  std::uint32_t crc32 = 0;
  std::uint32_t stored_size = 0;
  std::uint32_t size = 0;
  std::uint16_t name_bytes = 0;
  std::uint16_t extra_bytes = 0;
};

struct DirectoryEntry {
  static constexpr std::uint32_t kSignature = 0x0201'4b50;
  std::uint32_t signature = kSignature;
  std::uint16_t made_by = kVersion;
  std::uint16_t version = kVersion;
  std::uint16_t flags = kUtf8;
  std::uint16_t method = kStored;
  std::uint16_t time = 0;
  std::uint16_t date = kFirstOfJanuary1980;
  std::uint32_t crc32 = 0;
  std::uint32_t stored_size = 0;
  std::uint32_t size = 0;
  std::uint16_t name_bytes = 0;
  std::uint16_t extra_bytes = 0;
  std::uint16_t comment_bytes = 0;
  std::uint16_t disk = 0;
  std::uint16_t internal_attributes = 0;
  std::uint32_t external_attributes = 0;
  std::uint32_t offset = 0;
};

struct End {
  static constexpr std::uint32_t kSignature = 0x0605'4b50;
  std::uint32_t signature = kSignature;
  std::uint16_t disk = 0;
  std::uint16_t directory_disk = 0;
  std::uint16_t entries_here = 0;
  std::uint16_t entries = 0;
  std::uint32_t directory_bytes = 0;
  std::uint32_t directory = 0;
  std::uint16_t comment_bytes = 0;
};

struct End64 {
  static constexpr std::uint32_t kSignature = 0x0606'4b50;
  std::uint32_t signature = kSignature;
  std::uint64_t rest_bytes = 44;
  std::uint16_t made_by = kVersion;
  std::uint16_t version = kVersion;
  std::uint32_t disk = 0;
  std::uint32_t directory_disk = 0;
  std::uint64_t entries_here = 0;
  std::uint64_t entries = 0;
  std::uint64_t directory_bytes = 0;
  std::uint64_t directory = 0;
};

struct End64Locator {
  static constexpr std::uint32_t kSignature = 0x0706'4b50;
  std::uint32_t signature = kSignature;
  std::uint32_t disk = 0;
  std::uint64_t end64 = 0;
  std::uint32_t disks = 1;
};

struct ExtraField {
  std::uint16_t id = 0;
  std::uint16_t bytes = 0;
};

#pragma pack(pop)

static_assert(sizeof(LocalHeader) == 30 && sizeof(DirectoryEntry) == 46 && sizeof(End) == 22 &&
              sizeof(End64) == 56 && sizeof(End64Locator) == 20 && sizeof(ExtraField) == 4);

/// The T at `offset`, if all of it lies in `bytes`.
template <class T>
std::optional<T> value_at(std::span<const std::byte> bytes, std::uint64_t offset) {
  T value;
  if (offset > bytes.size() || bytes.size() - offset < sizeof(T)) return std::nullopt;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

/// The record at `offset`, if it is one of that kind.
template <class T>
std::optional<T> record_at(std::span<const std::byte> bytes, std::uint64_t offset) {
  auto record = value_at<T>(bytes, offset);
  if (record && record->signature != T::kSignature) record.reset();
  return record;
}

}  // namespace lockstep::zip::detail
