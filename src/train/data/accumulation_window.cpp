#include "train/data/accumulation_window.h"

#include <algorithm>
#include <limits>

namespace lockstep::detail {
namespace {

constexpr auto kMost = std::numeric_limits<std::int64_t>::max();

std::int64_t sum_or_most(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? kMost : sum;
}

std::int64_t product_or_most(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? kMost : product;
}

// Counts the steps of many micro-batches at once.
class StepCount {
 public:
  explicit StepCount(const OpenWindow& open) : open_(open) {}

  // Runs micro-batches; windows that open among them have this length.
  void run(std::int64_t micro_batches, std::int64_t length) {
    if (open_.done > 0) {
      const auto missing = open_.length - open_.done;
      const auto taken = std::min(missing, micro_batches);
      micro_batches -= taken;
      open_.done += taken;
      if (taken < missing) return;
      open_.done = 0;
      steps_ = sum_or_most(steps_, 1);
    }
    steps_ = sum_or_most(steps_, micro_batches / length);
    open_ = {.done = micro_batches % length, .length = length};
  }
  void close() {
    if (open_.done > 0) steps_ = sum_or_most(steps_, 1);
    open_ = {};
  }
  // Runs whole epochs at whose ends windows close.
  void run_epochs(std::int64_t epochs, std::int64_t micro_batches, std::int64_t length) {
    const auto each = micro_batches / length + (micro_batches % length == 0 ? 0 : 1);
    steps_ = sum_or_most(steps_, product_or_most(epochs, each));
  }
  std::int64_t steps() const { return steps_; }

 private:
  OpenWindow open_;
  std::int64_t steps_ = 0;
};

}  // namespace

OpenWindow WindowRule::holding(const OpenWindow& open, const MicroBatch& at) const {
  if (open.done > 0) return open;
  const std::int64_t length = schedule_->at(at.epoch);
  const bool is_cut_short = partial_ == PartialWindow::kAccumulated && knows_end_;
  return {.length = is_cut_short ? std::min(length, at.epoch_batches - at.index) : length};
}

Window WindowRule::place(const OpenWindow& open, const MicroBatch& at) const {
  const auto window = holding(open, at);
  const bool ends_epoch = !carries() && at.index + 1 == at.epoch_batches;
  return {.first = window.done == 0,
          .last = window.done + 1 == window.length || ends_epoch,
          .divisor = static_cast<double>(window.length)};
}

OpenWindow WindowRule::behind(const OpenWindow& open, const MicroBatch& at) const {
  if (place(open, at).last) return {};
  const auto window = holding(open, at);
  return {.done = window.done + 1, .length = window.length};
}

bool WindowRule::can_complete(const OpenWindow& open, const MicroBatch& at) const {
  if (open.done == 0 || partial_ != PartialWindow::kAccumulated || !knows_end_) return true;
  return open.length - open.done <= at.epoch_batches - at.index;
}

// `epochs` may be huge, so epochs with windows of one length are counted together.
std::int64_t WindowRule::steps(const OpenWindow& open, const MicroBatch& at, std::int64_t epochs) const {
  if (at.epoch >= epochs) return 0;
  const auto left = std::max<std::int64_t>(0, at.epoch_batches - at.index);
  StepCount count(left > 0 ? open : behind_epoch(open));
  count.run(left, schedule_->at(at.epoch));
  if (!carries()) count.close();
  for (auto epoch = at.epoch + 1; epoch < epochs;) {
    const auto end = std::min(epochs, schedule_->next_change(epoch));
    const std::int64_t length = schedule_->at(epoch);
    if (carries()) count.run(product_or_most(end - epoch, at.epoch_batches), length);
    if (!carries()) count.run_epochs(end - epoch, at.epoch_batches, length);
    epoch = end;
  }
  return count.steps();
}

}  // namespace lockstep::detail
