#include <string>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/data/file_dataset.h>
#include <lockstep/data/tensor_dataset.h>
#include <lockstep/formats/safetensors.h>
#include <lockstep/state/tensor_bytes.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

safetensors::File open(const fs::path& path) try {
  auto file = safetensors::File::open(path);
  if (file) return std::move(*file);
  throw DataError(
      "data", {.what = "'" + path.string() + "' is no safetensors file or is damaged", .got = file.error()});
} catch (const IoError& error) {
  throw DataError("data", {.what = "no data set in '" + path.string() + "'", .got = error.what()});
}

/// A copy of the tensor `name`: the file may change or go once it has been read.
at::Tensor tensor(const safetensors::File& file, const std::string& name) {
  const safetensors::TensorView* view = file.find(name);
  if (!view) {
    throw DataError("data", {.what = "no tensor '" + name + "' in '" + file.path().string() + "'",
                             .expected = "one of " + file.listed_names()});
  }
  return tensor_of(*view);
}

}  // namespace

DatasetPtr<Example> safetensors_dataset(const fs::path& path, const SafetensorsDatasetOptions& options) {
  const safetensors::File file = open(path);
  return tensor_dataset(tensor(file, options.x), options.y.empty() ? at::Tensor() : tensor(file, options.y));
}

}  // namespace lockstep
