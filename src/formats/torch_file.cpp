#include "formats/torch_file.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>

#include <lockstep/base/error.h>
#include <lockstep/base/expected.h>
#include <lockstep/formats/pickle.h>
#include <lockstep/formats/torch_file.h>

#include "formats/byte_reader.h"
#include "formats/file_text.h"
#include "formats/zip_records.h"

namespace lockstep::torch_file {
namespace {

// Files that torch.save wrote before PyTorch 1.6, and still does with _use_new_zipfile_serialization=False:
// pickles one after the other (a magic number, a version, facts of the system, the value, the keys of the
// storages), then the storages, each behind the number of its elements.
struct Legacy {
  pickle::Value root;
  std::unordered_map<std::string, std::span<const std::byte>>
      storages;  ///< by key; their bytes lie in the file
};

// Whether `file` starts with that format's magic number.
bool is_legacy(std::span<const std::byte> file);

// Reads such a file. Never throws for bad input; the reason says what is wrong.
Expected<Legacy> parse_legacy(std::span<const std::byte> file);

using lockstep::detail::in_quotes;
using Bytes = std::span<const std::byte>;

// The pickle of torch.serialization.MAGIC_NUMBER, which takes ten bytes.
constexpr std::array<unsigned char, 15> kMagic{0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46,
                                               0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, 0x2e};
constexpr std::int64_t kVersion = 1001;

/// The value of the next pickle, or why there is none.
Expected<pickle::Document> next(Bytes& rest, const char* what) {
  auto document = pickle::parse_first(rest);
  if (!document) return Unexpected{std::string(what) + ": " + document.error()};
  return document;
}

/// Why the head, two pickles behind the magic number, is none that can be read; or an empty string.
std::string unreadable(Bytes& rest) {
  const auto version = next(rest, "version");
  if (!version) return version.error();
  const auto* number = version->root.as<std::int64_t>();
  if (number == nullptr || *number != kVersion) return "it is of another version than 1001";
  const auto system = next(rest, "system");
  if (!system) return system.error();
  const auto* facts = system->root.as<pickle::Dict>();
  const auto* order = facts == nullptr ? nullptr : facts->find("little_endian");
  const auto* is_little = order == nullptr ? nullptr : order->as<bool>();
  if (is_little == nullptr || !*is_little) return "its byte order is not 'little'";
  return {};
}

using Storages = std::unordered_map<std::string, std::span<const std::byte>>;

/// The bytes of `storage`, which `rest` begins with, and which are taken from it; or why there are none.
Expected<Bytes> take_storage(Bytes& rest, const pickle::Storage& storage) {
  lockstep::detail::ByteReader reader(rest);
  std::int64_t elements = 0;
  Bytes bytes;
  if (!reader.read(elements) || !reader.take(storage.bytes, bytes))
    return Unexpected{"storage " + in_quotes(storage.key) + " is cut short"};
  const auto element_bytes = storage.dtype ? safetensors::dtype_bytes(*storage.dtype) : 1;
  if (elements < 0 || static_cast<std::uint64_t>(elements) != storage.bytes / element_bytes)
    return Unexpected{"storage " + in_quotes(storage.key) + " has " + std::to_string(elements) +
                      " elements, its tensors say " + std::to_string(storage.bytes / element_bytes)};
  rest = rest.subspan(reader.position());
  return bytes;
}

Expected<Storages> storages_of(Bytes rest, const pickle::Document& document, const pickle::Value& keys) {
  std::unordered_map<std::string_view, const pickle::Storage*> known;
  for (const auto& storage : document.storages) known.emplace(storage->key, storage.get());
  const auto* list = keys.as<pickle::List>();
  if (list == nullptr) return Unexpected{"it has no list of storages"};
  Storages storages;
  for (const auto& item : *list) {
    const auto* key = item.as<std::string>();
    const auto found = key == nullptr ? known.end() : known.find(*key);
    if (found == known.end()) return Unexpected{"it lists a storage that no tensor has"};
    const auto bytes = take_storage(rest, *found->second);
    if (!bytes) return Unexpected{bytes.error()};
    if (!storages.emplace(*key, *bytes).second)
      return Unexpected{"it has storage " + in_quotes(*key) + " twice"};
  }
  for (const auto& storage : document.storages)
    if (!storages.contains(storage->key)) return Unexpected{"it lacks storage " + in_quotes(storage->key)};
  return storages;
}

bool is_legacy(Bytes file) {
  const auto magic = std::as_bytes(std::span(kMagic));
  return file.size() >= magic.size() && std::ranges::equal(file.first(magic.size()), magic);
}

Expected<Legacy> parse_legacy(Bytes file) {
  auto rest = file.subspan(kMagic.size());
  if (auto reason = unreadable(rest); !reason.empty()) return Unexpected{reason};
  auto value = next(rest, "value");
  if (!value) return Unexpected{value.error()};
  const auto keys = next(rest, "keys of storages");
  if (!keys) return Unexpected{keys.error()};
  auto storages = storages_of(rest, *value, keys->root);
  if (!storages) return Unexpected{storages.error()};
  return Legacy{.root = std::move(value->root), .storages = std::move(*storages)};
}

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

/// What an archive is in which nothing was pickled.
std::string without_pickle(const zip::Archive& archive) {
  const auto is_exported = [](const auto& entry) {
    return entry.name.ends_with("/models/model.json") ||
           entry.name.ends_with("serialized_exported_program.json");
  };
  if (std::ranges::any_of(archive.entries(), is_exported))
    return "it is an exported program, as torch.export.save in Python writes it";
  return "it is an archive without data.pkl";
}

/// Why the archive is none of plain values, or an empty string.
std::string foreign(const zip::Archive& archive, const std::string& folder) {
  if (archive.find(folder + "/constants.pkl") != nullptr)
    return "it is a TorchScript program, as torch.jit.save in Python and torch::save(module, file) in C++ "
           "write it";
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
  if (!folder) return Unexpected{without_pickle(*archive)};
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

namespace lockstep::detail {
namespace {

constexpr auto kPickleStart = std::byte{0x80};

// A hint how to make a file that can be read.
std::string way_out(std::span<const std::byte> bytes, const std::string& reason) {
  const bool is_pickle = !bytes.empty() && bytes.front() == kPickleStart;
  if (reason.find("unknown instruction") != reason.npos)
    return "copy the file again; where torch.load reads it, it was saved with another pickle_protocol "
           "than 2: torch.save(torch.load(file), file)";
  if (reason.find("TorchScript") != reason.npos)
    return "in C++: torch::load(module, file), then ls::write_weights(out, ls::named_tensors(*module)); in "
           "Python: save "
           "the module's state_dict()";
  if (reason.find("exported program") != reason.npos)
    return "in Python: torch.save(torch.export.load(file).state_dict, out)";
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
