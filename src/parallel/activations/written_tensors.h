// What a part of a model writes to that was there before it ran.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <ATen/core/Tensor.h>

#include "parallel/dispatch/operator_watcher.h"

namespace lockstep::detail {

/// Follows operators that write, running statistics of batch normalisation included, and keeps what the
/// memory held before each of them: a second run can begin where the first one did, and leave no trace.
class WrittenTensors {
 public:
  /// During the first run. What an operator gives is no memory that was there before.
  class Watch final : public OperatorWatcher {
   public:
    explicit Watch(WrittenTensors& tensors) : tensors_(tensors) {}
    void before(OperatorCall& call) override;
    void after(OperatorCall& call) override;

   private:
    WrittenTensors& tensors_;
    std::unordered_set<const c10::StorageImpl*> outer_, made_;
  };

  /// The values of before the first run, as long as it lives; then those of now again. Autograd does not take
  /// either for a write.
  class ScopedBefore {
   public:
    explicit ScopedBefore(const WrittenTensors& tensors);
    ~ScopedBefore();
    ScopedBefore(const ScopedBefore&) = delete;
    ScopedBefore& operator=(const ScopedBefore&) = delete;

   private:
    const WrittenTensors& tensors_;
    std::vector<at::Tensor> now_;
    std::vector<std::uint32_t> versions_;
  };

  /// Whether it lies in memory that was written to.
  bool has_memory_of(const at::Tensor& tensor) const;

 private:
  struct Write {
    at::Tensor tensor, before;
    c10::VariableVersion version;
    std::size_t bytes = 0;  // of the storage, which a sharded model may have let go meanwhile
  };

  void keep_before_write(const at::Tensor& tensor);

  std::vector<Write> writes_;  // once for each place, in order
  std::unordered_map<const c10::StorageImpl*, std::vector<std::size_t>> by_storage_;
};

}  // namespace lockstep::detail
