#include "formats/torch_file_legacy.h"

#include <algorithm>
#include <array>

#include "formats/byte_reader.h"
#include "formats/in_quotes.h"

namespace lockstep::torch_file {
namespace {

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
    if (!storages.emplace(*key, *bytes).second) return Unexpected{"it has storage " + in_quotes(*key) + " twice"};
  }
  for (const auto& storage : document.storages)
    if (!storages.contains(storage->key)) return Unexpected{"it lacks storage " + in_quotes(storage->key)};
  return storages;
}

}  // namespace

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

}  // namespace lockstep::torch_file
