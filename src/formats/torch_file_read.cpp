#include <algorithm>
#include <optional>

#include <lockstep/formats/torch_file.h>

#include "formats/in_quotes.h"
#include "formats/torch_file_legacy.h"
#include "formats/zip_records.h"

namespace lockstep::torch_file {
namespace {

using detail::in_quotes;

constexpr std::string_view kPickle = "/data.pkl";

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// The folder of the archive in which everything lies: the file's own name at the time of saving.
std::optional<std::string> folder_of(const zip::Archive& archive) {
  for (const auto& entry : archive.entries()) {
    const auto slash = entry.name.find('/');
    if (slash != entry.name.npos && entry.name.substr(slash) == kPickle)
      return std::string(entry.name.substr(0, slash));
  }
  return std::nullopt;
}

/// Why the archive is none of plain values, or an empty string.
std::string foreign(const zip::Archive& archive, const std::string& folder) {
  if (archive.find(folder + "/constants.pkl") != nullptr)
    return "it is a TorchScript program, as torch.jit.save in Python and torch::save(module, file) in C++ write it";
  const auto order = archive.read(folder + "/byteorder");
  if (order && text_of(*order) != "little")
    return "its byte order is " + in_quotes(text_of(*order)) + ", not 'little'";
  return {};
}

}  // namespace

Expected<Contents> Contents::parse(std::span<const std::byte> file) {
  if (is_legacy(file)) {
    auto legacy = parse_legacy(file);
    if (!legacy) return Unexpected{legacy.error()};
    Contents contents;
    contents.root_ = std::move(legacy->root);
    contents.storages_ = std::move(legacy->storages);
    return contents;
  }
  auto parsed = zip::Archive::parse(file);
  if (!parsed) return Unexpected{parsed.error()};
  const auto archive = std::make_shared<const zip::Archive>(std::move(*parsed));
  const auto folder = folder_of(*archive);
  if (!folder) return Unexpected{"it is an archive without data.pkl"};
  if (auto reason = foreign(*archive, *folder); !reason.empty()) return Unexpected{reason};
  const auto pickle = archive->read(*folder + std::string(kPickle));
  if (!pickle) return Unexpected{pickle.error()};
  auto document = pickle::parse(*pickle);
  if (!document) return Unexpected{"data.pkl: " + document.error()};
  Contents contents;
  contents.archive_ = archive;
  for (const auto& storage : document->storages) {
    const auto bytes = archive->read(*folder + "/data/" + storage->key);
    if (!bytes) return Unexpected{bytes.error()};
    if (bytes->size() != storage->bytes)
      return Unexpected{"storage " + in_quotes(storage->key) + " has " + std::to_string(bytes->size()) +
                        " bytes, its tensors say " + std::to_string(storage->bytes)};
    contents.storages_.emplace(storage->key, *bytes);
  }
  contents.root_ = std::move(document->root);
  return contents;
}

std::span<const std::byte> Contents::bytes_of(const pickle::Storage& storage) const {
  return storages_.at(storage.key);
}

bool is_torch_file(std::span<const std::byte> file) { return is_archive(file) || is_legacy(file); }

bool is_archive(std::span<const std::byte> file) {
  return zip::detail::record_at<zip::detail::LocalHeader>(file, 0).has_value();
}

}  // namespace lockstep::torch_file
