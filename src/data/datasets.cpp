// Data sets that lie in memory, those of torch::data, and parts of others.
#include <lockstep/data/dataset.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <string>

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <c10/util/accumulate.h>
#include <lockstep/base/error.h>
#include <lockstep/data/sampler.h>
#include <lockstep/data/tensor_dataset.h>
#include <lockstep/data/torch_dataset.h>

namespace lockstep::detail {

SplitOrder split_order(std::int64_t size, double fraction, const SplitOptions& options) {
  if (!(fraction > 0 && fraction < 1)) {
    throw ConfigError("data", {.what = "split: fraction is out of range",
                               .expected = "a number between 0 and 1",
                               .got = std::to_string(fraction)});
  }
  const std::int64_t first = std::llround(fraction * static_cast<double>(size));
  if (first == 0 || first == size) {
    throw DataError(
        "data", {.what = "split: one part would be empty",
                 .got = "fraction " + std::to_string(fraction) + " of " + std::to_string(size) + " samples"});
  }
  auto order = options.shuffle ? random_permutation(size, options.seed)
                               : std::vector<std::int64_t>(static_cast<std::size_t>(size));
  if (!options.shuffle) std::iota(order.begin(), order.end(), 0);
  return {.first = {order.begin(), order.begin() + first}, .second = {order.begin() + first, order.end()}};
}

void check_indices(std::span<const std::int64_t> indices, std::int64_t size) {
  for (const std::int64_t index : indices) {
    if (index >= 0 && index < size) continue;
    throw DataError("data", {.what = "index " + std::to_string(index) + " is outside the data set",
                             .expected = "0 <= index < " + std::to_string(size)});
  }
}

std::vector<std::int64_t> select(std::span<const std::int64_t> from,
                                 std::span<const std::int64_t> positions) {
  check_indices(positions, static_cast<std::int64_t>(from.size()));
  std::vector<std::int64_t> selected;
  selected.reserve(positions.size());
  for (const std::int64_t position : positions) selected.push_back(from[static_cast<std::size_t>(position)]);
  return selected;
}

}  // namespace lockstep::detail

namespace lockstep {
namespace {

/// The rows of contiguous `rows` at `indices`. On the CPU they are copied one by one, since index_select
/// would start OpenMP threads from each worker of the loader.
at::Tensor gather_rows(const at::Tensor& rows, std::span<const std::int64_t> indices) {
  const at::IntArrayRef list(indices.data(), indices.size());
  if (!rows.is_cpu()) return rows.index_select(0, at::tensor(list, at::kLong).to(rows.device()));
  at::DimVector shape(rows.sizes());
  shape[0] = static_cast<std::int64_t>(indices.size());
  at::Tensor gathered = at::empty(shape, rows.options());
  const std::size_t row_bytes =
      static_cast<std::size_t>(c10::multiply_integers(rows.sizes().slice(1))) * rows.element_size();
  if (row_bytes == 0) return gathered;
  const auto* from = static_cast<const std::byte*>(rows.const_data_ptr());
  auto* to = static_cast<std::byte*>(gathered.mutable_data_ptr());
  for (const std::int64_t index : indices) {
    std::memcpy(to, from + static_cast<std::size_t>(index) * row_bytes, row_bytes);
    to += row_bytes;
  }
  return gathered;
}

at::Tensor as_rows(const at::Tensor& tensor) {
  return tensor.detach().resolve_conj().resolve_neg().contiguous();
}

}  // namespace

std::int64_t batch_size(const at::Tensor& batch) {
  if (!batch.defined() || batch.dim() == 0) {
    throw DataError("data", {.what = "a batch has no batch dimension",
                             .expected = "a tensor of one dimension or more",
                             .got = batch.defined() ? "a scalar" : "an undefined tensor"});
  }
  return batch.size(0);
}

std::int64_t batch_size(const Example& batch) { return batch_size(batch.data); }

TensorDataset::TensorDataset(const at::Tensor& data, const at::Tensor& target) {
  const std::int64_t rows = batch_size(data);
  data_ = as_rows(data);
  if (!target.defined()) return;
  if (batch_size(target) != rows) {
    throw DataError("data", {.what = "data and target differ in rows",
                             .expected = std::to_string(rows) + " targets",
                             .got = std::to_string(batch_size(target))});
  }
  target_ = as_rows(target);
}

Example TensorDataset::get_batch(std::span<const std::int64_t> indices) const {
  detail::check_indices(indices, size());
  return {.data = gather_rows(data_, indices),
          .target = target_.defined() ? gather_rows(target_, indices) : at::Tensor()};
}

DatasetPtr<Example> tensor_dataset(const at::Tensor& data, const at::Tensor& target) {
  return std::make_shared<TensorDataset>(data, target);
}

}  // namespace lockstep

namespace lockstep::detail {

std::int64_t known_size(std::optional<std::size_t> size) {
  if (size) return static_cast<std::int64_t>(*size);
  throw DataError("data",
                  {.what = "a torch::data dataset has no known size", .hint = "return it from size()"});
}

Example stack(const std::vector<at::Tensor>& data, const std::vector<at::Tensor>& targets) {
  return {.data = at::stack(data), .target = targets.empty() ? at::Tensor() : at::stack(targets)};
}

}  // namespace lockstep::detail
