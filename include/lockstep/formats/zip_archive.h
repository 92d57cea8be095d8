// Zip archives, such as the files that torch.save writes: without compression, and read with it (deflate),
// too. https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/expected.h>
#include <lockstep/base/export.h>

namespace lockstep::zip {

/// One file of an archive. Owns nothing; `bytes` live as long as the archive's memory and some copy of the
/// Archive. `name` is a key; never use it as a path.
struct Entry {
  std::string_view name;             ///< path within the archive
  std::span<const std::byte> bytes;  ///< contents, of the mapped file
  std::uint32_t crc32 =
      0;  ///< that the archive states for the content; 0: none, PyTorch's set_crc32_options(False)
  bool is_compressed =
      false;  ///< in a way that is not known: `bytes` are not the content, which cannot be read here
};

/// The entries of an archive, in memory that someone else keeps, but for those that were compressed.
class LOCKSTEP_API Archive {
 public:
  /// Reads the directory of `file`, the bytes of a whole archive; the entries point into it. A comment, or up
  /// to 64 KiB of other bytes, may follow the archive. Entries that were deflated are inflated. Strict: one
  /// disk, no encryption, no entries that overlap, and no name twice. Memory is proportional to the number of
  /// entries, and to what was inflated. Never throws for bad input; the reason says what is wrong and with
  /// which entry.
  static Expected<Archive> parse(std::span<const std::byte> file);

  /// By name.
  const std::vector<Entry>& entries() const { return entries_; }
  /// The entry of that name, or nullptr.
  const Entry* find(std::string_view name) const;
  /// The content of the entry of that name, after it was compared with its checksum; or why not.
  Expected<std::span<const std::byte>> read(std::string_view name) const;

 private:
  using Inflated = std::vector<std::vector<std::byte>>;
  Archive(std::vector<Entry> entries, std::shared_ptr<const Inflated> inflated)
      : entries_(std::move(entries)), inflated_(std::move(inflated)) {}
  std::vector<Entry> entries_;
  std::shared_ptr<const Inflated> inflated_;  // contents of entries that the file holds compressed
};

/// How a Writer writes.
struct WriterOptions {
  std::size_t alignment = 64;              ///< of every entry's data in the file, in bytes
  std::uint64_t zip64_from = 0xFFFF'FFFF;  ///< sizes and offsets from here on are written in 64 bits
};

/// Writes an archive, entry by entry, to any place that takes bytes in order.
class LOCKSTEP_API Writer {
 public:
  /// Takes the next bytes of the archive.
  using Sink = std::function<void(std::span<const std::byte>)>;

  /// `sink` gets the archive piece by piece, in order.
  explicit Writer(Sink sink, WriterOptions options = {}) : sink_(std::move(sink)), options_(options) {}

  /// Appends a file. Names must differ and be shorter than 64 KiB.
  void add(std::string_view name, std::span<const std::byte> bytes);
  /// The same for a text.
  void add(std::string_view name, std::string_view text) { add(name, std::as_bytes(std::span(text))); }
  /// Writes the directory, without which there is no archive. The last call.
  void finish();

 private:
  struct Record {
    std::string name;
    std::uint32_t crc32;
    std::uint64_t size;
    std::uint64_t offset;
  };
  template <class T>
  void put(const T& value);
  void put(std::span<const std::byte> bytes);
  void put_padding(std::uint64_t header_bytes);
  void put_directory_entry(const Record& record);
  void put_end(std::uint64_t directory, std::uint64_t directory_bytes);

  Sink sink_;
  WriterOptions options_;
  std::uint64_t offset_ = 0;
  std::vector<Record> records_;
};

}  // namespace lockstep::zip
