// The files that torch.save writes (.pt, .pth, Lightning's .ckpt): a zip archive of one pickle and the bytes
// of the storages that it names; files of PyTorch before 1.6 are read, too. TorchScript programs are another
// format.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <lockstep/base/expected.h>
#include <lockstep/base/export.h>
#include <lockstep/formats/pickle.h>
#include <lockstep/formats/zip_archive.h>

namespace lockstep::torch_file {

/// The bytes of a storage. Does not own them.
struct StorageBytes {
  std::string key;                   ///< its name within the archive
  std::span<const std::byte> bytes;  ///< contents, of the mapped file
};

/// What a file holds, in memory that someone else keeps.
class LOCKSTEP_API Contents {
 public:
  /// Reads `file`, the bytes of a whole file. Every storage is where the pickle says, of the size that it
  /// says, and has the checksum that the archive says. Never throws for bad input; the reason says what is
  /// wrong.
  static Expected<Contents> parse(std::span<const std::byte> file);

  /// The object at the top of the pickle.
  const pickle::Value& root() const { return root_; }
  /// The bytes of a tensor's storage: row-major, little-endian, not necessarily aligned.
  std::span<const std::byte> bytes_of(const pickle::Storage& storage) const;

 private:
  pickle::Value root_;
  std::shared_ptr<const zip::Archive> archive_;  // owns what was compressed
  std::unordered_map<std::string, std::span<const std::byte>> storages_;
};

/// Whether `file` starts as an archive does.
LOCKSTEP_API bool is_archive(std::span<const std::byte> file);

/// Whether `file` starts as torch.save begins a file, in today's format or in that before PyTorch 1.6.
LOCKSTEP_API bool is_torch_file(std::span<const std::byte> file);

/// Writes `root` to `path`, complete or not at all (see atomic_file.h), so that torch.load reads it with its
/// defaults. `storages` are those that the tensors of `root` name. Blocking.
/// @throws CheckpointError as pickle::write(); IoError
LOCKSTEP_API void write(const std::filesystem::path& path, const pickle::Value& root,
                        std::span<const StorageBytes> storages, const zip::WriterOptions& options = {});

/// The same to any place that takes bytes in order.
LOCKSTEP_API void write(zip::Writer& archive, const pickle::Value& root,
                        std::span<const StorageBytes> storages);

}  // namespace lockstep::torch_file
