#include <memory>
#include <string>

#include <ATen/ops/from_blob.h>

#include <lockstep/base/error.h>
#include <lockstep/data/file_dataset.h>
#include <lockstep/data/tensor_dataset.h>
#include <lockstep/formats/idx.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

at::ScalarType dtype_of(idx::Dtype dtype) {
  switch (dtype) {
    case idx::Dtype::kInt8:
      return at::kChar;
    case idx::Dtype::kInt16:
      return at::kShort;
    case idx::Dtype::kInt32:
      return at::kInt;
    case idx::Dtype::kFloat32:
      return at::kFloat;
    case idx::Dtype::kFloat64:
      return at::kDouble;
    default:
      return at::kByte;
  }
}

/// The array in its own type, with memory of its own.
at::Tensor read(const fs::path& path) {
  auto array = std::make_shared<idx::Array>(idx::read(path));
  return at::from_blob(
      array->bytes.data(), array->shape, [array](void*) {}, dtype_of(array->dtype));
}

}  // namespace

DatasetPtr<Example> idx_dataset(const fs::path& data, const fs::path& labels,
                                const IdxDatasetOptions& options) {
  at::Tensor samples = read(data).to(at::kFloat).mul_(options.scale);
  if (options.channel_dim) samples = samples.unsqueeze(1);
  if (labels.empty()) return tensor_dataset(samples);
  const at::Tensor targets = read(labels).to(options.label_dtype);
  if (targets.size(0) != samples.size(0)) {
    throw DataError("data", {.what = "'" + data.string() + "' and '" + labels.string() +
                                     "' hold different numbers of samples",
                             .expected = std::to_string(samples.size(0)) + " labels",
                             .got = std::to_string(targets.size(0))});
  }
  return tensor_dataset(samples, targets);
}

}  // namespace lockstep
