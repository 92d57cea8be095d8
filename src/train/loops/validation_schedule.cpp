// After which training batches a fit validates.
#include "train/loops/fit_loop.h"

#include <algorithm>
#include <string>

#include <lockstep/base/error.h>

namespace lockstep::detail {
namespace {

[[noreturn]] void refuse(std::string expected, const ValCheckInterval& interval, std::string hint = {}) {
  throw ConfigError("train", {.what = "val_check_interval",
                              .expected = std::move(expected),
                              .got = interval.print(),
                              .hint = std::move(hint)});
}

}  // namespace

ValidationSchedule::ValidationSchedule(const RunSetup& setup, const RunData& data,
                                       const FitProgress& progress, std::int64_t epoch_batches)
    : setup_(setup), data_(data), progress_(progress) {
  set_epoch_batches(epoch_batches);
}

void ValidationSchedule::set_epoch_batches(std::int64_t epoch_batches) {
  if (data_.val.empty()) return;
  const auto& interval = setup_.options.val_check_interval;
  check(epoch_batches);
  if (const auto* time = std::get_if<std::chrono::milliseconds>(&interval.value())) {
    if (!clock_) clock_.emplace(*time);
  } else if (const auto* number = std::get_if<std::int64_t>(&interval.value())) {
    batches_ = *number;
  } else {
    const double batches = static_cast<double>(epoch_batches) * std::get<double>(interval.value());
    batches_ = std::max<std::int64_t>(1, static_cast<std::int64_t>(batches));
  }
}

void ValidationSchedule::check(std::int64_t epoch_batches) const {
  const auto& interval = setup_.options.val_check_interval;
  const bool is_fraction = std::holds_alternative<double>(interval.value()) && !interval.is_whole_epoch();
  if (is_fraction && epoch_batches == kUnknownLength)
    refuse(
        "1.0, a number of batches or a time, since the training data do not say how many batches they have",
        interval);
  const auto* number = std::get_if<std::int64_t>(&interval.value());
  if (number != nullptr && *number > epoch_batches && setup_.options.check_val_every_n_epoch)
    refuse("at most the " + std::to_string(epoch_batches) + " batches of an epoch", interval,
           "check_val_every_n_epoch null counts batches across epochs");
}

bool ValidationSchedule::in_epoch() const {
  const auto every = setup_.options.check_val_every_n_epoch;
  return !every || (progress_.epoch + 1) % *every == 0;
}

bool ValidationSchedule::is_due(std::int64_t batch_idx, std::int64_t epoch_batches) {
  if (!data_.val.empty() && in_epoch() && clock_) return clock_->is_due(setup_.communicator());
  return was_due(batch_idx, epoch_batches);
}

bool ValidationSchedule::was_due(std::int64_t batch_idx, std::int64_t epoch_batches) const {
  if (data_.val.empty() || !in_epoch() || clock_) return false;
  if (setup_.options.val_check_interval.is_whole_epoch()) return batch_idx + 1 >= epoch_batches;
  const bool across_epochs = !setup_.options.check_val_every_n_epoch;
  return (batch_idx + 1 + (across_epochs ? progress_.batches_before : 0)) % batches_ == 0;
}

void ValidationSchedule::restart() {
  if (clock_) clock_->restart();
}

}  // namespace lockstep::detail
