// manifest.json: writing, merging and parsing it, as strictly as JSON from untrusted files must be.
#include <algorithm>
#include <limits>
#include <sstream>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/formats/checksum.h>
#include <lockstep/formats/mapped_file.h>

#include "formats/checkpoint_files.h"
#include "formats/checkpoint_folders.h"

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr auto kFormat = "lockstep-checkpoint";
constexpr int kFormatVersion = 2;
constexpr std::size_t kChecksumDigits = 32;

[[noreturn]] void refuse(const std::string& what, std::string expected, std::string got) {
  throw CheckpointError("checkpoint", {.what = what, .expected = std::move(expected), .got = std::move(got)});
}

std::string text_of(const fs::path& path) {
  const MappedFile file(path);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

// The name of a file in the folder. Names that lead out of the folder are refused, since anybody may have
// written the manifest.
std::string file_name_from(const Json& json) {
  const auto name = json.get<std::string>();
  const bool is_plain = !name.empty() && name.front() != '.' && name.find('/') == std::string::npos &&
                        name.find('\0') == std::string::npos;
  if (!is_plain) refuse("manifest.json names a file", "a plain name", "\"" + name + "\"");
  return name;
}

std::int64_t count_from(const Json& json) {
  constexpr std::uint64_t kLargest = std::numeric_limits<std::int64_t>::max();
  if (!json.is_number_unsigned() || json.get<std::uint64_t>() > kLargest)
    refuse("manifest.json", "a number from 0 on, below 2^63", json.dump().substr(0, 100));
  return json.get<std::int64_t>();
}

int small_count_from(const Json& json) {
  const auto count = count_from(json);
  if (count > std::numeric_limits<int>::max()) refuse("manifest.json", "a number below 2^31", json.dump());
  return static_cast<int>(count);
}

std::map<std::string, int> mesh_from(const Json& json) {
  std::map<std::string, int> mesh;
  for (const auto& [axis, ranks] : json.items()) mesh[axis] = small_count_from(ranks);
  return mesh;
}

std::string checksum_from(const Json& json) {
  const auto digits = json.get<std::string>();
  if (digits.size() != kChecksumDigits)
    refuse("manifest.json", "a checksum of 32 digits", "\"" + digits + "\"");
  return digits;
}

TensorPart part_from(const Json& json) {
  return {.file = file_name_from(json.at("file")),
          .name = json.at("name").get<std::string>(),
          .offset = static_cast<std::uint64_t>(count_from(json.at("offset"))),
          .begin = count_from(json.at("begin")),
          .elements = count_from(json.at("elements")),
          .checksum = checksum_from(json.at("xxh3_128"))};
}

TensorRecord record_from(const Json& json) {
  const auto dtype = safetensors::dtype_named(json.at("dtype").get<std::string>());
  if (!dtype) refuse("manifest.json", "a dtype of safetensors", json.at("dtype").dump());
  TensorRecord record{.dtype = *dtype};
  for (const auto& extent : json.at("shape")) record.shape.push_back(count_from(extent));
  for (const auto& part : json.at("parts")) record.parts.push_back(part_from(part));
  return record;
}

std::int64_t elements_of(const std::string& name, const TensorRecord& record) {
  std::int64_t elements = 1;
  for (const auto extent : record.shape) {
    if (__builtin_mul_overflow(elements, extent, &elements))
      refuse("tensor " + name, "a possible shape", "too large");
  }
  return elements;
}

Json to_json(const CheckpointInfo& info) {
  return {{"epoch", info.epoch},
          {"global_step", info.global_step},
          {"world_size", info.world_size},
          {"strategy", info.strategy},
          {"mesh", info.mesh}};
}

CheckpointInfo info_from(const Json& json) {
  return {.epoch = count_from(json.at("epoch")),
          .global_step = count_from(json.at("global_step")),
          .world_size = small_count_from(json.at("world_size")),
          .strategy = json.at("strategy").get<std::string>(),
          .mesh = mesh_from(json.at("mesh")),
          .versions = json.at("versions").get<std::map<std::string, std::string>>()};
}

void check_ranks(const Manifest& manifest) {
  const auto world_size = static_cast<std::size_t>(manifest.info.world_size);
  if (world_size == manifest.own.size() && world_size > 0) return;
  refuse(
      "manifest.json", "a world_size of 1 or more, and as many states of ranks",
      "world_size " + std::to_string(world_size) + " and " + std::to_string(manifest.own.size()) + " ranks");
}

// Checks that every tensor that a value names is in the manifest.
void check_tensors(const Json& value, const Manifest& manifest) {
  if (value.is_array()) {
    for (const auto& element : value) check_tensors(element, manifest);
  } else if (value.is_object() && value.size() == 1) {
    const auto& kind = value.begin().key();
    const auto& content = value.begin().value();
    if (kind == "tree") {
      for (const auto& member : content) check_tensors(member, manifest);
    } else if (kind == "tensor" && !manifest.tensors.contains(content.get<std::string>())) {
      refuse("manifest.json names a tensor", "one under tensors", content.dump());
    }
  }
}

Manifest manifest_from(const Json& json) {
  Manifest manifest{.info = info_from(json)};
  merge(json, manifest);
  complete(manifest);
  manifest.shared = json.at("state");
  for (const auto& own : json.at("ranks")) manifest.own.push_back(own);
  check_ranks(manifest);
  for (const auto& value : manifest.shared) check_tensors(value, manifest);
  for (const auto& value : manifest.own) check_tensors(value, manifest);
  return manifest;
}

void check_version(const std::string& place, const Json& json) {
  if (!json.is_object() || json.value("format", "") != kFormat) {
    refuse(place + " is not that of a checkpoint", std::string("format ") + kFormat,
           json.is_object() ? json.value("format", Json()).dump() : std::string(json.type_name()));
  }
  const auto version = json.value("format_version", 0);
  if (version == kFormatVersion) return;
  throw CheckpointError("checkpoint",
                        {.what = place + " has another format",
                         .expected = "format_version " + std::to_string(kFormatVersion),
                         .got = "format_version " + std::to_string(version),
                         .hint = version > kFormatVersion ? "a newer lockstep wrote it; use that one" : ""});
}

}  // namespace

Json to_json(const std::map<std::string, FileRecord>& files,
             const std::map<std::string, TensorRecord>& tensors) {
  Json json{{"files", Json::object()}, {"tensors", Json::object()}};
  for (const auto& [name, file] : files)
    add_member(json["files"], name, {{"bytes", file.bytes}, {"xxh3_128", file.checksum}});
  for (const auto& [name, tensor] : tensors) {
    Json parts = Json::array();
    for (const auto& part : tensor.parts) {
      parts.push_back({{"file", part.file},
                       {"name", part.name},
                       {"offset", part.offset},
                       {"begin", part.begin},
                       {"elements", part.elements},
                       {"xxh3_128", part.checksum}});
    }
    add_member(json["tensors"], name,
               {{"dtype", safetensors::dtype_name(tensor.dtype)},
                {"shape", tensor.shape},
                {"parts", std::move(parts)}});
  }
  return json;
}

void merge(const Json& json, Manifest& manifest) {
  for (const auto& [name, file] : json.at("files").items()) {
    const FileRecord record{static_cast<std::uint64_t>(count_from(file.at("bytes"))),
                            checksum_from(file.at("xxh3_128"))};
    if (!manifest.files.emplace(file_name_from(name), record).second)
      refuse("the file " + name, "one writer", "several");
  }
  for (const auto& [name, tensor] : json.at("tensors").items()) {
    auto record = record_from(tensor);
    const auto [place, is_new] = manifest.tensors.try_emplace(name, record);
    if (is_new) continue;
    auto& known = place->second;
    if (known.shape != record.shape || known.dtype != record.dtype)
      refuse("tensor " + name, "one shape and dtype on all ranks", "others");
    std::ranges::move(record.parts, std::back_inserter(known.parts));
  }
}

void complete(Manifest& manifest) {
  for (auto& [name, record] : manifest.tensors) {
    std::ranges::sort(record.parts, {},
                      [](const TensorPart& part) { return std::pair(part.begin, part.elements); });
    std::int64_t end = 0;
    for (const auto& part : record.parts) {
      if (part.begin != end || __builtin_add_overflow(end, part.elements, &end)) break;
    }
    const auto elements = elements_of(name, record);
    const bool is_whole = end == elements && !record.parts.empty();
    if (!is_whole) {
      refuse("the parts of tensor " + name,
             "runs that follow each other, " + std::to_string(elements) + " elements",
             "a gap or an overlap at element " + std::to_string(end));
    }
  }
}

std::string to_text(const Manifest& manifest) {
  Json json{{"format", kFormat}, {"format_version", kFormatVersion}, {"versions", manifest.info.versions}};
  json.update(to_json(manifest.info));
  json.update(to_json(manifest.files, manifest.tensors));
  json["state"] = manifest.shared;
  json["ranks"] = manifest.own;
  return json.dump(1) + "\n";
}

Manifest parse_manifest(std::string_view text, const std::string& place) try {
  const auto json = parse_strictly(text, place);
  check_version(place, json);
  return manifest_from(json);
} catch (const nlohmann::json::exception& error) {
  refuse(place + " cannot be read", "what docs/checkpoint-format.md says", error.what());
}

Manifest read_manifest(const fs::path& folder) {
  const auto path = folder / kManifestName;
  std::error_code failure, ignored;
  if (!fs::exists(path, failure)) {
    const auto* const reason = fs::exists(folder, ignored) ? "none in it" : "nothing of that name";
    std::string hint;
    if (fs::is_regular_file(folder, ignored)) hint = "weights in a file are loaded with --init_weights";
    const auto last = folder / "checkpoints" / "last.ckpt";
    if (fs::is_directory(last, ignored))
      hint = "this is a run directory, and its checkpoint is " + last.string();
    throw IoError("checkpoint", {.what = folder.string() + " is no checkpoint",
                                 .expected = std::string("a folder with ") + kManifestName,
                                 .got = failure ? failure.message() : reason,
                                 .hint = hint});
  }
  const auto text = text_of(path);
  const auto mark = text_of(folder / kManifestChecksumName);
  const auto digits = checksum(std::as_bytes(std::span(text)));
  if (mark != digits + "  " + kManifestName + "\n")
    refuse(path.string() + " is damaged", "the checksum in " + std::string(kManifestChecksumName), "another");
  auto manifest = parse_manifest(text, path.string());
  manifest.checksum = digits;
  return manifest;
}

namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void refuse(const std::string& place, const std::string& why) {
  throw CheckpointError("checkpoint", {.what = place + " is no JSON that can be used", .got = why});
}

// Builds the value from the events of the parser. The builder of nlohmann's library searches all members of
// an object for each new one, and accepts duplicate keys.
class StrictBuilder final : public nlohmann::json_sax<Json> {
 public:
  explicit StrictBuilder(const std::string& place) : place_(place) {}

  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(std::int64_t value) override { return add(value); }
  bool number_unsigned(std::uint64_t value) override { return add(value); }
  bool number_float(double value, const std::string&) override { return add(value); }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(Json::binary_t&) override { return false; }  // JSON has none
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_array() override { return close(); }
  bool key(std::string& name) override {
    keys_.push_back(std::move(name));
    return true;
  }
  bool end_object() override {
    check_keys();
    return close();
  }
  bool parse_error(std::size_t, const std::string&, const Json::exception& error) override {
    refuse(place_, error.what());
  }

 private:
  bool open(Json value) {
    if (open_.size() == kDeepestJson) refuse(place_, "nested deeper than " + std::to_string(kDeepestJson));
    open_.push_back(std::move(value));
    return true;
  }

  bool close() {
    Json value = std::move(open_.back());
    open_.pop_back();
    return add(std::move(value));
  }

  bool add(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().is_array()) {
      open_.back().push_back(std::move(value));
    } else {
      add_member(open_.back(), std::move(keys_.back()), std::move(value));
      keys_.pop_back();
    }
    return true;
  }

  void check_keys() const {
    std::vector<std::string_view> keys;
    for (const auto& [key, value] : open_.back().get_ref<const Json::object_t&>()) keys.push_back(key);
    std::ranges::sort(keys);
    const auto twice = std::ranges::adjacent_find(keys);
    if (twice != keys.end()) refuse(place_, "the key " + Json(*twice).dump() + " twice");
  }

  const std::string& place_;
  Json root_;
  std::vector<Json> open_;         // the objects and arrays that are not complete yet
  std::vector<std::string> keys_;  // the keys of the next values, one for each object among these
};

}  // namespace

Json parse_strictly(std::string_view text, const std::string& place) {
  StrictBuilder builder(place);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

}  // namespace lockstep::detail
