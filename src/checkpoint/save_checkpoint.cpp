// Writing a checkpoint: every rank its files, rank 0 the manifest.
#include <optional>
#include <set>
#include <span>

#include <lockstep/base/atomic_file.h>
#include <lockstep/base/error.h>
#include <lockstep/base/version.h>
#include <lockstep/checkpoint/checkpoint.h>
#include <lockstep/formats/checksum.h>
#include <lockstep/torch.h>

#include "checkpoint/folder_in_the_making.h"
#include "checkpoint/save_checkpoint.h"
#include "checkpoint/save_plan.h"
#include "checkpoint/shard_file.h"
#include "checkpoint/state_json.h"
#include "checkpoint/together.h"
#include "formats/checkpoint_manifest.h"
#include "formats/checkpoint_siblings.h"
#include "formats/hugging_face_index.h"
#include "formats/strict_json.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using namespace detail;
using Json = nlohmann::ordered_json;

class Saving {
 public:
  Saving(const CheckpointInfo& info, const Communicator& communicator, StateDictType type)
      : communicator_(communicator), type_(type) {
    manifest_.info = info;
    manifest_.info.world_size = communicator.size();
    manifest_.info.versions = {{"lockstep", kVersion}, {"libtorch", TORCH_VERSION}};
  }

  // Plans; nothing is written yet. What could not be read again is refused.
  void take(const CheckpointState& state) {
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

  void write_files(const fs::path& folder) {
    for (const auto& [cut, share] : entries_) {
      if (!share.leaves.empty()) write_shard_file(folder, share.file, share.leaves, cut, manifest_);
    }
  }

  // What this rank wrote, for rank 0.
  std::string part() const {
    auto part = to_json(manifest_.files, manifest_.tensors);
    part["own"] = own_;
    return part.dump();
  }

  // On rank 0.
  void take_parts(std::span<const std::string> parts) {
    manifest_.files.clear();
    manifest_.tensors.clear();
    for (const auto& text : parts) {
      auto json = parse_strictly(text, "what a rank wrote");
      merge(json, manifest_);
      manifest_.own.push_back(std::move(json["own"]));
    }
    complete(manifest_);
  }

  // On rank 0.
  void write_manifest(const fs::path& folder) {
    for (auto& [name, text] : hugging_face_indices(manifest_)) {
      write_file_atomically(folder / name, text);
      manifest_.files[name] = {text.size(), checksum(std::as_bytes(std::span(text)))};
    }
    const auto text = to_text(manifest_);
    (void)parse_manifest(text, kManifestName);  // else nothing takes the place of one that can be read
    write_file_atomically(folder / kManifestName, text);
    write_file_atomically(folder / kManifestChecksumName,
                          checksum(std::as_bytes(std::span(text))) + "  " + kManifestName + "\n");
  }

 private:
  void check_info() const {
    const Manifest empty{.info = manifest_.info,
                         .own = std::vector(static_cast<std::size_t>(communicator_.size()), Json::object())};
    (void)parse_manifest(to_text(empty), "CheckpointInfo");
  }

  void take_shared(const StateTree& state) {
    for (const auto& [name, value] : state.entries()) {
      check_entry_name(name);
      TensorLeaves leaves;
      add_member(manifest_.shared, name, to_json(value, name, leaves));
      if (leaves.empty()) continue;
      entries_.push_back({name.size() + 1, share_of(name, std::move(leaves), type_, communicator_.rank(),
                                                    communicator_.size())});
    }
  }

  void take_own(const StateTree& state) {
    const auto path = std::string(kOwnEntry) + "/" + std::to_string(communicator_.rank());
    TensorLeaves leaves;
    own_ = to_json(state, path, leaves);
    entries_.push_back(
        {path.size() + 1, own_share(std::move(leaves), communicator_.rank(), communicator_.size())});
  }

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

fs::path place_of(const fs::path& folder) { return fs::absolute(without_slash(folder)); }

[[noreturn]] void refuse_place(const fs::path& folder, const fs::path& place_of_zero) {
  throw ConfigError("checkpoint", {.what = "the ranks do not write to one folder",
                                   .expected = place_of_zero.string() +
                                               ", as rank 0 was given, on a disk that all ranks see",
                                   .got = place_of(folder).string()});
}

void check_name(const fs::path& folder, const fs::path& place_of_zero) {
  if (place_of(folder).filename() != place_of_zero.filename()) refuse_place(folder, place_of_zero);
}

// Its name is random: who finds it there sees what rank 0 made, whatever the path to it.
void check_sees(const fs::path& draft, const fs::path& folder, const fs::path& place_of_zero) {
  if (!fs::is_directory(draft)) refuse_place(folder, place_of_zero);
}

}  // namespace

void save_checkpoint(const fs::path& folder, const CheckpointState& state, const CheckpointInfo& info,
                     const Communicator& communicator, const SaveOptions& options) {
  save_checkpoint_of(
      folder, [&]() -> const CheckpointState& { return state; }, info, communicator, options);
}

namespace detail {

void save_checkpoint_of(const fs::path& folder, const StateSource& state, const CheckpointInfo& info,
                        const Communicator& communicator, const SaveOptions& options) {
  const auto together = [&](const auto& step) { return detail::together(communicator, folder, step); };
  const bool leads = communicator.rank() == 0;
  Saving saving(info, communicator, options.state_dict_type);
  std::optional<FolderInTheMaking> making;
  const auto place_of_zero = together([&] {
    saving.take(state());
    return place_of(folder).string();
  });
  const auto draft = together([&] {
    check_name(folder, place_of_zero);
    if (leads) making.emplace(folder);
    return leads ? making->path().filename().string() : std::string();
  });
  std::string part;
  together([&] {
    const auto own_draft = place_of(folder).replace_filename(draft);
    check_sees(own_draft, folder, place_of_zero);
    saving.write_files(own_draft);
    part = saving.part();
    return std::string();
  });
  const auto parts = communicator.gather_bytes(part);
  together([&] {
    if (!leads) return std::string();
    saving.take_parts(parts);
    saving.write_manifest(making->path());
    making->commit();
    return std::string();
  });
}

}  // namespace detail
}  // namespace lockstep
