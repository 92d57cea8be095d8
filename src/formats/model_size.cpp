#include <lockstep/formats/model_size.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <string>

#include <lockstep/base/error.h>
#include <lockstep/formats/safetensors.h>

#include "formats/checkpoint_manifest.h"

namespace lockstep {
namespace {

bool is_floating(safetensors::Dtype dtype) {
  const auto name = safetensors::dtype_name(dtype);
  return name.starts_with('F') || name.starts_with("BF");
}

class Count {
 public:
  void add(const std::string& name, safetensors::Dtype dtype, const std::vector<std::int64_t>& shape) {
    if (!is_floating(dtype)) return;
    const auto dot = name.rfind('.');
    layers_[dot == std::string::npos ? "" : name.substr(0, dot)] +=
        std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  }
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
};

}  // namespace

ModelSize model_size(const std::filesystem::path& path) {
  Count count;
  if (std::filesystem::is_directory(path)) {
    const std::string entry = "model/";
    for (const auto& [name, record] : detail::read_manifest(path).tensors)
      if (name.starts_with(entry)) count.add(name.substr(entry.size()), record.dtype, record.shape);
  } else {
    const safetensors::File file(path);
    for (const auto& tensor : file.tensors()) count.add(tensor.name, tensor.dtype, tensor.shape);
  }
  return count.size_in(path);
}

}  // namespace lockstep
