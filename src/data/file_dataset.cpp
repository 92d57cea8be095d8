#include <lockstep/data/file_dataset.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <lockstep/base/error.h>
#include <lockstep/data/dataset.h>
#include <lockstep/formats/idx.h>
#include <lockstep/formats/safetensors.h>
#include <lockstep/state/tensor_bytes.h>

#include "base/format.h"

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
                           .where = path.string() + ":" + std::to_string(table.line_of(row)),
                           .hint = "for a target that is no class number, {.label_dtype = torch::kFloat}"});
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

namespace {

// Numbers with a fraction would be cut in silence, and integers wrapped.
void require_whole(const fs::path& path, const at::Tensor& told, const at::Tensor& targets) {
  if (targets.is_floating_point()) return;
  if (!told.is_floating_point() && targets.scalar_type() == at::kLong) return;  // IDX has 32 bits at most
  const auto changed = targets.to(at::kDouble).ne(told.to(at::kDouble)).flatten().nonzero();
  if (changed.size(0) == 0) return;
  const auto first = changed[0].item<std::int64_t>();
  throw DataError(
      "data", {.what = "label " + std::to_string(first) + " of '" + path.string() + "' does not fit its type",
               .expected = std::string("an integer of type ") + at::toString(targets.scalar_type()),
               .got = number_text(told.flatten()[first].item<double>()),
               .hint = "for a target that is no class number, {.label_dtype = torch::kFloat}"});
}

}  // namespace

DatasetPtr<Example> idx_dataset(const fs::path& data, const fs::path& labels,
                                const IdxDatasetOptions& options) {
  at::Tensor samples = read(data).to(at::kFloat).mul_(options.scale);
  if (options.channel_dim) samples = samples.unsqueeze(1);
  if (labels.empty()) return tensor_dataset(samples);
  const at::Tensor told = read(labels);
  const at::Tensor targets = told.to(options.label_dtype);
  require_whole(labels, told, targets);
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

namespace {

void require(bool is_so, const char* option, const char* expected, std::int64_t got) {
  if (is_so) return;
  throw ConfigError("data", {.what = std::string("token data set: ") + option + " is out of range",
                             .expected = expected,
                             .got = std::to_string(got)});
}

}  // namespace

TokenDataset::TokenDataset(const std::vector<std::filesystem::path>& files,
                           const TokenDatasetOptions& options)
    : block_size_(options.block_size), stride_(options.stride == 0 ? options.block_size : options.stride) {
  require(options.block_size >= 1, "block_size", "1 or more tokens", options.block_size);
  require(options.stride >= 0, "stride", "0 or more tokens", options.stride);
  std::int64_t blocks = 0;
  for (const auto& path : files) {
    const auto& file = files_.emplace_back(path, options.dtype);
    const std::int64_t last = file.size() - block_size_ - 1;  // where the last block may begin
    if (last >= 0) blocks += last / stride_ + 1;
    ends_.push_back(blocks);
  }
  if (blocks > 0) return;
  throw DataError("data", {.what = "no block of tokens in " +
                                   (files.empty() ? "no files" : "'" + files[0].string() + "'") +
                                   (files.size() > 1 ? " and the other files" : ""),
                           .expected = std::to_string(block_size_) + " + 1 tokens",
                           .got = std::to_string(files_.empty() ? 0 : files_[0].size())});
}

void TokenDataset::copy_block(std::int64_t index, std::span<std::int64_t> tokens) const {
  const auto file = static_cast<std::size_t>(std::ranges::upper_bound(ends_, index) - ends_.begin());
  const std::int64_t first = file == 0 ? 0 : ends_[file - 1];
  files_[file].copy((index - first) * stride_, tokens);
}

Example TokenDataset::get_batch(std::span<const std::int64_t> indices) const {
  detail::check_indices(indices, size());
  const auto rows = static_cast<std::int64_t>(indices.size());
  const at::Tensor blocks = at::empty({rows, block_size_ + 1}, at::kLong);
  auto* to = blocks.mutable_data_ptr<std::int64_t>();
  const auto row = static_cast<std::size_t>(block_size_) + 1;
  for (const std::int64_t index : indices) {
    copy_block(index, {to, row});
    to += row;
  }
  return {.data = blocks.narrow(1, 0, block_size_).contiguous(),
          .target = blocks.narrow(1, 1, block_size_).contiguous()};
}

DatasetPtr<Example> token_dataset(const std::vector<std::filesystem::path>& files,
                                  const TokenDatasetOptions& options) {
  return std::make_shared<TokenDataset>(files, options);
}

}  // namespace lockstep
