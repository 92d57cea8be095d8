// A file of torch.save, mapped into memory.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>

#include <lockstep/base/export.h>
#include <lockstep/formats/mapped_file.h>
#include <lockstep/formats/torch_file.h>

namespace lockstep::detail {

/// @throws CheckpointError naming `where` when `bytes` are no file of torch.save, or one that is refused
LOCKSTEP_API torch_file::Contents torch_contents(std::span<const std::byte> bytes, const std::string& where);

class LOCKSTEP_API OpenedTorchFile {
 public:
  /// @throws IoError; CheckpointError as torch_contents()
  explicit OpenedTorchFile(const std::filesystem::path& path);
  OpenedTorchFile(const std::filesystem::path& path, MappedFile mapping);
  /// Of `bytes`, which someone else keeps, as if they lay in `path`.
  OpenedTorchFile(const std::filesystem::path& path, std::span<const std::byte> bytes);

  const std::string& where() const { return where_; }
  const torch_file::Contents& contents() const { return contents_; }
  /// @throws CheckpointError when it holds no dict
  const pickle::Dict& root() const;
  /// Whatever it holds, by names: the items of a list or tuple by number, a tensor as "tensor", all else as
  /// "value".
  /// @throws CheckpointError when it is but a value that is not read
  pickle::Dict named_values() const;

 private:
  std::string where_;
  std::optional<MappedFile> mapping_;
  torch_file::Contents contents_;
};

}  // namespace lockstep::detail
