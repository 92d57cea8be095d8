// The number of parameters of a model whose weights are in a file.
#include <lockstep/formats/checkpoint_tools.h>

#include <algorithm>
#include <functional>
#include <list>
#include <map>
#include <numeric>
#include <set>
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

bool is_floating(safetensors::Dtype dtype) {
  const auto name = safetensors::dtype_name(dtype);
  return name.starts_with('F') || name.starts_with("BF");
}

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
    layers_[dot == std::string::npos ? "" : name.substr(0, dot)] +=
        std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
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
    return size;
  }

 private:
  std::map<std::string, std::int64_t> layers_;
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

void count_file(const safetensors::File& file, Count& count) {
  for (const auto& tensor : file.tensors()) {
    const auto* const bytes = reinterpret_cast<const char*>(tensor.bytes.data());
    count.add(tensor.name, tensor.dtype, tensor.shape, {bytes, tensor.bytes.size()});
  }
}

}  // namespace

ModelSize model_size(const std::filesystem::path& path) {
  Count count;
  if (std::filesystem::is_directory(path)) {
    count_checkpoint(path, count);
    return count.size_in(path);
  }
  const safetensors::File file(path);
  count_file(file, count);
  return count.size_in(path);
}

}  // namespace lockstep
