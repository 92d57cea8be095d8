// Whatever counts optimizer steps, in every kind of loop: all that happens every n steps, and the rows of all
// monitors, are what a model of the loop says. Each loop is cut after its first epoch and goes on.
#include <cmath>

#include <gmock/gmock.h>

#include "train/memory_logger.h"
#include "train/model_checkpoint_fit.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAreArray;

constexpr std::int64_t kLoopEpochs = 3, kBatches = 5;
constexpr double kFactor = 0.5;

struct Loop {
  const char* name;
  AccumulationSchedule windows = 1;
  PartialWindow partial = PartialWindow::kAccumulated;
  std::vector<int> manual_steps = {};  // of the batches of an epoch; empty: automatic
};

const Loop kLoops[] = {
    {"one batch a step"},
    {"windows", 2},
    {"windows by epoch", {{0, 1}, {1, 3}}},
    {"windows as Lightning's", 3, PartialWindow::kLightning},
    {"carried windows", 3, PartialWindow::kCarry},
    {"carried windows by epoch", {{0, 4}, {1, 1}, {2, 3}}, PartialWindow::kCarry},
    {"manual", 1, PartialWindow::kAccumulated, {1, 1, 1, 1, 1}},
    {"several steps a batch", 1, PartialWindow::kAccumulated, {1, 2, 3, 2, 2}},
    {"batches without a step", 1, PartialWindow::kAccumulated, {0, 3, 0, 0, 1}},
};

// A micro-batch, as the loop is to run it.
struct Batch {
  bool opens = true, closes = true;
  std::int64_t steps_before = 0;
  std::int64_t steps = 0;           // of the optimizer, with those of this batch
  std::int64_t windows_before = 0;  // that are complete
};

std::vector<Batch> batches_of(const Loop& loop) {
  std::vector<Batch> all;
  std::int64_t done = 0, length = 1;
  Batch batch;
  for (std::int64_t number = 0; number < kLoopEpochs * kBatches; ++number) {
    const bool ends_epoch = (number + 1) % kBatches == 0;
    batch.windows_before += number > 0 && batch.closes;
    batch.opens = done == 0;
    if (batch.opens) length = loop.windows.at(number / kBatches);
    batch.closes = ++done == length || (ends_epoch && loop.partial != PartialWindow::kCarry);
    if (batch.closes) done = 0;
    batch.steps_before = batch.steps;
    if (loop.manual_steps.empty())
      batch.steps += batch.closes;
    else
      batch.steps += loop.manual_steps[static_cast<std::size_t>(number % kBatches)];
    all.push_back(batch);
  }
  return all;
}

// Steps after which something is due that comes every n steps: behind the batches that have done them.
std::vector<std::int64_t> due_after(const std::vector<Batch>& batches, std::int64_t every) {
  std::vector<std::int64_t> found;
  std::int64_t last = 0;
  for (const auto& batch : batches) {
    if (batch.steps - last < every) continue;
    last = batch.steps;
    found.push_back(last);
  }
  return found;
}

// EMAWeightAveraging counts from 0: one average behind a batch that has done such a step.
std::vector<std::int64_t> averaged_after(const std::vector<Batch>& batches, std::int64_t every) {
  std::vector<std::int64_t> found;
  for (const auto& batch : batches) {
    bool is_due = false;
    for (auto step = batch.steps_before; step < batch.steps; ++step) is_due = is_due || step % every == 0;
    if (is_due) found.push_back(batch.steps);
  }
  return found;
}

struct LoopedImpl : testing::SlopeImpl {
  LoopedImpl(const Loop& loop, int frequency) : loop_(loop), frequency_(frequency) {}
  bool automatic_optimization() const override { return loop_.manual_steps.empty(); }
  torch::Tensor training_step(const Example& batch, StepContext& step) override {
    step.log("train_loss", 1.0);
    if (automatic_optimization()) return (weight * batch.data.mean()).sum();
    for (int i = 0; i < loop_.manual_steps[static_cast<std::size_t>(step.batch_idx())]; ++i) {
      auto optimizer = step.manual_optimizer();
      optimizer.zero_grad();
      step.manual_backward(weight.sum());
      optimizer.step();
    }
    return {};
  }
  Optimizers configure_optimizers() override {
    return {.optimizer = SGD{.lr = 1.0},
            .lr_scheduler = LRScheduler{.scheduler = ExponentialLR{.gamma = kFactor},
                                        .interval = Interval::kStep,
                                        .frequency = frequency_}};
  }

 private:
  Loop loop_;
  int frequency_;
};

// The steps behind which averages were taken.
struct Averages final : EMAWeightAveraging {
  Averages(std::int64_t every, std::vector<std::int64_t>& taken)
      : EMAWeightAveraging({.update_every_n_steps = every}), taken_(taken) {}
  void on_train_batch_end(StepContext& step, const TrainOutput& output) override {
    const auto before = num_averaged();
    EMAWeightAveraging::on_train_batch_end(step, output);
    if (num_averaged() != before) taken_.push_back(step.global_step());
    rate = step.optimizers().front().optimizer->groups().front().lr;
  }
  double rate = 0;

 private:
  std::vector<std::int64_t>& taken_;
};

class ObservedWindows : public testing::ModelCheckpointTest {
 protected:
  std::vector<std::int64_t> saved_steps() const {
    std::vector<std::int64_t> steps;
    for (const auto& name : kept()) steps.push_back(std::stoll(name.substr(5)));
    std::ranges::sort(steps);
    return steps;
  }
  void run(const Loop& loop, int every) {
    fs::remove_all(run_dir());
    logger_ = std::make_shared<testing::MemoryLogger>();
    averaged_.clear();
    const auto cut = folder_ / "cut.ckpt";
    for (const std::int64_t epochs : {std::int64_t{1}, kLoopEpochs}) {
      auto chosen = options(epochs);
      const auto averages = std::make_shared<Averages>(every, averaged_);
      chosen.logger = logger_;
      chosen.log_every_n_steps = every;
      chosen.accumulate_grad_batches = loop.windows;
      chosen.partial_window = loop.partial;
      chosen.callbacks = {averages, std::make_shared<LearningRateMonitor>(),
                          std::make_shared<DeviceStatsMonitor>(), std::make_shared<ThroughputMonitor>(),
                          std::make_shared<ModelCheckpoint>(ModelCheckpointOptions{
                              .filename = "{step}", .save_top_k = -1, .every_n_train_steps = every})};
      Trainer trainer(chosen);
      trainer.fit(std::make_shared<LoopedImpl>(loop, every), batches(kBatches), {},
                  epochs == 1 ? "" : cut.string());
      if (epochs == 1) trainer.save_checkpoint(cut);
      rate_ = averages->rate;
    }
  }
  // Numbers of the rows that have the metric.
  std::vector<std::int64_t> rows(const std::string& metric) const {
    std::vector<std::int64_t> found;
    for (const auto& row : logger_->rows)
      if (row.starts_with(metric + "@")) found.push_back(std::stoll(row.substr(metric.size() + 1)));
    return found;
  }
  template <class Wanted>
  static std::vector<std::int64_t> rows_of(const std::vector<Batch>& batches, int every, Wanted wanted) {
    std::vector<std::int64_t> found;
    for (const auto& batch : batches)
      if ((batch.windows_before + 1) % every == 0 && wanted(batch)) found.push_back(batch.windows_before);
    return found;
  }

  std::shared_ptr<testing::MemoryLogger> logger_;
  std::vector<std::int64_t> averaged_;
  double rate_ = 0;
};

TEST_F(ObservedWindows, CountStepsAsTheLoopDoesThem) {
  for (const auto& loop : kLoops) {
    for (const int every : {2, 3}) {
      SCOPED_TRACE(std::string(loop.name) + ", every " + std::to_string(every));
      run(loop, every);
      const auto batches = batches_of(loop);
      const auto opening = rows_of(batches, every, [](const auto& batch) { return batch.opens; });
      const auto closing = rows_of(batches, every, [](const auto& batch) { return batch.closes; });
      const auto stepping =
          rows_of(batches, every, [](const auto& batch) { return batch.steps != batch.steps_before; });
      const auto all = rows_of(batches, every, [](const auto&) { return true; });
      EXPECT_THAT(saved_steps(), ElementsAreArray(due_after(batches, every)));
      EXPECT_THAT(rows("train_loss"), ElementsAreArray(closing));
      EXPECT_THAT(rows("lr-SGD"), ElementsAreArray(opening));
      EXPECT_THAT(rows("DeviceStatsMonitor.on_train_batch_start/cpu_percent"), ElementsAreArray(all));
      EXPECT_THAT(rows("DeviceStatsMonitor.on_train_batch_end/cpu_percent"), ElementsAreArray(all));
      EXPECT_THAT(rows("train/batches"), ElementsAreArray(stepping));
      EXPECT_THAT(averaged_, ElementsAreArray(averaged_after(batches, every)));
      const auto advanced = loop.manual_steps.empty() ? batches.back().steps / every : 0;
      EXPECT_EQ(rate_, std::pow(kFactor, advanced));
    }
  }
}

}  // namespace
}  // namespace lockstep
