#include <lockstep/checkpoint/state_checkpoint.h>

#include <algorithm>
#include <cctype>
#include <fstream>

#include <lockstep/base/atomic_file.h>
#include <lockstep/base/error.h>
#include <lockstep/base/version.h>
#include <lockstep/formats/safetensors.h>
#include <lockstep/state/tensor_bytes.h>
#include <lockstep/torch.h>

#include "checkpoint/folder_in_the_making.h"
#include "checkpoint/state_json.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr int kFormatVersion = 1;
constexpr auto kManifest = "manifest.json";

bool can_name_a_file(const std::string& name) {
  const auto allowed = [](char letter) {
    return std::isalnum(static_cast<unsigned char>(letter)) != 0 || letter == '_' || letter == '-' ||
           letter == '.';
  };
  return !name.empty() && name.front() != '.' && std::ranges::all_of(name, allowed);
}

void check_name(const std::string& name) {
  if (can_name_a_file(name)) return;
  throw ConfigError("checkpoint", {.what = "the name of an entry of a checkpoint",
                                   .expected = "letters, digits, _ - and ., not a . in front",
                                   .got = "\"" + name + "\""});
}

fs::path tensor_file(const fs::path& folder, const std::string& entry) {
  return folder / (entry + ".safetensors");
}

NamedTensors read_tensors(const fs::path& path) {
  NamedTensors tensors;
  if (!fs::exists(path)) return tensors;
  const safetensors::File file(path);
  for (const auto& view : file.tensors()) tensors.emplace(view.name, tensor_of(view));
  return tensors;
}

Json read_manifest(const fs::path& path) {
  std::ifstream file(path);
  if (!file)
    throw IoError("checkpoint", {.what = path.string() + " cannot be read",
                                 .hint = "a checkpoint is the folder that save() was given"});
  auto manifest = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  const bool usable = manifest.is_object() && manifest.contains("state") && manifest["state"].is_object() &&
                      manifest.value("format_version", 0) == kFormatVersion;
  if (usable) return manifest;
  throw CheckpointError("checkpoint", {.what = path.string() + " is not that of a saved state",
                                       .expected = "a JSON object with format_version 1 and state",
                                       .got = manifest.is_discarded() ? "no JSON" : "another"});
}

}  // namespace

void write_state(const fs::path& folder, const StateTree& state, const CheckpointInfo& info) {
  detail::FolderInTheMaking making(folder);
  Json entries = Json::object();
  for (const auto& [name, value] : state.entries()) {
    check_name(name);
    NamedTensors tensors;
    entries[name] = detail::to_json(value, tensors);
    if (!tensors.empty()) write_weights(tensor_file(making.path(), name), tensors);
  }
  const Json manifest{{"format", "lockstep-state"},
                      {"format_version", kFormatVersion},
                      {"versions", {{"lockstep", kVersion}, {"libtorch", TORCH_VERSION}}},
                      {"world_size", info.world_size},
                      {"strategy", info.strategy},
                      {"state", std::move(entries)}};
  write_file_atomically(making.path() / kManifest, manifest.dump(2) + "\n");
  making.commit();
}

StateTree read_state(const fs::path& folder) {
  StateTree state;
  const auto manifest = read_manifest(folder / kManifest);
  for (const auto& [name, value] : manifest["state"].items()) {
    check_name(name);
    state.set(name, detail::from_json(value, read_tensors(tensor_file(folder, name))));
  }
  return state;
}

}  // namespace lockstep
