#include "train/checkpoints/last_weights.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <string_view>
#include <system_error>

#include <lockstep/base/error.h>
#include <lockstep/base/unique_fd.h>
#include <lockstep/checkpoint/interop.h>

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 3> kEndingsOfTorch = {".pt", ".pth", ".bin"};
constexpr std::array<std::string_view, 9> kEndingsOfOthers = {".ckpt", ".pkl",  ".pickle", ".npz", ".npy",
                                                              ".h5",   ".hdf5", ".onnx",   ".gguf"};

// Why no file can be made in `folder`; empty where one can be. Only trying tells: file systems such as /proc
// refuse what the permissions of the folder allow.
std::string reason_against(const fs::path& folder) {
  const auto probe = folder / (".lockstep-probe-" + std::to_string(getpid()));
  const UniqueFd file(::open(probe.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file) return std::generic_category().message(errno);
  ::unlink(probe.c_str());
  return {};
}

bool ends_like(const fs::path& file, const auto& endings) {
  return std::ranges::find(endings, file.extension().string()) != endings.end();
}

[[noreturn]] void refuse_weights(const fs::path& file, const std::string& expected, const std::string& got) {
  throw ConfigError("train", {.what = "save_weights " + file.string() + " cannot be written",
                              .expected = expected,
                              .got = got,
                              .where = "--save_weights"});
}

}  // namespace

void check_last_weights(const fs::path& file) {
  if (file.empty()) return;
  if (ends_like(file, kEndingsOfOthers))
    refuse_weights(file, "a name that ends in .safetensors, or in .pt, .pth or .bin for a file of torch.save",
                   file.extension().string());
  const auto folder = fs::absolute(file).parent_path();
  const std::string expected = "a file name in a folder that exists and can be written";
  std::error_code failure;
  if (!fs::is_directory(folder, failure)) refuse_weights(file, expected, "no such folder");
  const auto type = fs::status(file, failure).type();
  if (type == fs::file_type::none) refuse_weights(file, expected, failure.message());
  if (type == fs::file_type::directory) refuse_weights(file, expected, "a folder");
  const bool may_be_replaced = type == fs::file_type::regular || type == fs::file_type::not_found;
  if (!may_be_replaced) refuse_weights(file, expected, "a device, pipe or socket");
  if (const auto reason = reason_against(folder); !reason.empty())
    refuse_weights(file, expected, folder.string() + ": " + reason);
}

void write_last_weights(const fs::path& file, const NamedTensors& weights) {
  if (!ends_like(file, kEndingsOfTorch)) return write_weights(file, weights);
  StateTree state_dict;
  for (const auto& [name, tensor] : weights) state_dict.set(name, tensor);
  write_torch_file(file, state_dict);
}

}  // namespace lockstep::detail
