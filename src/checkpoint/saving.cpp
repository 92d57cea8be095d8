#include "checkpoint/saving.h"

#include <set>
#include <utility>

#include <lockstep/base/atomic_file.h>
#include <lockstep/base/error.h>
#include <lockstep/base/version.h>
#include <lockstep/formats/checksum.h>
#include <lockstep/torch.h>

#include "checkpoint/shard_file.h"
#include "checkpoint/state_json.h"
#include "formats/hugging_face_index.h"
#include "formats/strict_json.h"

namespace lockstep::detail {

Saving::Saving(const CheckpointInfo& info, const Communicator& communicator, TypeOfEntry type_of)
    : rank_(communicator.rank()), world_size_(communicator.size()), type_of_(std::move(type_of)) {
  manifest_.info = info;
  manifest_.info.world_size = world_size_;
  manifest_.info.versions = {{"lockstep", kVersion}, {"libtorch", TORCH_VERSION}};
}

void Saving::take(const CheckpointState& state) {
  check_info();
  take_shared(state.shared);
  take_own(state.own);
  std::set<std::string> files;
  for (const auto& entry : entries_) {
    for (const auto& file : entry.share.files) {
      if (!files.insert(file).second)
        throw CheckpointError("checkpoint",
                              {.what = "two entries would be written to one file", .got = file});
    }
  }
}

void Saving::write_files(const std::filesystem::path& folder) {
  for (const auto& [cut, share] : entries_) {
    if (!share.leaves.empty()) write_shard_file(folder, share.file, share.leaves, cut, manifest_);
  }
}

std::string Saving::part() const {
  auto part = to_json(manifest_.files, manifest_.tensors);
  part["own"] = own_;
  return part.dump();
}

void Saving::take_parts(std::span<const std::string> parts) {
  manifest_.files.clear();
  manifest_.tensors.clear();
  for (const auto& text : parts) {
    auto json = parse_strictly(text, "what a rank wrote");
    merge(json, manifest_);
    manifest_.own.push_back(std::move(json["own"]));
  }
  complete(manifest_);
}

void Saving::write_indices(const std::filesystem::path& folder) {
  for (auto& [name, text] : hugging_face_indices(manifest_)) {
    write_file_atomically(folder / name, text);
    manifest_.files[name] = {text.size(), checksum(std::as_bytes(std::span(text)))};
  }
}

std::string Saving::manifest_text() const {
  auto text = to_text(manifest_);
  (void)parse_manifest(text, kManifestName);  // else nothing takes the place of one that can be read
  return text;
}

void Saving::check_info() const {
  const Manifest empty{
      .info = manifest_.info,
      .own = std::vector(static_cast<std::size_t>(world_size_), nlohmann::ordered_json::object())};
  (void)parse_manifest(to_text(empty), "CheckpointInfo");
}

void Saving::take_shared(const StateTree& state) {
  for (const auto& [name, value] : state.entries()) {
    check_entry_name(name);
    TensorLeaves leaves;
    add_member(manifest_.shared, name, to_json(value, name, leaves));
    if (leaves.empty()) continue;
    entries_.push_back(
        {name.size() + 1, share_of(name, std::move(leaves), type_of_(name), rank_, world_size_)});
  }
}

void Saving::take_own(const StateTree& state) {
  const auto path = std::string(kOwnEntry) + "/" + std::to_string(rank_);
  TensorLeaves leaves;
  own_ = to_json(state, path, leaves);
  entries_.push_back({path.size() + 1, own_share(std::move(leaves), rank_, world_size_)});
}

void write_manifest(const std::filesystem::path& folder, const std::string& text) {
  write_file_atomically(folder / kManifestName, text);
  write_file_atomically(folder / kManifestChecksumName,
                        checksum(std::as_bytes(std::span(text))) + "  " + kManifestName + "\n");
}

}  // namespace lockstep::detail
