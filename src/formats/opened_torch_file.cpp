#include "formats/opened_torch_file.h"

#include <lockstep/base/error.h>

namespace lockstep::detail {
namespace {

constexpr auto kPickleStart = std::byte{0x80};

// How to get from what there is to what can be read.
std::string way_out(std::span<const std::byte> bytes, const std::string& reason) {
  const bool is_pickle = !bytes.empty() && bytes.front() == kPickleStart;
  if (reason.find("unknown instruction") != reason.npos)
    return "copy the file again; where torch.load reads it, it was saved with another pickle_protocol "
           "than 2: torch.save(torch.load(file), file)";
  if (reason.find("TorchScript") != reason.npos)
    return "in C++: torch::load(module, file), then ls::write_weights(out, ls::named_tensors(*module)); in "
           "Python: save "
           "the module's state_dict()";
  if (is_pickle && !torch_file::is_torch_file(bytes))
    return "convert it in Python, if you trust it: torch.save(torch.load(file, weights_only=False), file)";
  if (!torch_file::is_torch_file(bytes))
    return "docs/interop.md says which function reads which format; read_weights() knows several";
  return "copy the file again, or save it once more: torch.save(model.state_dict(), file)";
}

}  // namespace

torch_file::Contents torch_contents(std::span<const std::byte> bytes, const std::string& where) {
  auto contents = torch_file::Contents::parse(bytes);
  if (contents) return std::move(*contents);
  throw CheckpointError("checkpoint",
                        {.what = "'" + where + "' is no file of torch.save, or one that is refused",
                         .expected = "tensors and plain values",
                         .got = contents.error(),
                         .hint = way_out(bytes, contents.error())});
}

OpenedTorchFile::OpenedTorchFile(const std::filesystem::path& path)
    : OpenedTorchFile(path, MappedFile(path)) {}

OpenedTorchFile::OpenedTorchFile(const std::filesystem::path& path, MappedFile mapping)
    : OpenedTorchFile(path, mapping.bytes()) {
  mapping_ = std::move(mapping);
}

OpenedTorchFile::OpenedTorchFile(const std::filesystem::path& path, std::span<const std::byte> bytes)
    : where_(path.string()), contents_(torch_contents(bytes, where_)) {}

const pickle::Dict& OpenedTorchFile::root() const {
  if (const auto* dict = contents_.root().as<pickle::Dict>()) return *dict;
  throw CheckpointError("checkpoint", {.what = "'" + where_ + "' does not hold a dict",
                                       .got = std::string(contents_.root().kind()),
                                       .hint = "save it in one: torch.save({\"name\": value}, file)"});
}

pickle::Dict OpenedTorchFile::named_values() const {
  const auto& root = contents_.root();
  if (const auto* dict = root.as<pickle::Dict>()) return *dict;
  if (const auto* foreign = root.as<pickle::Foreign>())
    throw CheckpointError("checkpoint", {.what = "'" + where_ + "' holds nothing that can be read",
                                         .expected = "tensors and plain values",
                                         .got = foreign->what,
                                         .hint = "save what is in it: torch.save(model.state_dict(), file)"});
  pickle::Dict named;
  const auto* list = root.as<pickle::List>();
  if (const auto* tuple = root.as<pickle::Tuple>()) list = &tuple->items;
  if (list == nullptr) {
    named.set(root.as<pickle::Tensor>() == nullptr ? "value" : "tensor", root);
    return named;
  }
  for (const auto& item : *list) named.set(std::to_string(named.entries.size()), item);
  return named;
}

}  // namespace lockstep::detail
