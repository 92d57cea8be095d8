#include <lockstep/data/tensor_dataset.h>

#include <cstring>
#include <string>

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <c10/util/accumulate.h>

#include <lockstep/base/error.h>

namespace lockstep {
namespace {

/// The rows of contiguous `rows` at `indices`. On the CPU by plain copies: index_select would start
/// OpenMP's threads from each of the loader's.
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
