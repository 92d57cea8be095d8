#include <lockstep/checkpoint/checkpoint.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include <lockstep/base/atomic_file.h>
#include <lockstep/base/error.h>
#include <lockstep/base/version.h>
#include <lockstep/formats/safetensors.h>
#include <lockstep/state/tensor_bytes.h>
#include <lockstep/torch.h>

#include "checkpoint/folder_in_the_making.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr int kFormatVersion = 1;
constexpr auto kWeightsFile = "model.safetensors";

nlohmann::ordered_json manifest(const NamedTensors& weights, const CheckpointInfo& info) {
  nlohmann::ordered_json tensors = nlohmann::ordered_json::object();
  for (const auto& [name, tensor] : weights) {
    tensors[name] = {{"file", kWeightsFile},
                     {"dtype", safetensors::dtype_name(safetensors_dtype(tensor.scalar_type()))},
                     {"shape", tensor.sizes().vec()}};
  }
  return {{"format", "lockstep-checkpoint"},
          {"format_version", kFormatVersion},
          {"versions", {{"lockstep", kVersion}, {"libtorch", TORCH_VERSION}}},
          {"epoch", info.epoch},
          {"global_step", info.global_step},
          {"world_size", info.world_size},
          {"strategy", info.strategy},
          {"tensors", std::move(tensors)}};
}

}  // namespace

void save_checkpoint(const fs::path& folder, const NamedTensors& weights, const CheckpointInfo& info) {
  detail::FolderInTheMaking making(folder);
  write_weights(making.path() / kWeightsFile, weights);
  write_file_atomically(making.path() / "manifest.json", manifest(weights, info).dump(2) + "\n");
  making.commit();
}

}  // namespace lockstep
