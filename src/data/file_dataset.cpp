#include <lockstep/data/file_dataset.h>

#include <memory>
#include <string>
#include <utility>

#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>

#include <lockstep/base/error.h>
#include <lockstep/data/tensor_dataset.h>
#include <lockstep/formats/idx.h>
#include <lockstep/formats/safetensors.h>
#include <lockstep/state/tensor_bytes.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// The label's column counted from 0.
std::int64_t label_column(const fs::path& path, std::int64_t label, std::int64_t columns) {
  const std::int64_t column = label < 0 ? columns + label : label;
  if (column >= 0 && column < columns) return column;
  throw ConfigError("data", {.what = "label is no column of '" + path.string() + "'",
                             .expected = std::to_string(-columns) + " to " + std::to_string(columns - 1),
                             .got = std::to_string(label)});
}

/// `values` as `dtype`, which must represent each of them exactly.
at::Tensor labels(const fs::path& path, const CsvTable& table, const at::Tensor& values,
                  at::ScalarType dtype) {
  at::Tensor converted = values.to(dtype, /*non_blocking=*/false, /*copy=*/true);  // the table will be gone
  if (!at::isIntegralType(dtype, /*includeBool=*/true)) return converted;
  const at::Tensor changed = converted.to(at::kDouble).ne(values).nonzero();
  if (changed.size(0) == 0) return converted;
  const auto row = changed[0].item<std::int64_t>();
  throw DataError("data", {.what = "a label does not fit its type",
                           .expected = std::string("an integer of type ") + at::toString(dtype),
                           .got = std::to_string(values[row].item<double>()),
                           .where = path.string() + ":" + std::to_string(table.line_of(row))});
}

}  // namespace

DatasetPtr<Example> csv_dataset(const fs::path& path, const CsvDatasetOptions& options) {
  CsvTable table = read_csv(path, options.csv);
  const at::Tensor all = at::from_blob(table.values.data(), {table.rows, table.columns}, at::kDouble);
  const auto features = [&](const at::Tensor& columns) { return (columns * options.scale).to(at::kFloat); };
  if (!options.label) return tensor_dataset(features(all));
  const std::int64_t label = label_column(path, *options.label, table.columns);
  const at::Tensor others =
      at::cat({all.narrow(1, 0, label), all.narrow(1, label + 1, table.columns - label - 1)}, 1);
  return tensor_dataset(features(others), labels(path, table, all.select(1, label), options.label_dtype));
}

namespace {

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

namespace {

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
