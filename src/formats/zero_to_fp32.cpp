// Checkpoints of DeepSpeed, and of lockstep, as weights in float32.
#include <lockstep/formats/checkpoint_tools.h>

#include <array>
#include <limits>

#include <lockstep/base/error.h>

#include "formats/checkpoint_files.h"
#include "formats/checkpoint_folders.h"
#include "formats/file_text.h"
#include "formats/weight_files.h"
#include "formats/zero_checkpoint.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using detail::StoredTensorView;

constexpr std::uint64_t kDefaultShardBytes = 5'000'000'000;  // Hugging Face's

bool is_named(const fs::path& file, std::initializer_list<std::string_view> endings) {
  return std::ranges::find(endings, file.extension().string()) != endings.end();
}

void write(const fs::path& output, std::span<const StoredTensorView> tensors,
           const ZeroToFp32Options& options) {
  const bool is_torch = is_named(output, {".pt", ".pth", ".bin", ".ckpt"});
  const bool is_file = is_torch || is_named(output, {".safetensors"});
  if (is_file && options.max_shard_bytes)
    throw ConfigError("checkpoint", {.what = "max_shard_size",
                                     .expected = "a folder as output, which takes several files",
                                     .got = "the file " + output.string()});
  if (!is_file) return write_sharded(output, tensors, options.max_shard_bytes.value_or(kDefaultShardBytes));
  return is_torch ? write_state_dict(output, tensors) : write_safetensors(output, tensors);
}

/// The model of a checkpoint of ours.
std::vector<StoredTensorView> weights_of(const detail::CheckpointFiles& files) {
  constexpr std::string_view kModel = "model/";
  std::vector<StoredTensorView> tensors;
  for (const auto& [path, record] : files.manifest().tensors) {
    if (!path.starts_with(kModel)) continue;
    StoredTensorView tensor{.name = path.substr(kModel.size()), .shape = record.shape, .elements = {}};
    tensor.elements.dtype = record.dtype;
    for (const auto& part : record.parts) tensor.elements.runs.push_back(files.bytes_of(path, part));
    tensors.push_back(std::move(tensor));
  }
  if (tensors.empty())
    throw CheckpointError("checkpoint", {.what = files.folder().string() + " has no tensors of \"model\""});
  return tensors;
}

void check_is_ours(const fs::path& folder) {
  std::error_code ignored;
  if (fs::exists(detail::place_of_checkpoint(folder) / detail::kManifestName, ignored)) return;
  throw IoError(
      "checkpoint",
      {.what = folder.string() + " is no checkpoint",
       .expected = "a folder with mp_rank_00_model_states.pt and others of DeepSpeed, or manifest.json",
       .got = fs::exists(folder, ignored) ? "none in it" : "nothing of that name",
       .hint = "give the folder with the file latest, or name one of its checkpoints by --tag"});
}

void refuse_frozen(const fs::path& folder) {
  throw ConfigError("checkpoint",
                    {.what = "exclude_frozen_parameters",
                     .expected = "a checkpoint that DeepSpeed has written",
                     .got = folder.string() + ", which does not say which parameters are frozen"});
}

[[noreturn]] void refuse_size(const std::string& text) {
  throw ConfigError("checkpoint", {.what = "max_shard_size",
                                   .expected = "digits and one of KB, MB, GB, TB, such as 5GB",
                                   .got = detail::in_quotes(text)});
}

}  // namespace

std::uint64_t parse_shard_size(const std::string& text) {
  constexpr std::array<std::pair<std::string_view, std::uint64_t>, 4> kUnits{
      {{"KB", 1'000}, {"MB", 1'000'000}, {"GB", 1'000'000'000}, {"TB", 1'000'000'000'000}}};
  const auto digits = text.find_first_not_of("0123456789");
  if (digits == 0 || digits == std::string::npos || digits > std::numeric_limits<std::uint64_t>::digits10)
    refuse_size(text);
  auto unit = text.substr(digits);
  for (auto& letter : unit)
    letter = letter >= 'a' && letter <= 'z' ? static_cast<char>(letter - 'a' + 'A') : letter;
  const auto found = std::ranges::find(kUnits, unit, [](const auto& row) { return row.first; });
  std::uint64_t bytes = std::stoull(text.substr(0, digits));
  if (found == kUnits.end() || bytes == 0 || __builtin_mul_overflow(bytes, found->second, &bytes))
    refuse_size(text);
  return bytes;
}

void zero_to_fp32(const fs::path& folder, const fs::path& output, const ZeroToFp32Options& options) {
  detail::require_name(output);
  const auto place = detail::tagged_folder(folder, options.tag);
  if (detail::has_zero_files(place)) {
    const detail::ZeroCheckpoint checkpoint(place);
    return write(output, zero_weights(checkpoint, options.exclude_frozen_parameters), options);
  }
  check_is_ours(place);
  const detail::CheckpointFiles files(place, Verify::kNeeded);
  files.require_apart(output);
  if (options.exclude_frozen_parameters) refuse_frozen(place);
  write(output, weights_of(files), options);
}

}  // namespace lockstep
