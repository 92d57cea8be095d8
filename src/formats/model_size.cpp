// The number of parameters of a model whose weights are in a file.
#include <lockstep/formats/checkpoint_tools.h>

#include <algorithm>
#include <array>
#include <functional>
#include <list>
#include <map>
#include <numeric>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/formats/safetensors.h>

#include "formats/checkpoint_files.h"
#include "formats/checkpoint_folders.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

bool is_floating(safetensors::Dtype dtype) {
  const auto name = safetensors::dtype_name(dtype);
  return name.starts_with('F') || name.starts_with("BF");
}

std::int64_t elements_of_shape(std::span<const std::int64_t> extents) {
  return std::accumulate(extents.begin(), extents.end(), std::int64_t{1}, std::multiplies<>());
}

// "gpt.blocks.3" of "gpt.blocks.3.mlp.weight"; empty where no part of the name is a number.
std::string_view unit_of(std::string_view name) {
  for (std::size_t begin = 0; begin < name.size();) {
    const auto end = std::min(name.find('.', begin), name.size());
    const auto part = name.substr(begin, end - begin);
    const bool is_number = part.find_first_not_of("0123456789") == std::string_view::npos;
    if (is_number && !part.empty()) return name.substr(0, end);
    begin = end + 1;
  }
  return {};
}

constexpr std::int64_t kSmallestUnit = 4096;  // below it fsdp makes no unit
constexpr std::int64_t kScores = 3;           // scores, their log-softmax, their gradient

struct MatrixShape {
  std::int64_t rows = 0, columns = 0;
};

struct Unit {
  std::int64_t parameters = 0;
  std::int64_t features = 0;
};

// Counts the elements of floating-point tensors. Equal matrices count once, since they are one tensor with
// several names, such as an embedding and the head that is tied to it. Vectors may be equal by chance, all
// ones or all zeros.
class Count {
 public:
  /// `content` is the elements or a checksum of them, which must outlive this object.
  void add(const std::string& name, safetensors::Dtype dtype, const std::vector<std::int64_t>& shape,
           std::string_view content) {
    if (!is_floating(dtype)) return;
    if (shape.size() > 1 && !matrices_.emplace(dtype, shape, content).second) return;
    const auto dot = name.rfind('.');
    layers_[dot == std::string::npos ? "" : name.substr(0, dot)] += elements_of_shape(shape);
    auto& unit = units_[std::string(unit_of(name))];
    unit.parameters += elements_of_shape(shape);
    if (shape.size() < 2) return;
    const MatrixShape matrix{shape.front(), elements_of_shape(std::span(shape).subspan(1))};
    unit.features += matrix.rows + matrix.columns;
    if (unit_of(name).empty()) outside_.push_back(matrix);
  }
  /// Stores a content for add().
  std::string_view stored(std::string content) { return contents_.emplace_back(std::move(content)); }
  ModelSize size_in(const std::filesystem::path& path) const {
    if (layers_.empty())
      throw CheckpointError(
          "formats", {.what = path.string() + " holds no model", .expected = "tensors of floating point"});
    ModelSize size;
    for (const auto& [layer, elements] : layers_) {
      size.parameters += elements;
      size.largest_layer = std::max(size.largest_layer, elements);
    }
    add_units(size);
    return size;
  }

 private:
  void add_units(ModelSize& size) const {
    for (const auto& [name, unit] : units_) {
      if (name.empty() || unit.parameters < kSmallestUnit) continue;
      ++size.units;
      size.largest_unit = std::max(size.largest_unit, unit.parameters);
      size.in_units += unit.parameters;
    }
    for (const auto& [name, unit] : units_)
      if (!name.empty() || size.units == 0) size.features += unit.features;
    if (size.units == 0 || outside_.empty()) return;
    for (const auto& matrix : outside_) size.features += matrix.columns;
    size.features += kScores * std::ranges::max_element(outside_, {}, &MatrixShape::rows)->rows;
  }

  std::map<std::string, std::int64_t> layers_;
  std::map<std::string, Unit> units_;  // by name; the empty name: what is in none
  std::vector<MatrixShape> outside_;   // of units
  std::set<std::tuple<safetensors::Dtype, std::vector<std::int64_t>, std::string_view>> matrices_;
  std::list<std::string> contents_;
};

std::string checksum_of(const detail::TensorRecord& record) {
  std::string all;
  for (const auto& part : record.parts) all += part.checksum + ' ';
  return all;
}

void count_checkpoint(const std::filesystem::path& folder, Count& count) {
  const std::string entry = "model/";
  const auto place = detail::place_of_checkpoint(detail::tagged_folder(folder));
  for (const auto& [name, record] : detail::read_manifest(place).tensors) {
    if (name.starts_with(entry))
      count.add(name.substr(entry.size()), record.dtype, record.shape, count.stored(checksum_of(record)));
  }
}

// The files of a folder as Hugging Face's tools write it; none for a checkpoint.
std::vector<fs::path> weights_in(const fs::path& folder) {
  std::vector<fs::path> files;
  if (fs::exists(folder / detail::kManifestName) || fs::exists(folder / detail::kLatestName)) return files;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".safetensors") files.push_back(entry.path());
  std::ranges::sort(files);
  return files;
}

bool is_run_directory(const fs::path& folder) {
  constexpr std::array kFiles{"run.json", "config.yaml", "summary.json", "metrics.csv"};
  return std::ranges::any_of(kFiles, [&](const char* file) { return fs::exists(folder / file); });
}

// Of a run directory its last checkpoint, by its name or by its time.
fs::path last_checkpoint_of(const fs::path& run) {
  fs::path newest;
  fs::file_time_type time;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(run / "checkpoints", ignored)) {
    if (!fs::exists(entry.path() / detail::kManifestName)) continue;
    if (entry.path().filename() == "last.ckpt") return entry.path();
    if (!newest.empty() && entry.last_write_time() <= time) continue;
    newest = entry.path();
    time = entry.last_write_time();
  }
  if (!newest.empty()) return newest;
  throw CheckpointError("formats", {.what = "the run in " + run.string() + " has no checkpoint",
                                    .expected = (run / "checkpoints" / "NAME.ckpt").string(),
                                    .hint = "train with checkpoints, or give a number of parameters"});
}

// The checkpoint that a folder is, names, or has in the place of a run's.
fs::path checkpoint_in(const fs::path& folder) {
  if (fs::exists(folder / detail::kManifestName) || fs::exists(folder / detail::kLatestName)) return folder;
  if (is_run_directory(folder)) return last_checkpoint_of(folder);
  const auto moved_aside = detail::place_of_checkpoint(folder);
  if (fs::exists(moved_aside / detail::kManifestName)) return folder;
  throw CheckpointError(
      "formats",
      {.what = folder.string() + " is no model",
       .expected = "a checkpoint (with manifest.json, or latest), a run directory (with run.json and "
                   "checkpoints) or a folder with .safetensors files",
       .got = fs::is_empty(folder) ? "an empty folder" : "a folder without any of these"});
}

void count_file(const safetensors::File& file, Count& count) {
  for (const auto& tensor : file.tensors()) {
    const auto* const bytes = reinterpret_cast<const char*>(tensor.bytes.data());
    count.add(tensor.name, tensor.dtype, tensor.shape, {bytes, tensor.bytes.size()});
  }
}

}  // namespace

ModelSize model_size(const std::filesystem::path& path) {
  Count count;
  if (!std::filesystem::is_directory(path)) {
    const safetensors::File file(path);
    count_file(file, count);
    return count.size_in(path);
  }
  if (const auto files = weights_in(path); !files.empty()) {
    std::list<safetensors::File> open;  // whose bytes the count looks at
    for (const auto& file : files) count_file(open.emplace_back(file), count);
  } else {
    count_checkpoint(checkpoint_in(path), count);
  }
  return count.size_in(path);
}

}  // namespace lockstep
