// Writing a checkpoint: every rank its files, rank 0 the manifest.
#include <exception>
#include <optional>

#include <lockstep/base/atomic_file.h>
#include <lockstep/base/error.h>
#include <lockstep/base/version.h>
#include <lockstep/checkpoint/checkpoint.h>
#include <lockstep/formats/checksum.h>
#include <lockstep/torch.h>

#include "checkpoint/folder_in_the_making.h"
#include "checkpoint/save_plan.h"
#include "checkpoint/shard_file.h"
#include "checkpoint/state_json.h"
#include "formats/checkpoint_manifest.h"
#include "formats/hugging_face_index.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using namespace detail;
using Json = nlohmann::ordered_json;

// Does this rank's part of something; fails on all ranks if one failed. Collective.
template <class Step>
void together(const Communicator& communicator, const fs::path& folder, Step step) {
  std::exception_ptr own;
  std::string failure;
  try {
    step();
  } catch (const std::exception& error) {
    own = std::current_exception();
    failure = error.what();
  }
  const auto failures = communicator.all_gather_bytes(failure);
  if (own) std::rethrow_exception(own);
  for (std::size_t rank = 0; rank < failures.size(); ++rank) {
    if (failures[rank].empty()) continue;
    throw IoError("checkpoint", {.what = "checkpoint " + folder.string() + " was not written",
                                 .got = failures[rank],
                                 .where = "rank " + std::to_string(rank)});
  }
}

class Saving {
 public:
  Saving(const CheckpointInfo& info, const Communicator& communicator, StateDictType type)
      : communicator_(communicator), type_(type) {
    manifest_.info = info;
    manifest_.info.world_size = communicator.size();
    manifest_.info.versions = {{"lockstep", kVersion}, {"libtorch", TORCH_VERSION}};
  }

  // Takes what all have, and plans; nothing is written yet.
  void take_shared(const StateTree& state) {
    for (const auto& [name, value] : state.entries()) {
      check_entry_name(name);
      TensorLeaves leaves;
      manifest_.shared[name] = to_json(value, name, leaves);
      if (leaves.empty()) continue;
      entries_.push_back({name.size() + 1, share_of(name, std::move(leaves), type_, communicator_.rank(),
                                                    communicator_.size())});
    }
  }

  void take_own(const StateTree& state) {
    const auto rank = std::to_string(communicator_.rank());
    const auto path = "ranks/" + rank;
    Share share{.leaves = {}, .file = "rank_" + rank + ".safetensors"};
    own_ = to_json(state, path, share.leaves);
    entries_.push_back({path.size() + 1, std::move(share)});
  }

  void write_files(const fs::path& folder) {
    for (const auto& [cut, share] : entries_) {
      if (!share.leaves.empty()) write_shard_file(folder, share.file, share.leaves, cut, manifest_);
    }
  }

  // Gives rank 0 what all wrote. Collective.
  void gather() {
    auto part = to_json(manifest_.files, manifest_.tensors);
    part["own"] = own_;
    const auto parts = communicator_.gather_bytes(part.dump());
    manifest_.files.clear();
    manifest_.tensors.clear();
    for (const auto& text : parts) {
      auto json = Json::parse(text);
      merge(json, manifest_);
      manifest_.own.push_back(std::move(json["own"]));
    }
  }

  // On rank 0.
  void write_manifest(const fs::path& folder) {
    complete(manifest_);
    for (auto& [name, text] : hugging_face_indices(manifest_)) {
      write_file_atomically(folder / name, text);
      manifest_.files[name] = {text.size(), checksum(std::as_bytes(std::span(text)))};
    }
    const auto text = to_text(manifest_);
    write_file_atomically(folder / kManifestName, text);
    write_file_atomically(folder / kManifestChecksumName,
                          checksum(std::as_bytes(std::span(text))) + "  " + kManifestName + "\n");
  }

 private:
  struct Entry {
    std::size_t cut;  // characters of a path that the file's name stands for
    Share share;
  };

  const Communicator& communicator_;
  StateDictType type_;
  Manifest manifest_;
  Json own_;
  std::vector<Entry> entries_;
};

}  // namespace

void save_checkpoint(const fs::path& folder, const CheckpointState& state, const CheckpointInfo& info,
                     const Communicator& communicator, const SaveOptions& options) {
  Saving saving(info, communicator, options.state_dict_type);
  saving.take_shared(state.shared);
  saving.take_own(state.own);
  const bool leads = communicator.rank() == 0;
  std::optional<FolderInTheMaking> making;
  together(communicator, folder, [&] {
    if (leads) making.emplace(folder);
  });
  together(communicator, folder, [&] { saving.write_files(FolderInTheMaking::path_of(folder)); });
  saving.gather();
  together(communicator, folder, [&] {
    if (!leads) return;
    saving.write_manifest(making->path());
    making->commit();
  });
}

}  // namespace lockstep
