// DeviceStatsMonitor and ThroughputMonitor: which rows the loggers get, and when.
#include <algorithm>

#include <gmock/gmock.h>

#include "support/expect_error.h"
#include "train/memory_logger.h"
#include "train/slope.h"

namespace lockstep {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Gt;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MemoryLogger;
using ::testing::Not;

class Monitors : public testing::SlopeTest {
 protected:
  TrainerOptions watched_by(std::shared_ptr<Callback> callback, int log_every_n_steps = 1) {
    auto chosen = options();
    chosen.logger = logger_;
    chosen.log_every_n_steps = log_every_n_steps;
    chosen.callbacks = {std::move(callback)};
    return chosen;
  }
  // The rows whose names begin so, without that beginning.
  std::vector<std::string> rows(const std::string& prefix) const {
    std::vector<std::string> found;
    for (const auto& row : logger_->rows)
      if (row.starts_with(prefix)) found.push_back(row.substr(prefix.size()));
    return found;
  }
  std::shared_ptr<MemoryLogger> logger_ = std::make_shared<MemoryLogger>();
};

TEST_F(Monitors, DeviceStatsAroundEachLoggedBatch) {
  Trainer(watched_by(std::make_shared<DeviceStatsMonitor>(), 2)).fit(model_, batches(4), batches(1));
  EXPECT_THAT(rows("DeviceStatsMonitor.on_train_batch_start/"),
              ElementsAre("cpu_percent@1", "cpu_vm_percent@1", "cpu_swap_percent@1", "cpu_percent@3",
                          "cpu_vm_percent@3", "cpu_swap_percent@3"));
  EXPECT_THAT(rows("DeviceStatsMonitor.on_train_batch_end/cpu_percent"), ElementsAre("@1", "@3"));
  EXPECT_THAT(rows("DeviceStatsMonitor.on_validation_batch_end/cpu_percent"), ElementsAre("@3"));
}

TEST_F(Monitors, DeviceStatsOfTests) {
  Trainer(watched_by(std::make_shared<DeviceStatsMonitor>())).test(model_, batches(2));
  EXPECT_THAT(rows("DeviceStatsMonitor.on_test_batch_start/cpu_percent"), ElementsAre("@0", "@0"));
}

TEST_F(Monitors, DeviceStatsCanBeSwitchedOff) {
  const auto monitor = std::make_shared<DeviceStatsMonitor>(DeviceStatsMonitorOptions{.cpu_stats = false});
  Trainer(watched_by(monitor)).fit(model_, batches(2));
  EXPECT_THAT(rows("DeviceStatsMonitor"), IsEmpty());
}

TEST_F(Monitors, DeviceStatsNeedALogger) {
  auto chosen = watched_by(std::make_shared<DeviceStatsMonitor>());
  chosen.logger = false;
  test::expect_error<ConfigError>([&] { Trainer(chosen).fit(model_, batches(1)); },
                                  {"DeviceStatsMonitor", "logger"});
}

TEST_F(Monitors, ThroughputOfTrainingAndValidation) {
  const auto monitor = std::make_shared<ThroughputMonitor>(ThroughputMonitorOptions{.window_size = 3});
  Trainer(watched_by(monitor)).fit(model_, batches(4), batches(2));
  EXPECT_THAT(rows("train/batches"), ElementsAre("@0", "@1", "@2", "@3"));
  EXPECT_THAT(rows("train/device/samples_per_sec"), ElementsAre("@2", "@3"));  // the window is full
  EXPECT_THAT(rows("validate/samples"), ElementsAre("@1", "@2"));
  EXPECT_THAT(logger_->rows, Not(Contains(HasSubstr("flops"))));
  EXPECT_THAT(rows("train/batches_per_sec"), IsEmpty());  // of one rank its own figures are all
}

TEST_F(Monitors, ThroughputOfTestAndPredict) {
  Trainer trainer(watched_by(std::make_shared<ThroughputMonitor>(), 2));
  trainer.test(model_, batches(4));
  trainer.predict(model_, batches(2));
  EXPECT_THAT(rows("test/batches"), ElementsAre("@2", "@4"));
  EXPECT_THAT(rows("predict/time"), ElementsAre("@2"));
}

TEST_F(Monitors, ThroughputIsLoggedWhenTheOptimizerHasStepped) {
  auto chosen = watched_by(std::make_shared<ThroughputMonitor>());
  chosen.accumulate_grad_batches = 2;
  Trainer(chosen).fit(model_, batches(4));
  EXPECT_THAT(rows("train/batches"), ElementsAre("@0", "@1"));
}

TEST_F(Monitors, ThroughputCountsWhatItIsTold) {
  const auto monitor = std::make_shared<ThroughputMonitor>(ThroughputMonitorOptions{
      .batch_size_fn = [](const AnyBatch& batch) { return 2 * batch.size(); },
      .length_fn = [](const AnyBatch& batch) { return 10 * batch.get<Example>().data.size(0); }});
  Trainer(watched_by(monitor, 3)).fit(model_, batches(3));
  const auto value = [&](const std::string& row) {
    return logger_->values.at(
        static_cast<std::size_t>(std::ranges::find(logger_->rows, row) - logger_->rows.begin()));
  };
  EXPECT_EQ(value("train/samples@2"), 6);
  EXPECT_EQ(value("train/lengths@2"), 30);
}

TEST_F(Monitors, ThroughputOfOperationsThatTheModuleTells) {
  struct Counted : testing::SlopeImpl, FlopsPerBatch {
    double flops_per_batch() const override { return 1e6; }
  };
  const auto monitor =
      std::make_shared<ThroughputMonitor>(ThroughputMonitorOptions{.available_flops = 1e9, .window_size = 2});
  Trainer(watched_by(monitor)).fit(std::make_shared<Counted>(), batches(2));
  EXPECT_THAT(rows("train/device/flops_per_sec"), ElementsAre("@1"));
  EXPECT_THAT(rows("train/device/mfu"), ElementsAre("@1"));
}

// Validation that takes long is not in training's time.
TEST_F(Monitors, ThroughputOfTrainingIsWithoutValidation) {
  struct Slow : testing::SlopeImpl {
    void validation_step(const Example&, StepContext&) override {
      std::this_thread::sleep_for(std::chrono::seconds(2));
    }
  };
  auto chosen = watched_by(std::make_shared<ThroughputMonitor>());
  chosen.max_epochs = 2;
  Trainer(chosen).fit(std::make_shared<Slow>(), batches(1), batches(1));
  std::vector<double> times;
  for (std::size_t i = 0; i < logger_->rows.size(); ++i)
    if (logger_->rows[i].starts_with("train/time@")) times.push_back(logger_->values[i]);
  ASSERT_EQ(times.size(), 2U);
  EXPECT_LT(times[1] - times[0], 2);
}

}  // namespace
}  // namespace lockstep
