#include <string>

#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>

#include <lockstep/base/error.h>
#include <lockstep/data/file_dataset.h>
#include <lockstep/data/tensor_dataset.h>

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

/// `values` as `dtype`; every one must survive the way there and back.
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

}  // namespace lockstep
