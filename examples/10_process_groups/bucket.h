// A bucket: gradients that are averaged at once, in one flat tensor.
#pragma once

#include <lockstep/lockstep.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tutorial {

namespace ls = lockstep;

class Bucket {
 public:
  explicit Bucket(std::vector<torch::Tensor> parameters) : parameters_(std::move(parameters)) {
    std::vector<std::int64_t> sizes;
    std::int64_t elements = 0;
    for (const auto& parameter : parameters_) elements += sizes.emplace_back(parameter.numel());
    flat_ = torch::empty({elements}, parameters_.front().options().requires_grad(false));
    pieces_ = flat_.split_with_sizes(sizes);
    missing_ = parameters_.size();
  }

  const std::vector<torch::Tensor>& parameters() const { return parameters_; }
  bool is_full() const { return missing_ == 0; }

  /// Copies the gradient of parameter number `place` into the flat tensor.
  void take(std::size_t place) {
    pieces_[place].copy_(parameters_[place].grad().flatten());
    --missing_;
  }

  /// Starts to average; returns at once.
  void start(const ls::Communicator& group) { work_ = group.all_reduce_async(flat_, ls::ReduceOp::kAvg); }

  /// Waits for the averages, and copies them back.
  void finish() {
    work_.wait();
    for (std::size_t place = 0; place < parameters_.size(); ++place)
      parameters_[place].mutable_grad().copy_(pieces_[place].view_as(parameters_[place]));
    missing_ = parameters_.size();
  }

 private:
  std::vector<torch::Tensor> parameters_, pieces_;
  torch::Tensor flat_;
  std::size_t missing_;
  ls::Work work_;
};

/// Buckets of `cap_bytes` and more, in the order in which gradients come: the last layer's first.
inline std::vector<Bucket> make_buckets(std::vector<torch::Tensor> parameters, std::size_t cap_bytes) {
  std::vector<Bucket> buckets;
  std::vector<torch::Tensor> open;
  std::size_t bytes = 0;
  for (; !parameters.empty(); parameters.pop_back()) {
    bytes += open.emplace_back(parameters.back()).nbytes();
    if (bytes < cap_bytes && parameters.size() > 1) continue;
    buckets.emplace_back(std::exchange(open, {}));
    bytes = 0;
  }
  return buckets;
}

}  // namespace tutorial
