// The files of a checkpoint as bytes: manifest.json, which lists files, tensors and values, and an open
// checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <lockstep/base/export.h>
#include <lockstep/formats/checkpoint_info.h>
#include <lockstep/formats/mapped_file.h>
#include <lockstep/formats/safetensors.h>

namespace lockstep::detail {

inline constexpr auto kManifestChecksumName = "manifest.xxh128";  // as xxh128sum prints it, and checks it

/// A run of a tensor's elements, in a file.
struct TensorPart {
  std::string file;
  std::string name;           ///< of the part within the file
  std::uint64_t offset = 0;   ///< of its first byte, from the file's begin
  std::int64_t begin = 0;     ///< of the run, in row-major order
  std::int64_t elements = 0;  ///< of the run
  std::string checksum;
};

/// A tensor: its parts follow each other without gaps.
struct TensorRecord {
  safetensors::Dtype dtype = safetensors::Dtype::kF32;
  std::vector<std::int64_t> shape = {};
  std::vector<TensorPart> parts = {};
};

struct FileRecord {
  std::uint64_t bytes = 0;
  std::string checksum;  ///< of all its bytes outside of tensors
};

struct Manifest {
  CheckpointInfo info = {};
  std::map<std::string, FileRecord> files = {};
  std::map<std::string, TensorRecord> tensors = {};  ///< by their path in the state
  nlohmann::ordered_json shared = nlohmann::ordered_json::object();
  std::vector<nlohmann::ordered_json> own = {};  ///< by rank
  std::string checksum = {};                     ///< of the text, where it was read from a file
};

/// The files that one rank has written, as it sends them to the others.
LOCKSTEP_API nlohmann::ordered_json to_json(const std::map<std::string, FileRecord>& files,
                                            const std::map<std::string, TensorRecord>& tensors);

/// Adds the result of to_json() of a rank, and joins the parts of tensors from several ranks. @throws
/// CheckpointError when they do not fit
LOCKSTEP_API void merge(const nlohmann::ordered_json& json, Manifest& manifest);

/// Sorts the parts of all tensors. @throws CheckpointError naming an incomplete tensor
LOCKSTEP_API void complete(Manifest& manifest);

/// The text of manifest.json.
LOCKSTEP_API std::string to_text(const Manifest& manifest);

/// Parses the text of manifest.json; `place` names it in errors.
/// @throws CheckpointError naming the place when it is no manifest, or one of a newer format
LOCKSTEP_API Manifest parse_manifest(std::string_view text, const std::string& place);

/// Reads manifest.json in `folder` and checks its checksum.
/// @throws IoError when it cannot be read; CheckpointError when it is damaged, none, or of a newer format
LOCKSTEP_API Manifest read_manifest(const std::filesystem::path& folder);

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

  /// @throws ConfigError where `output` is this folder or one of its files, which writing would destroy
  void require_apart(const std::filesystem::path& output) const;

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

/// How many objects and arrays may be open at once.
inline constexpr std::size_t kDeepestJson = 64;

/// Parses `text`, the content of `place`, in time n log n. @throws CheckpointError naming the place when it
/// is no JSON, has one key twice in an object, or is nested more than kDeepestJson deep
LOCKSTEP_API nlohmann::ordered_json parse_strictly(std::string_view text, const std::string& place);

/// Adds a member to an object that has none of that key. (operator[] looks through all of them.)
inline void add_member(nlohmann::ordered_json& object, std::string key, nlohmann::ordered_json value) {
  object.get_ref<nlohmann::ordered_json::object_t&>().push_back({std::move(key), std::move(value)});
}

}  // namespace lockstep::detail
