// Writes zip archives as torch.save does: stored, and aligned.
#include <zlib.h>

#include <lockstep/formats/zip_archive.h>

#include "formats/zip_records.h"

namespace lockstep::zip {
namespace {

using namespace detail;

/// `value` for a field of 32 bits, or the mark that it stands in the zip64 field.
std::uint32_t narrow(std::uint64_t value, std::uint64_t zip64_from) {
  return value >= zip64_from ? kIn64Bits32 : static_cast<std::uint32_t>(value);
}

}  // namespace

void Writer::put(std::span<const std::byte> bytes) {
  sink_(bytes);
  offset_ += bytes.size();
}

template <class T>
void Writer::put(const T& value) {
  put(std::as_bytes(std::span(&value, 1)));
}

/// Ends a header of that many bytes with an extra field after which the file is aligned.
void Writer::put_padding(std::uint64_t bytes) {
  put(ExtraField{.id = kPaddingField, .bytes = static_cast<std::uint16_t>(bytes)});
  const std::string padding(bytes, 'Z');
  put(std::as_bytes(std::span(padding)));
}

void Writer::add(std::string_view name, std::span<const std::byte> bytes) {
  const auto checksum = static_cast<std::uint32_t>(
      ::crc32_z(0, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()));
  records_.push_back({std::string(name), checksum, bytes.size(), offset_});
  const bool wide = bytes.size() >= options_.zip64_from;
  const std::uint64_t wide_bytes = wide ? sizeof(ExtraField) + 2 * sizeof(std::uint64_t) : 0;
  const std::uint64_t head = offset_ + sizeof(LocalHeader) + name.size() + wide_bytes + sizeof(ExtraField);
  const std::uint64_t padding = (options_.alignment - head % options_.alignment) % options_.alignment;
  const auto size = narrow(bytes.size(), options_.zip64_from);
  put(LocalHeader{.crc32 = checksum,
                  .stored_size = size,
                  .size = size,
                  .name_bytes = static_cast<std::uint16_t>(name.size()),
                  .extra_bytes = static_cast<std::uint16_t>(wide_bytes + sizeof(ExtraField) + padding)});
  put(std::as_bytes(std::span(name)));
  if (wide) {
    put(ExtraField{.id = kZip64Field, .bytes = 2 * sizeof(std::uint64_t)});
    put(std::uint64_t{bytes.size()});
    put(std::uint64_t{bytes.size()});
  }
  put_padding(padding);
  put(bytes);
}

void Writer::put_directory_entry(const Record& record) {
  std::vector<std::uint64_t> wide;  // in the order in which the format wants them
  if (record.size >= options_.zip64_from) wide.insert(wide.end(), 2, record.size);
  if (record.offset >= options_.zip64_from) wide.push_back(record.offset);
  const auto wide_bytes = static_cast<std::uint16_t>(wide.size() * sizeof(std::uint64_t));
  const auto size = narrow(record.size, options_.zip64_from);
  put(DirectoryEntry{
      .crc32 = record.crc32,
      .stored_size = size,
      .size = size,
      .name_bytes = static_cast<std::uint16_t>(record.name.size()),
      .extra_bytes = static_cast<std::uint16_t>(wide.empty() ? 0 : sizeof(ExtraField) + wide_bytes),
      .offset = narrow(record.offset, options_.zip64_from)});
  put(std::as_bytes(std::span(record.name)));
  if (wide.empty()) return;
  put(ExtraField{.id = kZip64Field, .bytes = wide_bytes});
  put(std::as_bytes(std::span(wide)));
}

void Writer::put_end(std::uint64_t directory, std::uint64_t directory_bytes) {
  const std::uint64_t entries = records_.size();
  const bool wide = entries >= kIn64Bits || directory + directory_bytes >= options_.zip64_from;
  if (wide) {
    const End64Locator locator{.end64 = offset_};
    put(End64{.entries_here = entries,
              .entries = entries,
              .directory_bytes = directory_bytes,
              .directory = directory});
    put(locator);
  }
  const auto count = entries >= kIn64Bits ? kIn64Bits : static_cast<std::uint16_t>(entries);
  put(End{.entries_here = count,
          .entries = count,
          .directory_bytes = narrow(directory_bytes, options_.zip64_from),
          .directory = narrow(directory, options_.zip64_from)});
}

void Writer::finish() {
  const std::uint64_t directory = offset_;
  for (const auto& record : records_) put_directory_entry(record);
  put_end(directory, offset_ - directory);
}

}  // namespace lockstep::zip
