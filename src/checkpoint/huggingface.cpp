// Writes folders as Hugging Face's transformers has them, and reads their config.json.
#include <lockstep/checkpoint/huggingface.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <utility>

#include <c10/core/ScalarType.h>
#include <nlohmann/json.hpp>

#include <lockstep/base/atomic_file.h>
#include <lockstep/base/error.h>
#include <lockstep/formats/mapped_file.h>
#include <lockstep/state/tensor_bytes.h>

#include "checkpoint/stored_weights.h"
#include "checkpoint/weight_names.h"
#include "formats/checkpoint_files.h"
#include "formats/safetensors_header.h"
#include "formats/weight_files.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using detail::StoredTensor;
using detail::StoredWeights;
using Config = nlohmann::ordered_json;

constexpr auto kConfig = "config.json";

Config parsed_object(const fs::path& file) {
  const MappedFile mapped(file);
  const auto bytes = mapped.bytes();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  auto json = detail::parse_strictly(text, "'" + file.string() + "'");
  if (!json.is_object())
    throw CheckpointError("checkpoint", {.what = "'" + file.string() + "' holds no names",
                                         .expected = "a JSON object",
                                         .got = std::string(json.type_name())});
  return json;
}

StateTree tree_of(const Config& object);

/// Numbers that fit no integer of 64 bits become double.
StateValue value_of(const Config& json) {
  constexpr std::uint64_t kLargest = std::numeric_limits<std::int64_t>::max();
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_unsigned() && json.get<std::uint64_t>() > kLargest) return json.get<double>();
  if (json.is_number_integer()) return json.get<std::int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  if (json.is_object()) return tree_of(json);
  if (json.is_null()) return StateTree();
  StateList list;
  for (const auto& value : json) list.push_back(value_of(value));
  return list;
}

StateTree tree_of(const Config& object) {
  StateTree tree;
  for (const auto& [name, value] : object.items()) {
    if (!value.is_null()) tree.set(name, value_of(value));
  }
  return tree;
}

}  // namespace

StateTree read_json(const fs::path& file) { return tree_of(parsed_object(file)); }

namespace {

bool is_floating(const StoredTensor& tensor) {
  return at::isFloatingType(scalar_type(tensor.dtype)) && safetensors::dtype_bytes(tensor.dtype) >= 2;
}

StoredTensor cast(StoredTensor tensor, at::ScalarType type) {
  tensor.dtype = safetensors_dtype(type);
  tensor.read = [read = std::move(tensor.read), type] { return read().to(type); };
  return tensor;
}

/// The tensors as they are to be written, by their names there.
StoredWeights theirs_of(StoredWeights weights, const WeightNames& names, const HuggingFaceOptions& options) {
  StoredWeights theirs;
  for (auto& [name, stored] : weights) {
    auto [there, transpose] = detail::to_theirs(names, name);
    auto tensor =
        transpose ? detail::transposed("tensor '" + name + "'", std::move(stored)) : std::move(stored);
    if (options.dtype && is_floating(tensor)) tensor = cast(std::move(tensor), *options.dtype);
    if (theirs.try_emplace(there, std::move(tensor)).second) continue;
    throw CheckpointError("checkpoint", {.what = "two tensors of the module get the same name in the file",
                                         .got = "'" + name + "', as '" + there + "'"});
  }
  return theirs;
}

std::vector<detail::WeightSource> sources_of(const StoredWeights& weights) {
  std::vector<detail::WeightSource> sources;
  for (const auto& [name, stored] : weights)
    sources.push_back({.head = {name, stored.dtype, stored.shape,
                                safetensors::bytes_of_shape(name, stored.dtype, stored.shape)},
                       .write = [&name = name, &stored = stored](const detail::ByteSink& sink) {
                         const auto tensor = stored_form(stored.read());
                         sink(view_of(name, tensor).bytes);
                       }});
  return sources;
}

/// What config.json calls the element type of floating-point weights; empty where they have several, or none.
std::string dtype_of(const StoredWeights& weights) {
  std::string name;
  for (const auto& [ignored, stored] : weights) {
    if (!is_floating(stored)) continue;
    const auto one = c10::getDtypeNames(scalar_type(stored.dtype)).first;
    if (!name.empty() && name != one) return {};
    name = one;
  }
  return name;
}

/// Since version 5 transformers writes "dtype", before that "torch_dtype"; both are read.
void copy_config(const fs::path& from, const fs::path& to, const std::string& dtype) {
  auto config = parsed_object(from);
  for (const auto* key : {"dtype", "torch_dtype"}) {
    if (!dtype.empty() && config.contains(key)) config[key] = dtype;
  }
  write_file_atomically(to, config.dump(2) + "\n");
}

/// Whether a file of a folder describes a model, or its tokenizer, and is neither weights nor their index.
bool belongs_to_model(const fs::path& file) {
  static constexpr std::array kEndings{".json", ".txt", ".model", ".jinja"};
  const auto name = file.filename().string();
  return std::ranges::find(kEndings, file.extension().string()) != kEndings.end() &&
         !name.ends_with(".index.json");
}

void copy_files(const fs::path& like, const fs::path& to, const std::string& dtype) {
  copy_config(like / kConfig, to / kConfig, dtype);
  std::error_code failure;
  for (const auto& entry : fs::directory_iterator(like, failure)) {
    const auto name = entry.path().filename();
    if (!entry.is_regular_file() || !belongs_to_model(name) || name == kConfig) continue;
    const MappedFile file(entry.path());
    write_file_atomically(to / name, file.bytes());
  }
}

void write_folder(const fs::path& folder, StoredWeights weights, const WeightNames& names,
                  const HuggingFaceOptions& options) {
  detail::check_rows(names);
  if (options.max_shard_bytes == 0)
    throw ConfigError(
        "checkpoint",
        {.what = "max_shard_bytes of " + folder.string(), .expected = "a number of bytes", .got = "0"});
  const auto theirs = theirs_of(std::move(weights), names, options);
  detail::write_sharded(folder, sources_of(theirs), options.max_shard_bytes, [&](const fs::path& draft) {
    if (!options.like.empty()) copy_files(options.like, draft, dtype_of(theirs));
  });
}

}  // namespace

void write_huggingface(const fs::path& folder, const NamedTensors& tensors, const WeightNames& names,
                       const HuggingFaceOptions& options) {
  StoredWeights weights;
  for (const auto& [name, tensor] : tensors)
    weights.emplace(name, StoredTensor{.dtype = safetensors_dtype(tensor.scalar_type()),
                                       .shape = tensor.sizes().vec(),
                                       .read = [tensor = tensor.detach()] { return tensor; }});
  write_folder(folder, std::move(weights), names, options);
}

void convert_to_huggingface(const fs::path& from, const fs::path& folder, const WeightNames& names,
                            const HuggingFaceOptions& options) {
  write_folder(folder, detail::stored_weights(from), names, options);
}

}  // namespace lockstep
