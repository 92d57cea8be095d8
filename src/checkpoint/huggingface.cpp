// Reads weights of Hugging Face folders, by a table of names.
#include <memory>
#include <regex>

#include <lockstep/base/error.h>
#include <lockstep/checkpoint/interop.h>
#include <lockstep/state/tensor_bytes.h>

#include "checkpoint/stored_weights.h"

namespace lockstep {
namespace detail {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const fs::path& file, const std::string& what, const std::string& got,
                         const std::string& expected = "") {
  throw CheckpointError("checkpoint",
                        {.what = "'" + file.string() + "': " + what, .expected = expected, .got = got});
}

StoredTensor stored(std::shared_ptr<const safetensors::File> file, const safetensors::TensorView& view) {
  return {.dtype = view.dtype, .shape = view.shape, .read = [file = std::move(file), &view] {
            return tensor_of(view);
          }};
}

StoredWeights indexed(const fs::path& folder) {
  StoredWeights weights;
  std::map<std::string, std::shared_ptr<const safetensors::File>> files;
  for (const auto& [name, file_name] : read_weight_map(folder / kSafetensorsIndex, ".safetensors")) {
    auto& file = files[file_name];
    if (!file) file = std::make_shared<const safetensors::File>(folder / file_name);
    weights.emplace(name, stored(file, file->at(name)));
  }
  return weights;
}

StoredWeights single(const fs::path& path) {
  const auto file = std::make_shared<const safetensors::File>(path);
  StoredWeights weights;
  for (const auto& view : file->tensors()) weights.emplace(view.name, stored(file, view));
  return weights;
}

}  // namespace

StoredWeights stored_safetensors(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return single(path);
  return fs::exists(path / kSafetensorsIndex, ignored) ? indexed(path) : single(path / kSafetensors);
}

}  // namespace detail

namespace {

constexpr std::size_t kMaxNameBytes = 1000;  // std::regex calls itself for every letter

struct Row {
  std::regex pattern;
  const Rename* rename;
};

std::vector<Row> compiled(std::span<const Rename> renames) {
  std::vector<Row> rows;
  for (const auto& rename : renames) try {
      rows.push_back({std::regex(rename.pattern), &rename});
    } catch (const std::regex_error& error) {
      throw ConfigError("checkpoint", {.what = "the pattern of a Rename",
                                       .expected = "a regular expression",
                                       .got = rename.pattern + " (" + error.what() + ")"});
    }
  return rows;
}

/// What `name` becomes; nothing when it is left out.
struct Renamed {
  std::string name;
  bool transpose = false;
};

Renamed renamed(const std::string& name, const std::vector<Row>& rows) {
  std::smatch match;
  for (const auto& [pattern, rename] : rows) {
    if (name.size() <= kMaxNameBytes && std::regex_match(name, match, pattern))
      return {.name = match.format(rename->replacement), .transpose = rename->transpose};
  }
  return {.name = name};
}

}  // namespace

NamedTensors read_huggingface(const std::filesystem::path& folder, std::span<const Rename> renames) {
  const auto rows = compiled(renames);
  NamedTensors tensors;
  for (const auto& [stored_name, stored] : detail::stored_safetensors(folder)) {
    const auto [name, transpose] = renamed(stored_name, rows);
    if (name.empty()) continue;
    if (transpose && stored.shape.size() != 2)
      detail::refuse(folder, "tensor '" + stored_name + "' is to be transposed",
                     std::to_string(stored.shape.size()) + " dimensions", "2 dimensions");
    const auto tensor = transpose ? stored.read().t().contiguous() : stored.read();
    if (!tensors.emplace(name, tensor).second)
      detail::refuse(folder, "two tensors get the same name", "'" + name + "'");
  }
  return tensors;
}

}  // namespace lockstep
