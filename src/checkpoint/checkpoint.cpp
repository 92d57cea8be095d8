#include <lockstep/checkpoint/checkpoint.h>

#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
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

// A folder that is renamed to its place when complete, and removed when something fails before.
class FolderInTheMaking {
 public:
  explicit FolderInTheMaking(fs::path target) : target_(std::move(target)) {
    std::string name = (target_.parent_path() / ("." + target_.filename().string() + ".XXXXXX")).string();
    if (mkdtemp(name.data()) == nullptr) refuse(target_, "created");
    path_ = name;
    fs::permissions(path_, fs::perms::owner_all | fs::perms::group_read | fs::perms::group_exec |
                               fs::perms::others_read | fs::perms::others_exec);
  }
  ~FolderInTheMaking() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  FolderInTheMaking(const FolderInTheMaking&) = delete;
  FolderInTheMaking& operator=(const FolderInTheMaking&) = delete;

  const fs::path& path() const { return path_; }

  // An older folder of that name trades places, in one step, and is removed by the destructor.
  void commit() {
    sync_folder(path_);
    const unsigned how = fs::exists(target_) ? RENAME_EXCHANGE : RENAME_NOREPLACE;
    if (renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, target_.c_str(), how) != 0)
      refuse(target_, "renamed to its place");
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
  FolderInTheMaking making(fs::absolute(folder));
  write_weights(making.path() / kWeightsFile, weights);
  write_file_atomically(making.path() / "manifest.json", manifest(weights, info).dump(2) + "\n");
  making.commit();
}

}  // namespace lockstep
