#include "checkpoint/opened_torch_file.h"

#include <lockstep/base/error.h>

namespace lockstep::detail {

torch_file::Contents torch_contents(std::span<const std::byte> bytes, const std::string& where) {
  auto contents = torch_file::Contents::parse(bytes);
  if (contents) return std::move(*contents);
  throw CheckpointError("checkpoint",
                        {.what = "'" + where + "' is no file of torch.save, or one that is refused",
                         .expected = "tensors and plain values, in the format of PyTorch 1.6 or later",
                         .got = contents.error()});
}

OpenedTorchFile::OpenedTorchFile(const std::filesystem::path& path)
    : OpenedTorchFile(path, MappedFile(path)) {}

OpenedTorchFile::OpenedTorchFile(std::filesystem::path path, MappedFile mapping)
    : where_(path.string()),
      mapping_(std::move(mapping)),
      contents_(torch_contents(mapping_.bytes(), where_)) {
  if (contents_.root().as<pickle::Dict>() != nullptr) return;
  throw CheckpointError("checkpoint", {.what = "'" + where_ + "' does not hold a dict",
                                       .got = std::string(contents_.root().kind()),
                                       .hint = "save it in one: torch.save({\"name\": value}, file)"});
}

}  // namespace lockstep::detail
