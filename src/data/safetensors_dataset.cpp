#include <cstring>
#include <string>
#include <utility>

#include <ATen/ops/empty.h>

#include <lockstep/base/error.h>
#include <lockstep/data/file_dataset.h>
#include <lockstep/data/tensor_dataset.h>
#include <lockstep/formats/safetensors.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using safetensors::Dtype;

at::ScalarType scalar_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF64:
      return at::kDouble;
    case Dtype::kF32:
      return at::kFloat;
    case Dtype::kF16:
      return at::kHalf;
    case Dtype::kBF16:
      return at::kBFloat16;
    case Dtype::kF8E4M3:
      return at::kFloat8_e4m3fn;
    case Dtype::kF8E5M2:
      return at::kFloat8_e5m2;
    case Dtype::kI64:
      return at::kLong;
    case Dtype::kI32:
      return at::kInt;
    case Dtype::kI16:
      return at::kShort;
    case Dtype::kI8:
      return at::kChar;
    case Dtype::kU64:
      return at::kUInt64;
    case Dtype::kU32:
      return at::kUInt32;
    case Dtype::kU16:
      return at::kUInt16;
    case Dtype::kU8:
      return at::kByte;
    case Dtype::kBool:
      return at::kBool;
  }
  return at::ScalarType::Undefined;
}

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
  at::Tensor copy = at::empty(view->shape, scalar_type(view->dtype));
  if (!view->bytes.empty()) std::memcpy(copy.mutable_data_ptr(), view->bytes.data(), view->bytes.size());
  return copy;
}

}  // namespace

DatasetPtr<Example> safetensors_dataset(const fs::path& path, const SafetensorsDatasetOptions& options) {
  const safetensors::File file = open(path);
  return tensor_dataset(tensor(file, options.x), options.y.empty() ? at::Tensor() : tensor(file, options.y));
}

}  // namespace lockstep
