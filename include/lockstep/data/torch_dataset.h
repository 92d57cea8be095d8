// torch::data data sets as lockstep ones.
#pragma once

#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <torch/data/datasets/base.h>

#include <lockstep/data/dataset.h>

namespace lockstep {
namespace detail {

/// @throws DataError when torch does not tell the size
LOCKSTEP_API std::int64_t known_size(std::optional<std::size_t> size);

/// Stacks samples to a batch; an empty list of targets gives an undefined target.
LOCKSTEP_API Example stack(const std::vector<at::Tensor>& data, const std::vector<at::Tensor>& targets);

template <class D>
class TorchDataset final : public Dataset<Example> {
 public:
  explicit TorchDataset(D dataset) : dataset_(std::move(dataset)), size_(known_size(dataset_.size())) {}

  std::int64_t size() const override { return size_; }

  Example get_batch(std::span<const std::int64_t> indices) const override {
    const std::vector<std::size_t> request(indices.begin(), indices.end());
    std::vector<at::Tensor> data;
    std::vector<at::Tensor> targets;
    for (auto& sample : get_samples(request)) {
      data.push_back(std::move(sample.data));
      if constexpr (requires { sample.target; }) {
        targets.push_back(std::move(sample.target));
      }
    }
    return stack(data, targets);
  }

 private:
  auto get_samples(const std::vector<std::size_t>& request) const {
    const std::scoped_lock lock(mutex_);
    return dataset_.get_batch(request);
  }

  mutable std::mutex mutex_;
  mutable D dataset_;  // torch's get_batch is not const, nor need it be thread-safe
  std::int64_t size_;
};

}  // namespace detail

/// Any torch::data dataset whose get_batch gives a vector of torch::data::Example<> or TensorExample, such
/// as torch::data::datasets::MNIST or one that you derived from Dataset<Self>. Samples are stacked. Its
/// get_batch is called by one thread at a time.
/// @throws DataError when it does not know its size
template <class D>
DatasetPtr<Example> from_torch(D dataset) {
  return std::make_shared<detail::TorchDataset<D>>(std::move(dataset));
}

}  // namespace lockstep
