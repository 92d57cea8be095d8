// What a step says of a value that it logs.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>
#include <lockstep/device/scalar.h>

namespace lockstep {

/// How the values of an epoch become one.
enum class ReduceFx { kMean, kSum, kMin, kMax };

/// Options of log(); names and defaults are Lightning's.
struct LogOptions {
  bool prog_bar = false;              ///< show it in the progress bar
  bool logger = true;                 ///< write it to the loggers
  std::optional<bool> on_step = {};   ///< log the value of each step; default: yes in training_step, else no
  std::optional<bool> on_epoch = {};  ///< log one value per epoch; default: no in training_step, else yes
  ReduceFx reduce_fx = ReduceFx::kMean;
  bool sync_dist = false;                       ///< reduce over ranks when it is written or monitored
  std::optional<std::int64_t> batch_size = {};  ///< weight in the epoch's mean; default: the batch's samples
  /// Log it as NAME/dataloader_idx_N where a stage has several loaders; when false, all of them make one
  /// value.
  bool add_dataloader_idx = true;

  bool operator==(const LogOptions&) const = default;
};

/// A number to log: a double or a tensor of one element, of which no graph is kept.
class LOCKSTEP_API LogValue {
 public:
  LogValue(double value) : value_(value) {}
  /// @throws ConfigError when the tensor has not exactly one element
  LogValue(const at::Tensor& tensor);
  LogValue(Scalar value) : value_(std::move(value)) {}
  const Scalar& value() const { return value_; }

 private:
  Scalar value_;
};

}  // namespace lockstep
