// Between what data sets give and what loaders hand out: batches still to be made.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include <lockstep/data/any_loader.h>

namespace lockstep::detail {

/// Makes one batch, on any thread, beside others.
using BatchTask = std::function<AnyBatch()>;

/// Gives the tasks of one epoch's batches, in order.
class BatchSource {
 public:
  virtual ~BatchSource() = default;
  /// The next one; empty at the end. Called by one thread at a time; the tasks may outlive the source.
  virtual BatchTask next() = 0;
};

}  // namespace lockstep::detail
