#include "checkpoint/stored_weights.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/ops/empty.h>
#include <nlohmann/json.hpp>

#include <lockstep/base/error.h>
#include <lockstep/checkpoint/checkpoint.h>
#include <lockstep/checkpoint/interop.h>
#include <lockstep/checkpoint/weights.h>
#include <lockstep/formats/safetensors.h>
#include <lockstep/state/module_state.h>
#include <lockstep/state/tensor_bytes.h>
#include <lockstep/torch.h>

#include "base/format.h"
#include "checkpoint/state_formats.h"
#include "formats/checkpoint_folders.h"
#include "formats/file_text.h"
#include "formats/torch_file.h"
#include "formats/zero_checkpoint.h"

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_index(const fs::path& index, const std::string& what, const std::string& got,
                               const std::string& expected = "") {
  throw CheckpointError("checkpoint",
                        {.what = "'" + index.string() + "': " + what, .expected = expected, .got = got});
}

std::string checked_name(const fs::path& index, const nlohmann::json& value, const std::string& ending) {
  const auto* name = value.get_ptr<const nlohmann::json::string_t*>();
  const bool usable = name != nullptr && name->ends_with(ending) &&
                      name->find_first_of(std::string_view("/\\\0", 3)) == name->npos;
  if (!usable) refuse_index(index, "names no file beside it", value.dump().substr(0, 80), "NAME" + ending);
  return *name;
}

}  // namespace

std::map<std::string, std::string> read_weight_map(const fs::path& index, const std::string& ending) {
  std::ifstream file(index);
  if (!file) throw IoError("checkpoint", unreadable_file(index));
  const auto json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  const bool usable = json.is_object() && json.contains("weight_map") && json["weight_map"].is_object();
  if (!usable)
    refuse_index(index, "no index of Hugging Face", json.is_discarded() ? "no JSON" : "another object");
  std::map<std::string, std::string> files;
  for (const auto& [name, value] : json["weight_map"].items())
    files[name] = checked_name(index, value, ending);
  return files;
}

namespace {

/// Where checkpoints keep the model: Lightning's name, then those of PyTorch's tutorials.
constexpr const char* kModelKeys[] = {"state_dict", "model_state_dict", "model"};

const pickle::Dict& model_of(const pickle::Dict& root) {
  for (const auto* key : kModelKeys) {
    const auto* held = root.find(key);
    if (held != nullptr && held->as<pickle::Dict>() != nullptr) return *held->as<pickle::Dict>();
  }
  return root;
}

[[noreturn]] void refuse(const std::string& file, const std::string& name, const pickle::Value& held) {
  const auto* foreign = held.as<pickle::Foreign>();
  const bool is_tensor = foreign != nullptr && foreign->what.ends_with(" tensor");
  throw CheckpointError(
      "checkpoint",
      {.what = "weights in " + file + ", entry " + name,
       .expected = foreign == nullptr ? "a tensor" : "a dense tensor of plain numbers",
       .got = foreign == nullptr ? std::string(held.kind()) : foreign->what,
       .hint = is_tensor ? "save what .to_dense(), .dequantize() or .to_padded_tensor() makes of it"
                         : "a state_dict, alone or under state_dict, model_state_dict or model"});
}

[[noreturn]] void refuse_key(const std::string& file, const pickle::Value& key) {
  throw CheckpointError("checkpoint", {.what = "weights in " + file + " have a key that is no name",
                                       .expected = "text, as in a state_dict",
                                       .got = std::string(key.kind()),
                                       .hint = "read_torch_file() reads such a dict"});
}

// A file of torch.save, and its storages that were read, each once.
struct TorchFile {
  TorchFile(const std::filesystem::path& path, MappedFile mapping) : opened(path, std::move(mapping)) {}

  OpenedTorchFile opened;
  StateOfPickle state{opened.contents(), opened.where()};
};

StoredTensor stored(std::shared_ptr<TorchFile> file, std::shared_ptr<const pickle::Tensor> tensor) {
  return {.dtype = tensor->dtype, .shape = tensor->shape, .read = [file = std::move(file), tensor] {
            return file->state.tensor(*tensor);
          }};
}

StoredWeights torch_weights(const std::filesystem::path& path, MappedFile mapping) {
  const auto file = std::make_shared<TorchFile>(path, std::move(mapping));
  StoredWeights weights;
  const auto root = file->opened.named_values();
  for (const auto& [key, held] : model_of(root).entries) {
    const auto* name = key.as<std::string>();
    if (name == nullptr) refuse_key(file->opened.where(), key);
    auto tensor = held.shared<pickle::Tensor>();
    if (!tensor) refuse(file->opened.where(), *name, held);
    weights.insert_or_assign(*name, stored(file, std::move(tensor)));
  }
  return weights;
}

constexpr auto kBin = "pytorch_model.bin";
constexpr auto kBinIndex = "pytorch_model.bin.index.json";

// The weights in several files of torch.save, for which an index names the file of each tensor.
StoredWeights indexed_torch_weights(const std::filesystem::path& index) {
  StoredWeights weights;
  std::map<std::string, StoredWeights> files;
  for (const auto& [name, file_name] : read_weight_map(index, ".bin")) {
    const auto file = index.parent_path() / file_name;
    const auto [held, is_new] = files.try_emplace(file_name);
    if (is_new) held->second = torch_weights(file, MappedFile(file));
    const auto found = held->second.find(name);
    if (found == held->second.end())
      throw CheckpointError(
          "checkpoint", {.what = "'" + file.string() + "' lacks tensor " + name, .where = index.string()});
    weights.insert_or_assign(name, found->second);
  }
  return weights;
}

// A folder that is no checkpoint of lockstep's or DeepSpeed's.
StoredWeights folder_weights(const std::filesystem::path& folder) {
  const auto has = [&](const char* name) {
    std::error_code ignored;
    return std::filesystem::exists(folder / name, ignored);
  };
  if (has(kSafetensors) || has(kSafetensorsIndex)) return stored_safetensors(folder);
  if (has(kBin)) return torch_weights(folder / kBin, MappedFile(folder / kBin));
  if (has(kBinIndex)) return indexed_torch_weights(folder / kBinIndex);
  if (has(".metadata"))
    throw CheckpointError("checkpoint",
                          {.what = "'" + folder.string() + "' is of torch.distributed.checkpoint",
                           .expected = "weights in a file or folder that docs/interop.md names",
                           .got = "a folder with .metadata",
                           .hint = "ls::read_distributed_checkpoint(folder) reads it, and "
                                   "ls::load_module_state() takes what it gives"});
  std::error_code ignored;
  const auto last = folder / "checkpoints" / "last.ckpt";
  const bool is_run = std::filesystem::is_directory(last, ignored);
  throw CheckpointError(
      "checkpoint",
      {.what = "'" + folder.string() + "' holds no weights",
       .expected = std::string("a checkpoint, or one of ") + kSafetensors + ", " + kSafetensorsIndex + ", " +
                   kBin + " and " + kBinIndex,
       .got = "a folder without any of them",
       .where = "",
       .hint = is_run ? "this is a run directory, and its checkpoint is " + last.string() : ""});
}

// Whether a file that torch.save has not written may be of safetensors: its header is behind its length.
void require_header(const std::filesystem::path& file, std::span<const std::byte> bytes) {
  constexpr std::size_t kLengthBytes = 8;
  if (bytes.size() > kLengthBytes && static_cast<char>(bytes[kLengthBytes]) == '{') return;
  const auto start = bytes.first(std::min(bytes.size(), detail::kForeignStartBytes));
  const auto foreign = detail::foreign_file({reinterpret_cast<const char*>(start.data()), start.size()});
  const std::string_view other = foreign ? foreign->what : "a file of another kind, or a damaged one";
  throw CheckpointError(
      "checkpoint",
      {.what = "'" + file.string() + "' holds no weights",
       .expected = "a file of safetensors or of torch.save (.pt, .pth, .ckpt, .bin), or a folder: a "
                   "checkpoint, or what docs/interop.md names",
       .got = bytes.empty() ? "an empty file" : std::string(other),
       .hint = foreign ? std::string(foreign->hint) : ""});
}

StoredWeights checkpoint_weights(const std::filesystem::path& folder) {
  StoredWeights weights;
  const auto model = Checkpoint(folder).entry("model");
  for (const auto& [name, value] : model.entries()) {
    const auto& tensor = model.get<at::Tensor>(name);
    weights.emplace(name, StoredTensor{.dtype = safetensors_dtype(tensor.scalar_type()),
                                       .shape = tensor.sizes().vec(),
                                       .read = [tensor] { return tensor.clone(); }});
  }
  return weights;
}

StoredWeights deepspeed_weights(const std::filesystem::path& folder) {
  const auto checkpoint = std::make_shared<const ZeroCheckpoint>(folder);
  StoredWeights weights;
  for (const auto& tensor : zero_weights(*checkpoint))
    weights.emplace(tensor.name, StoredTensor{.dtype = as_float32(tensor.elements.dtype),
                                              .shape = tensor.shape,
                                              .read = [checkpoint, tensor] {
                                                return float32_tensor(tensor.elements, tensor.shape);
                                              }});
  return weights;
}

}  // namespace

at::Tensor float32_tensor(const StoredElements& elements, const std::vector<std::int64_t>& shape) {
  auto tensor = at::empty(shape, scalar_type(as_float32(elements.dtype)));
  auto* to = static_cast<std::byte*>(tensor.mutable_data_ptr());
  write_as_float32(elements, [&](std::span<const std::byte> bytes) {
    if (!bytes.empty()) std::memcpy(to, bytes.data(), bytes.size());
    to += bytes.size();
  });
  return tensor;
}

StoredWeights stored_weights(const std::filesystem::path& named) {
  const auto path = tagged_folder(named);
  std::error_code ignored;  // opening reports the error, too
  if (std::filesystem::exists(place_of_checkpoint(path) / kManifestName, ignored))
    return checkpoint_weights(path);
  if (has_zero_files(path)) return deepspeed_weights(path);
  if (std::filesystem::is_directory(path, ignored)) return folder_weights(path);
  MappedFile mapping(path);
  if (torch_file::is_torch_file(mapping.bytes())) return torch_weights(path, std::move(mapping));
  require_header(path, mapping.bytes());
  return stored_safetensors(path);
}

}  // namespace lockstep::detail

namespace lockstep {

NamedTensors read_weights(const std::filesystem::path& path) {
  NamedTensors tensors;
  for (const auto& [name, stored] : detail::stored_weights(path)) tensors.emplace(name, stored.read());
  return tensors;
}

NamedTensors named_tensors(const torch::nn::Module& module) {
  NamedTensors tensors;
  const auto state = module_state(module);
  for (const auto& [name, tensor] : state.entries()) tensors.emplace(name, std::get<at::Tensor>(tensor));
  return tensors;
}

void write_weights(const std::filesystem::path& file, const NamedTensors& tensors) {
  std::vector<at::Tensor> contiguous;  // keeps the bytes alive while they are written
  std::vector<safetensors::TensorView> views;
  for (const auto& [name, tensor] : tensors) {
    contiguous.push_back(stored_form(tensor));
    views.push_back(view_of(name, contiguous.back()));
  }
  safetensors::write(file, views, {{"format", "pt"}});
}

}  // namespace lockstep
