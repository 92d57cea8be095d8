// Data sets in memory and parts of others, and batches of their samples.
#include <cmath>
#include <cstring>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <c10/util/accumulate.h>

#include <lockstep/base/error.h>
#include <lockstep/data/any_loader.h>
#include <lockstep/data/dataset.h>
#include <lockstep/data/sampler.h>
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

namespace lockstep {
namespace {

std::string shape_of(const at::Tensor& tensor) {
  std::ostringstream text;
  text << at::toString(tensor.scalar_type()) << " " << tensor.sizes();
  return text.str();
}

bool fits(const at::Tensor& first, const at::Tensor& other) {
  return first.defined() == other.defined() &&
         (!first.defined() || (first.sizes() == other.sizes() && first.scalar_type() == other.scalar_type()));
}

void require_fit(const char* what, std::size_t index, const at::Tensor& first, const at::Tensor& other) {
  if (fits(first, other)) return;
  const auto describe = [](const at::Tensor& tensor) { return tensor.defined() ? shape_of(tensor) : "none"; };
  throw DataError("data", {.what = std::string(what) + " of sample " + std::to_string(index) +
                                   " of a batch does not fit the first",
                           .expected = describe(first),
                           .got = describe(other),
                           .hint = "give all samples of a batch the same shape"});
}

at::Tensor stacked(const char* what, const std::vector<at::Tensor>& tensors) {
  for (std::size_t i = 1; i < tensors.size(); ++i) require_fit(what, i, tensors[0], tensors[i]);
  return tensors.empty() || !tensors[0].defined() ? at::Tensor() : at::stack(tensors);
}

}  // namespace

at::Tensor collate(std::span<const at::Tensor> samples) {
  return stacked("the tensor", {samples.begin(), samples.end()});
}

Example collate(std::span<const Example> samples) {
  std::vector<at::Tensor> data;
  std::vector<at::Tensor> targets;
  for (const Example& sample : samples) {
    data.push_back(sample.data);
    targets.push_back(sample.target);
  }
  return {.data = stacked("data", data), .target = stacked("target", targets)};
}

at::Tensor pin_memory(const at::Tensor& batch) { return batch.defined() ? batch.pin_memory() : batch; }

Example pin_memory(const Example& batch) {
  return {.data = pin_memory(batch.data), .target = pin_memory(batch.target)};
}

namespace {

class ChangedStream final : public BatchStream {
 public:
  ChangedStream(std::unique_ptr<BatchStream> stream, TensorChange change)
      : stream_(std::move(stream)), change_(std::move(change)) {}

  bool next(AnyBatch& batch) override {
    if (!stream_->next(batch)) return false;
    batch = batch.with_tensors(change_);
    return true;
  }
  bool is_last() const override { return stream_->is_last(); }

 private:
  std::unique_ptr<BatchStream> stream_;
  TensorChange change_;
};

}  // namespace

at::Tensor with_tensors(const at::Tensor& batch, const TensorChange& change) {
  return batch.defined() ? change(batch) : batch;
}

Example with_tensors(const Example& batch, const TensorChange& change) {
  return {with_tensors(batch.data, change), with_tensors(batch.target, change)};
}

std::unique_ptr<BatchStream> with_tensors(std::unique_ptr<BatchStream> stream, TensorChange change) {
  if (!change) return stream;
  return std::make_unique<ChangedStream>(std::move(stream), std::move(change));
}

}  // namespace lockstep
