#include "parallel/dispatch/mark_table.h"

#include <algorithm>
#include <mutex>

namespace lockstep::detail {

void MarkTable::add(const c10::StorageImpl* storage, const TensorMark* mark) {
  const std::unique_lock lock(mutex_);
  marks_[storage].push_back(mark);
}

bool MarkTable::remove(const c10::StorageImpl* storage, const TensorMark* mark) {
  const std::unique_lock lock(mutex_);
  const auto found = marks_.find(storage);
  auto& marks = found->second;
  marks.erase(std::remove(marks.begin(), marks.end(), mark), marks.end());
  const auto is_same = [mark](const TensorMark* other) { return other->tensor().is_same(mark->tensor()); };
  const bool was_last = std::none_of(marks.begin(), marks.end(), is_same);
  if (marks.empty()) marks_.erase(found);
  return was_last;
}

void MarkTable::find(const c10::StorageImpl* storage, bool is_written, TensorUses& uses) const {
  const std::shared_lock lock(mutex_);
  const auto found = marks_.find(storage);
  if (found == marks_.end()) return;
  for (const auto* mark : found->second) uses.push_back({mark, is_written});
}

MarkTable& mark_table() {
  static auto* table = new MarkTable;
  return *table;
}

}  // namespace lockstep::detail
