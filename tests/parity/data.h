// The data of a golden case: which samples, in which order.
#pragma once

#include "case.h"

namespace parity {

/// Samples with their numbers: rows of the digits, or windows of the text.
struct Rows {
  at::Tensor x;
  at::Tensor y;
  std::vector<std::int64_t> indices;
};

inline std::int64_t batch_size(const Rows& rows) { return static_cast<std::int64_t>(rows.indices.size()); }

inline Rows with_tensors(const Rows& rows, const ls::TensorChange& change) {
  return {.x = change(rows.x), .y = change(rows.y), .indices = rows.indices};
}

/// The loaders of one run.
class Data {
 public:
  explicit Data(const Case& golden);

  ls::Loader<Rows> training() const;
  /// Empty when the case has no validation.
  std::optional<ls::Loader<Rows>> validation() const;
  /// All samples to evaluate on in one batch, so that their mean is summed as the peers summed it.
  ls::Loader<Rows> evaluation() const;

 private:
  const Case& golden_;
  ls::DatasetPtr<Rows> samples_;
};

}  // namespace parity
