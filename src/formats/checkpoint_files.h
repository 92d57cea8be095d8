// An open checkpoint as bytes: its manifest, and its files.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/formats/checkpoint_info.h>
#include <lockstep/formats/mapped_file.h>

#include "formats/checkpoint_manifest.h"

namespace lockstep::detail {

/// The number of this process among `count` processes that open a checkpoint together. Each checks its share
/// of the bytes.
struct OpenShare {
  int index = 0;
  int count = 1;
};

class LOCKSTEP_API CheckpointFiles {
 public:
  /// With Verify::kAll, `share` of the bytes are compared with their checksums.
  /// @throws IoError when a file cannot be read; CheckpointError naming file, and tensor, of what is damaged
  CheckpointFiles(const std::filesystem::path& folder, Verify verify, const OpenShare& share = {});

  const Manifest& manifest() const { return manifest_; }
  /// The folder of the files: the given one, or the one that was moved aside for a replacement that was never
  /// completed.
  const std::filesystem::path& folder() const { return folder_; }

  /// The tensor under `path`. @throws CheckpointError when there is none
  const TensorRecord& record(const std::string& path) const;

  /// The bytes of one of its parts. Their checksum is checked unless that was done when the folder was
  /// opened. Writing to them makes a copy of the page; the file does not change.
  std::span<std::byte> bytes_of(const std::string& path, const TensorPart& part) const;

  /// The file of that name, shared with those who use its bytes.
  const std::shared_ptr<const MappedFile>& file(const std::string& name) const;

 private:
  using Run = std::pair<std::uint64_t, std::uint64_t>;  // offset and length, in bytes
  using RunsByFile = std::map<std::string, std::vector<Run>>;

  std::span<std::byte> place_of(const std::string& path, const TensorRecord& record,
                                const TensorPart& part) const;
  void check_part(const std::string& path, const TensorRecord& record, const TensorPart& part) const;
  RunsByFile runs() const;
  void check_share(const RunsByFile& runs, const OpenShare& share) const;
  void check_outside(const std::string& name, const FileRecord& record, const std::vector<Run>& runs) const;

  std::filesystem::path folder_;
  Verify verify_;
  Manifest manifest_;
  std::map<std::string, std::shared_ptr<const MappedFile>> files_;
};

}  // namespace lockstep::detail
