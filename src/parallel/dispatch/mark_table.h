// Which marks stand on which storage, for all threads of the process.
#pragma once

#include <ATen/core/Tensor.h>

#include <shared_mutex>
#include <unordered_map>

#include <c10/util/SmallVector.h>

#include <lockstep/parallel/dispatch/tensor_mark.h>

namespace lockstep::detail {

/// The uses of one operator; more than a few allocate.
using TensorUses = c10::SmallVector<TensorUse, 8>;

/// Marks by storage, since a view of a marked tensor is another tensor on the same storage. Thread-safe.
class MarkTable {
 public:
  void add(const c10::StorageImpl* storage, const TensorMark* mark);

  /// Returns whether no mark of the same tensor is left.
  bool remove(const c10::StorageImpl* storage, const TensorMark* mark);

  /// Appends the marks on `storage` to `uses`.
  void find(const c10::StorageImpl* storage, bool is_written, TensorUses& uses) const;

 private:
  mutable std::shared_mutex mutex_;  // guards all below
  std::unordered_map<const c10::StorageImpl*, c10::SmallVector<const TensorMark*, 1>> marks_;
};

/// The process's table. Never destroyed: operators may run until the very end.
MarkTable& mark_table();

}  // namespace lockstep::detail
