// Collectives on tensors of any strides, made of collectives on contiguous ones.
#pragma once

#include "comm/collectives/collective.h"

namespace lockstep::detail {

/// A collective and its twin whose tensors are contiguous: the same ones where they are so already.
class DenseTwin {
 public:
  explicit DenseTwin(const Collective& collective);

  const Collective& get() const { return twin_; }

  /// Writes the twin's results to the original's tensors.
  void copy_back() const;

 private:
  const Collective& original_;
  Collective twin_;
};

}  // namespace lockstep::detail
