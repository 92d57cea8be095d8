// Data sets that lie in memory.
#pragma once

#include <lockstep/data/dataset.h>
#include <lockstep/data/example.h>

namespace lockstep {

/// Row i of `data` and of `target` is sample i.
class LOCKSTEP_API TensorDataset final : public Dataset<Example> {
 public:
  /// `data` [n, ...]; `target` [n, ...] or undefined. Shares the tensors' memory where it is contiguous.
  /// @throws DataError when `data` is undefined or a scalar, or the numbers of rows differ
  explicit TensorDataset(const at::Tensor& data, const at::Tensor& target = {});

  std::int64_t size() const override { return data_.size(0); }
  /// @throws DataError naming an index that is out of range
  Example get_batch(std::span<const std::int64_t> indices) const override;

  const at::Tensor& data() const { return data_; }
  const at::Tensor& target() const { return target_; }

 private:
  at::Tensor data_;
  at::Tensor target_;
};

/// A TensorDataset, to be passed on.
LOCKSTEP_API DatasetPtr<Example> tensor_dataset(const at::Tensor& data, const at::Tensor& target = {});

}  // namespace lockstep
