// manifest.json: the files, tensors and values of a checkpoint.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <lockstep/base/export.h>
#include <lockstep/formats/checkpoint_info.h>
#include <lockstep/formats/safetensors.h>

namespace lockstep::detail {

inline constexpr auto kManifestName = "manifest.json";
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

}  // namespace lockstep::detail
