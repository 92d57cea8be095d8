// tar archives, and the samples in them: WebDataset's shards.
// Sources: POSIX.1-2017, pax, "ustar Interchange Format" and "pax Interchange Format"; GNU tar, "Basic Tar
// Format"; https://github.com/webdataset/webdataset (tariterators.py)
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/expected.h>
#include <lockstep/base/export.h>

namespace lockstep::tar {

/// A regular file of an archive. `bytes` point into the archive.
struct Entry {
  std::string name;                  ///< a key; never use it as a path
  std::span<const std::byte> bytes;  ///< contents, of the mapped file
  std::uint64_t offset = 0;          ///< of its first header in the archive
};

/// Gives the regular files of an archive, one by one, and passes over folders, links and devices. Knows
/// ustar, GNU's long names and pax's `path` and `size`; touches nothing but headers.
class LOCKSTEP_API Reader {
 public:
  /// `archive`: the bytes of a whole one, which someone else keeps.
  explicit Reader(std::span<const std::byte> archive) : archive_(archive) {}

  /// The next file; none at the end. Never throws for bad input; the reason says what is wrong and at which
  /// byte, and stays the same from then on.
  Expected<std::optional<Entry>> next();

 private:
  Expected<std::optional<Entry>> read_next();

  std::span<const std::byte> archive_;
  std::uint64_t offset_ = 0;
  std::string failure_;
};

/// One file of a sample.
struct Field {
  std::string extension;  ///< what follows the first dot of the file's name, in lower case: "jpg", "seg.png"
  std::span<const std::byte> bytes;  ///< contents, of the mapped file
};

/// Files that follow each other and have the same key: all of the path before the first dot of the file's
/// name.
struct Sample {
  std::string key;            ///< name up to the first dot behind the last slash
  std::vector<Field> fields;  ///< in the archive's order; their extensions differ
  std::uint64_t offset = 0;   ///< of the first of its headers in the archive
};

/// Gives the samples of an archive, grouped as WebDataset does: files without a dot and files named `__x__`
/// are passed over.
class LOCKSTEP_API SampleReader {
 public:
  explicit SampleReader(std::span<const std::byte> archive) : entries_(archive) {}

  /// As Reader::next; a sample that has two files of one extension is refused too.
  Expected<std::optional<Sample>> next();

 private:
  Reader entries_;
  std::optional<Entry> first_;  // of the next sample
  std::string failure_;
};

}  // namespace lockstep::tar
