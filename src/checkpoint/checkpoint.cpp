#include <lockstep/checkpoint/checkpoint.h>

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include <lockstep/base/atomic_file.h>
#include <lockstep/base/error.h>
#include <lockstep/base/version.h>
#include <lockstep/formats/safetensors.h>
#include <lockstep/state/tensor_bytes.h>
#include <lockstep/torch.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr int kFormatVersion = 1;
constexpr auto kWeightsFile = "model.safetensors";

[[noreturn]] void refuse(const fs::path& folder, const char* what) {
  throw IoError("checkpoint", {.what = folder.string() + " cannot be " + what,
                               .expected = "",
                               .got = std::error_code(errno, std::generic_category()).message(),
                               .where = "",
                               .hint = ""});
}

// The name without a slash at its end; what stands there may only be a folder.
fs::path target_of(const fs::path& folder) {
  const auto target = folder.has_filename() ? fs::absolute(folder) : fs::absolute(folder).parent_path();
  const auto status = fs::symlink_status(target);
  if (fs::exists(status) && !fs::is_directory(status)) {
    throw IoError("checkpoint", {.what = "checkpoint " + target.string() + " cannot be written",
                                 .expected = "a folder, or nothing, of that name",
                                 .got = "something else"});
  }
  return target;
}

// Trades places with an older folder in one step, where the file system can (NFS, for one, cannot).
bool exchange(const fs::path& draft, const fs::path& target) {
  if (renameat2(AT_FDCWD, draft.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) return true;
  if (errno != EINVAL && errno != ENOSYS && errno != ENOENT) refuse(target, "renamed to its place");
  return false;
}

// A folder that is renamed to its place when complete, and removed when something fails before.
class FolderInTheMaking {
 public:
  explicit FolderInTheMaking(fs::path target) : target_(std::move(target)) {
    path_ = target_.parent_path() / ("." + target_.filename().string() + ".draft");
    std::error_code failure;
    fs::remove_all(path_, failure);  // of a run that was killed
    if (!fs::create_directory(path_, failure)) {
      errno = failure.value();
      refuse(target_, "created");
    }
  }
  ~FolderInTheMaking() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  FolderInTheMaking(const FolderInTheMaking&) = delete;
  FolderInTheMaking& operator=(const FolderInTheMaking&) = delete;

  const fs::path& path() const { return path_; }

  // After the exchange the draft's name holds the older folder, which the destructor removes.
  void commit() {
    sync_folder(path_);
    if (!exchange(path_, target_)) {
      const auto aside = path_.string() + ".old";
      const bool replaces = fs::exists(target_);
      if (replaces) fs::rename(target_, aside);
      if (rename(path_.c_str(), target_.c_str()) != 0) refuse(target_, "renamed to its place");
      if (replaces) fs::remove_all(aside);
    }
    sync_folder(target_.parent_path());
  }

 private:
  fs::path target_;
  fs::path path_;
};

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
  FolderInTheMaking making(target_of(folder));
  write_weights(making.path() / kWeightsFile, weights);
  write_file_atomically(making.path() / "manifest.json", manifest(weights, info).dump(2) + "\n");
  making.commit();
}

}  // namespace lockstep
