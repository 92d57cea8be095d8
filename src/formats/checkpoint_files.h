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

class LOCKSTEP_API CheckpointFiles {
 public:
  /// @throws IoError when a file cannot be read; CheckpointError naming file, and tensor, of what is damaged
  CheckpointFiles(const std::filesystem::path& folder, Verify verify);

  const Manifest& manifest() const { return manifest_; }
  /// Where the files lie: the folder, or the one that was moved aside for a replacement that never came.
  const std::filesystem::path& folder() const { return folder_; }

  /// The tensor under `path`. @throws CheckpointError when there is none
  const TensorRecord& record(const std::string& path) const;

  /// The bytes of one of its parts, after a look at their checksum if that was not done when the folder was
  /// opened. Who writes to them gets a copy of the page; the file stays as it is.
  std::span<std::byte> bytes_of(const std::string& path, const TensorPart& part) const;

  /// The file of that name, which those keep who use its bytes.
  const std::shared_ptr<const MappedFile>& file(const std::string& name) const;

 private:
  using Run = std::pair<std::uint64_t, std::uint64_t>;  // offset and length, in bytes
  using RunsByFile = std::map<std::string, std::vector<Run>>;

  std::span<std::byte> place_of(const std::string& path, const TensorRecord& record,
                                const TensorPart& part) const;
  void check_part(const std::string& path, const TensorRecord& record, const TensorPart& part) const;
  RunsByFile runs() const;
  void check_all(const RunsByFile& runs) const;

  std::filesystem::path folder_;
  Verify verify_;
  Manifest manifest_;
  std::map<std::string, std::shared_ptr<const MappedFile>> files_;
};

}  // namespace lockstep::detail
