#include "train/logging/metric_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <map>

#include <lockstep/base/error.h>
#include <lockstep/metrics/aggregation.h>
#include <lockstep/testing/run_ranks.h>

#include "support/expect_error.h"

namespace lockstep::detail {
namespace {

class MetricLogTest : public ::testing::Test {
 protected:
  MetricBoard board_;
  MetricLog log_{board_};
  Communicator alone_;
};

TEST_F(MetricLogTest, WeighsTheEpochsMeanByBatchSize) {
  log_.set_scope(kEvalStepLog);
  log_.set_batch_size(3);
  log_.log("loss", 1.0, {});
  log_.set_batch_size(1);
  log_.log("loss", 5.0, {});
  EXPECT_EQ(log_.finish_epoch(alone_), (MetricRow{{"loss", 2.0}}));
  EXPECT_EQ(board_.callback.at("loss"), 2.0);
}

TEST_F(MetricLogTest, AGivenBatchSizeWins) {
  log_.set_scope(kEvalStepLog);
  log_.log("loss", 1.0, {.batch_size = 1});
  log_.log("loss", 4.0, {.batch_size = 2});
  EXPECT_EQ(log_.finish_epoch(alone_), (MetricRow{{"loss", 3.0}}));
}

TEST_F(MetricLogTest, SumsMinimaAndMaxima) {
  log_.set_scope(kEvalStepLog);
  log_.set_batch_size(7);
  for (const double value : {2.0, -1.0, 4.0}) {
    log_.log("sum", value, {.reduce_fx = ReduceFx::kSum});
    log_.log("min", value, {.reduce_fx = "min"});
    log_.log("max", value, {.reduce_fx = ReduceFx::kMax});
    log_.log("max", value, {.reduce_fx = "max"});
  }
  EXPECT_EQ(log_.finish_epoch(alone_), (MetricRow{{"sum", 5.0}, {"min", -1.0}, {"max", 4.0}}));
  test::expect_error<ConfigError>([&] { log_.log("x", 1.0, {.reduce_fx = "median"}); },
                                  {"median", "mean", "sum", "max"});
}

TEST_F(MetricLogTest, ForksTheNameOfAMetricPerStepAndEpoch) {
  log_.set_scope(kTrainStepLog);
  log_.log("loss", 2.0, {.prog_bar = true, .on_epoch = true});
  EXPECT_EQ(log_.step_row(), (MetricRow{{"loss_step", 2.0}}));
  log_.log("loss", 4.0, {.prog_bar = true, .on_epoch = true});
  EXPECT_EQ(board_.callback, (Metrics{{"loss", 4.0}, {"loss_step", 4.0}}));
  EXPECT_EQ(log_.finish_epoch(alone_), (MetricRow{{"loss_epoch", 3.0}}));
  EXPECT_EQ(board_.callback, (Metrics{{"loss", 3.0}, {"loss_epoch", 3.0}, {"loss_step", 4.0}}));
  EXPECT_EQ(board_.progress_bar, (Metrics{{"loss_epoch", 3.0}, {"loss_step", 4.0}}));
}

TEST_F(MetricLogTest, OfAnEvaluationCallbacksSeeWhatTheEpochHasComeTo) {
  MetricLog log(board_, /*measures=*/true);
  log.set_scope(kEvalStepLog);
  for (const double value : {2.0, 4.0}) {
    log.log("both", value, {.prog_bar = true, .on_step = true, .on_epoch = true});
    log.log("step", value, {.on_step = true, .on_epoch = false});
  }
  EXPECT_EQ(log.step_row(), (MetricRow{{"both_step", 4.0}, {"step", 4.0}}));
  EXPECT_EQ(board_.callback, Metrics{});
  EXPECT_EQ(log.finish_epoch(alone_), (MetricRow{{"both_epoch", 3.0}}));
  EXPECT_EQ(board_.callback, (Metrics{{"both", 3.0}, {"both_epoch", 3.0}}));
  EXPECT_EQ(board_.progress_bar, (Metrics{{"both_epoch", 3.0}, {"both_step", 4.0}}));
}

TEST_F(MetricLogTest, WritesAStepValueOnceAndOnlyToLoggers) {
  log_.set_scope(kTrainStepLog);
  log_.log("shown", 1.0, {});
  log_.log("hidden", 1.0, {.logger = false});
  EXPECT_EQ(log_.step_row(), (MetricRow{{"shown", 1.0}}));
  EXPECT_EQ(log_.step_row(), MetricRow{});
}

TEST_F(MetricLogTest, RefusesWhatTheHookDoesNotAllow) {
  test::expect_error<ConfigError>([&] { log_.log("x", 1, {}); }, {"log(\"x\")", "hook"});
  log_.set_scope(kEpochLog);
  test::expect_error<ConfigError>([&] { log_.log("x", 1, {.on_step = true}); }, {"log(\"x\")", "on_step"});
  test::expect_error<ConfigError>([&] { log_.log("x", 1, {.on_epoch = false}); },
                                  {"log(\"x\")", "both false"});
}

TEST_F(MetricLogTest, RefusesOneNameWithTwoMeanings) {
  log_.set_scope(kTrainStepLog);
  log_.log("x", 1, {.on_epoch = true});
  log_.log("x", 1, {.on_epoch = true, .batch_size = 3});
  test::expect_error<ConfigError>([&] { log_.log("x", 1, {.reduce_fx = ReduceFx::kMax}); },
                                  {"log(\"x\")", "before"});
  test::expect_error<ConfigError>([&] { log_.log("y", 1, {.batch_size = 0}); }, {"log(\"y\")", ">= 1"});
}

TEST(LogValueTest, TakesSingleNumbersOnly) {
  EXPECT_EQ(LogValue(torch::tensor(2.5F)).value(), 2.5);
  EXPECT_EQ(LogValue(torch::tensor(7)).value(), 7.0);
  test::expect_error<ConfigError>([] { LogValue value(torch::zeros({3})); }, {"one element", "3 elements"});
  test::expect_error<ConfigError>([] { LogValue value{at::Tensor()}; }, {"undefined"});
}

// Ranks saw 1 and 3 samples, logged in another order: the mean over all samples is wanted.
TEST(MetricLogRanks, SyncDistIsTheMeanOverAllSamplesOfAllRanks) {
  testing::run_ranks(2, [](const Communicator& communicator) {
    MetricBoard board;
    MetricLog log(board);
    log.set_scope(kEvalStepLog);
    const bool first = communicator.rank() == 0;
    log.set_batch_size(first ? 1 : 3);
    if (!first) log.log("top", 9.0, {.reduce_fx = ReduceFx::kMax, .sync_dist = true});
    log.log("loss", first ? 2.0 : 6.0, {.sync_dist = true});
    log.log("own", communicator.rank(), {});
    if (first) log.log("top", 4.0, {.reduce_fx = ReduceFx::kMax, .sync_dist = true});
    log.finish_epoch(communicator);
    EXPECT_EQ(board.callback.at("loss"), 5.0);
    EXPECT_EQ(board.callback.at("top"), 9.0);
    EXPECT_EQ(board.callback.at("own"), communicator.rank());
  });
}

TEST(MetricLogRanks, ARankWithoutBatchesAdoptsTheNames) {
  testing::run_ranks(3, [](const Communicator& communicator) {
    MetricBoard board;
    MetricLog log(board);
    log.set_scope(kEvalStepLog);
    if (communicator.rank() < 2) log.log("loss", 1.0 + communicator.rank(), {.sync_dist = true});
    log.finish_epoch(communicator);
    EXPECT_EQ(board.callback.at("loss"), 1.5);
  });
}

TEST(MetricLogRanks, RanksMayLogOtherMetrics) {
  testing::run_ranks(2, [](const Communicator& communicator) {
    MetricBoard board;
    MetricLog log(board);
    log.set_scope(kTrainStepLog);
    const bool first = communicator.rank() == 0;
    const LogOptions options{.on_epoch = true, .reduce_fx = ReduceFx::kMax, .sync_dist = true};
    log.log(first ? "a" : "b", first ? 1.0 : 100.0, options);
    log.log("both", communicator.rank(), options);
    log.sync_step_values(communicator);
    EXPECT_EQ(log.step_row(), first ? (MetricRow{{"a_step", 1.0}, {"both_step", 1.0}, {"b_step", 100.0}})
                                    : (MetricRow{{"b_step", 100.0}, {"both_step", 1.0}, {"a_step", 1.0}}));
    log.finish_epoch(communicator);
    EXPECT_EQ(board.callback.at("a_epoch"), 1.0);
    EXPECT_EQ(board.callback.at("b_epoch"), 100.0);
  });
}

TEST_F(MetricLogTest, NanWinsOverMinimaAndMaxima) {
  log_.set_scope(kEvalStepLog);
  for (const double value : {1.0, std::nan(""), 2.0}) {
    log_.log("min", value, {.reduce_fx = ReduceFx::kMin});
    log_.log("max", value, {.reduce_fx = ReduceFx::kMax});
  }
  for (const auto& [name, value] : log_.finish_epoch(alone_)) EXPECT_TRUE(std::isnan(value)) << name;
}

TEST_F(MetricLogTest, ValuesOfEpochHooksWeighOne) {
  log_.set_scope(kEvalStepLog);
  log_.set_batch_size(9);
  log_.set_scope(kEpochLog);
  log_.log("x", 0.0, {});
  log_.log("x", 3.0, {.batch_size = 2});
  EXPECT_EQ(log_.finish_epoch(alone_), (MetricRow{{"x", 2.0}}));
}

// A name as steps and the hook at the end of an epoch log it.
void log_in_steps(MetricLog& log, const LogScope& scope, const LogOptions& options) {
  log.set_scope(scope);
  for (const double value : {0.0, 1.0, 2.0}) log.log("x", value, options);
}
void log_at_end(MetricLog& log, const LogOptions& options) {
  log.set_scope(kEpochLog);
  log.log("x", 100.0, options);
}

TEST_F(MetricLogTest, AValueOfAnEpochHookTakesThePlaceOfThatOfSteps) {
  const LogOptions per_epoch{.on_step = false, .on_epoch = true};
  for (const auto& [scope, options] : {std::pair(kEvalStepLog, LogOptions{}), {kTrainStepLog, per_epoch}}) {
    log_in_steps(log_, scope, options);
    log_at_end(log_, options);
    EXPECT_EQ(log_.finish_epoch(alone_), (MetricRow{{"x", 100.0}}));
    EXPECT_EQ(board_.callback, (Metrics{{"x", 100.0}}));
  }
  log_at_end(log_, {.logger = false});
  log_in_steps(log_, kEvalStepLog, {});
  EXPECT_EQ(log_.finish_epoch(alone_), (MetricRow{{"x", 1.0}}));
  EXPECT_EQ(board_.callback, (Metrics{{"x", 100.0}}));
}

TEST_F(MetricLogTest, StepsAndAnEpochHookEachGiveWhatTheyAreAskedFor) {
  log_in_steps(log_, kTrainStepLog, {});
  EXPECT_EQ(log_.step_row(), (MetricRow{{"x", 2.0}}));
  log_at_end(log_, {});
  EXPECT_EQ(log_.step_row(), MetricRow{});
  EXPECT_EQ(log_.finish_epoch(alone_), (MetricRow{{"x", 100.0}}));
  EXPECT_EQ(board_.callback, (Metrics{{"x", 100.0}}));
  log_in_steps(log_, kTrainStepLog, {.on_epoch = true});
  log_at_end(log_, {.prog_bar = true});
  EXPECT_EQ(log_.finish_epoch(alone_), (MetricRow{{"x_epoch", 1.0}, {"x", 100.0}}));
  EXPECT_EQ(board_.callback, (Metrics{{"x", 100.0}, {"x_epoch", 1.0}, {"x_step", 2.0}}));
}

TEST_F(MetricLogTest, RefusesOtherOptionsInAHookOfTheSameKind) {
  log_in_steps(log_, kEvalStepLog, {});
  log_at_end(log_, {.prog_bar = true});
  test::expect_error<ConfigError>([&] { log_at_end(log_, {}); }, {"log(\"x\")", "before"});
  test::expect_error<ConfigError>([&] { log_in_steps(log_, kEvalStepLog, {.prog_bar = true}); },
                                  {"log(\"x\")", "before"});
}

TEST_F(MetricLogTest, GoesOnBetweenStepsAndAnEpochHook) {
  log_in_steps(log_, kEvalStepLog, {});
  const auto before_hook = log_.state();
  log_at_end(log_, {});
  const auto behind_hook = log_.state();
  MetricLog other(board_);
  other.load_state(before_hook);
  log_at_end(other, {});
  EXPECT_EQ(other.state(), behind_hook);
  EXPECT_EQ(other.finish_epoch(alone_), (MetricRow{{"x", 100.0}}));
  other.load_state(behind_hook);
  EXPECT_EQ(other.finish_epoch(alone_), (MetricRow{{"x", 100.0}}));
}

TEST_F(MetricLogTest, GoesOnFromOlderCheckpoints) {
  log_in_steps(log_, kEvalStepLog, {.on_step = true});
  StateTree older;
  const auto metric = log_.state().get_all<StateTree>("metrics")[0];
  for (const auto& [name, value] : metric.entries())
    if (name != "of_epoch_hook" && name != "is_adopted" && name != "is_synced") older.set(name, value);
  StateTree state;
  state.set("metrics", StateList(std::vector{older}));
  MetricLog other(board_);
  other.load_state(state);
  EXPECT_EQ(other.state(), log_.state());
}

TEST(MetricLogRanks, AValueOfAnEpochHookTakesThePlaceOfThatOfSteps) {
  testing::run_ranks(2, [](const Communicator& communicator) {
    MetricBoard board;
    MetricLog log(board);
    if (communicator.rank() == 0) log_in_steps(log, kEvalStepLog, {.sync_dist = true});
    log.set_scope(kEpochLog);
    log.log("x", 10.0 * communicator.rank(), {.sync_dist = true});
    EXPECT_EQ(log.finish_epoch(communicator), (MetricRow{{"x", 5.0}}));
    EXPECT_EQ(board.callback, (Metrics{{"x", 5.0}}));
  });
}

TEST(MetricLogRanks, AStepMetricThatSomeRanksLogIsThatOfAll) {
  testing::run_ranks(3, [](const Communicator& communicator) {
    MetricBoard board;
    MetricLog log(board);
    log.set_scope(kTrainStepLog);
    const int rank = communicator.rank();
    // Those that have adopted a metric may log it with options of their own.
    LogOptions options{.sync_dist = true};
    if (rank == 0) options.on_step = true;
    const auto row_of = [&](std::initializer_list<int> ranks) {
      if (std::ranges::find(ranks, rank) != ranks.end()) log.log("x", 2.0 * rank, options);
      log.sync_step_values(communicator);
      return log.step_row();
    };
    EXPECT_EQ(row_of({1, 2}), (MetricRow{{"x", 3.0}}));
    EXPECT_EQ(board.callback, (Metrics{{"x", 3.0}}));
    EXPECT_EQ(row_of({0, 1, 2}), (MetricRow{{"x", 2.0}}));
    EXPECT_EQ(row_of({2}), (MetricRow{{"x", 4.0}}));
    EXPECT_EQ(row_of({}), MetricRow{});
    EXPECT_EQ(row_of({1}), (MetricRow{{"x", 2.0}}));
    EXPECT_EQ(log.finish_epoch(communicator), MetricRow{});
  });
}

TEST(MetricLogRanks, AStepMetricOfOneRankHasItsForkForTheEpoch) {
  testing::run_ranks(2, [](const Communicator& communicator) {
    MetricBoard board;
    MetricLog log(board);
    log.set_scope(kTrainStepLog);
    for (const double value : {1.0, 3.0}) {
      if (communicator.rank() == 1) log.log("x", value, {.on_epoch = true, .sync_dist = true});
      log.sync_step_values(communicator);
      EXPECT_EQ(log.step_row(), (MetricRow{{"x_step", value}}));
    }
    EXPECT_EQ(log.finish_epoch(communicator), (MetricRow{{"x_epoch", 2.0}}));
  });
}

TEST(MetricLogRanks, StepValuesAreReducedOnceAcrossACheckpoint) {
  testing::run_ranks(2, [](const Communicator& communicator) {
    MetricBoard board;
    MetricLog log(board), resumed(board);
    const LogOptions sum{.reduce_fx = ReduceFx::kSum, .sync_dist = true};
    log.set_scope(kTrainStepLog);
    log.log("of_all", 1.0 + communicator.rank(), sum);
    if (communicator.rank() == 1) log.log("of_one", 7.0, sum);
    log.sync_step_values(communicator);
    resumed.load_state(log.state());
    EXPECT_EQ(resumed.state(), log.state());
    resumed.set_scope(kTrainStepLog);
    resumed.sync_step_values(communicator);
    EXPECT_EQ(resumed.step_row(), (MetricRow{{"of_all", 3.0}, {"of_one", 7.0}}));
    auto own = sum;
    if (communicator.rank() == 0) own.prog_bar = true;
    resumed.log("of_one", 1.0, own);
    resumed.sync_step_values(communicator);
    EXPECT_EQ(resumed.step_row(), (MetricRow{{"of_one", 2.0}}));
  });
}

TEST(MetricLogRanks, StepValuesAreReducedOnce) {
  testing::run_ranks(2, [](const Communicator& communicator) {
    MetricBoard board;
    MetricLog log(board);
    log.set_scope(kTrainStepLog);
    const LogOptions sum{.reduce_fx = ReduceFx::kSum, .sync_dist = true};
    log.log("loss", 1.0 + communicator.rank(), sum);
    for (int times = 0; times < 2; ++times) log.sync_step_values(communicator);
    EXPECT_EQ(board.callback.at("loss"), 3.0);
    EXPECT_EQ(log.step_row(), (MetricRow{{"loss", 3.0}}));
    log.log("loss", 5.0, sum);
    log.sync_step_values(communicator);
    EXPECT_EQ(board.callback.at("loss"), 10.0);
  });
}

TEST_F(MetricLogTest, GoesOnInTheMiddleOfAnEpoch) {
  const auto log_both = [](MetricLog& log, double value) {
    log.log("loss", value, {.on_epoch = true});
    log.log("least", value, {.on_step = false, .on_epoch = true, .reduce_fx = ReduceFx::kMin});
  };
  log_.set_scope(kTrainStepLog);
  log_both(log_, 1.0);
  MetricLog other(board_);
  other.set_scope(kTrainStepLog);
  other.load_state(log_.state());
  EXPECT_EQ(other.state(), log_.state());
  for (MetricLog* log : {&log_, &other}) log_both(*log, 4.0);
  EXPECT_EQ(other.step_row(), (MetricRow{{"loss_step", 4.0}}));
  EXPECT_EQ(other.finish_epoch(alone_), (MetricRow{{"loss_epoch", 2.5}, {"least", 1.0}}));
}

TEST_F(MetricLogTest, RefusesAStateThatDoesNotFit) {
  log_.set_scope(kTrainStepLog);
  log_.log("loss", 1.0, {});
  auto metric = log_.state().get_all<StateTree>("metrics")[0];
  metric.set("reduce_fx", "median");
  StateTree state;
  state.set("metrics", StateList(std::vector{metric}));
  const auto before = log_.state();
  test::expect_error<CheckpointError>([&] { log_.load_state(state); },
                                      {"metrics/0/reduce_fx", "mean", "median"});
  test::expect_error<CheckpointError>([&] { log_.load_state({}); }, {"metrics", "list"});
  EXPECT_EQ(log_.state(), before);
}

TEST_F(MetricLogTest, TakesMetricsForTheEpoch) {
  metrics::Mean mean;
  log_.set_scope(kEvalStepLog);
  for (const double value : {1.0, 4.0}) {
    mean.update(torch::tensor(value));
    log_.log("mean", mean, {.prog_bar = true});
  }
  EXPECT_EQ(log_.finish_epoch(alone_), (MetricRow{{"mean", 2.5}}));
  EXPECT_EQ(board_.callback.at("mean"), 2.5);
  EXPECT_EQ(board_.progress_bar.at("mean"), 2.5);
  EXPECT_EQ(mean.update_count(), 0);
  EXPECT_TRUE(log_.finish_epoch(alone_).empty());
}

TEST_F(MetricLogTest, RefusesMetricsOfOneNameOrOfSteps) {
  metrics::Mean one, other;
  log_.set_scope(kEvalStepLog);
  log_.log("mean", one, {});
  test::expect_error<ConfigError>([&] { log_.log("mean", other, {}); }, {"mean", "another one"});
  test::expect_error<ConfigError>([&] { log_.log("step", other, {.on_step = true}); }, {"step", "on_step"});
}

TEST(MetricLogRanks, MetricsAreOfAllRanks) {
  testing::run_ranks(2, [](const Communicator& communicator) {
    MetricBoard board;
    MetricLog log(board);
    metrics::Mean mean;
    log.set_scope(kEpochLog);
    // The other rank has had three values.
    for (int i = 0; i < 1 + 2 * communicator.rank(); ++i)
      mean.update(torch::tensor(4.0 * communicator.rank()));
    log.log("mean", mean, {});
    EXPECT_EQ(log.finish_epoch(communicator), (MetricRow{{"mean", 3.0}}));
  });
}

// Counts how often it is worked out.
struct CountedSum final : metrics::Metric {
  CountedSum() : Metric("CountedSum") {}
  void update(double value) { update_states({at::scalar_tensor(value, at::kDouble)}); }
  at::Tensor compute() const override {
    ++computed;
    return value(sum);
  }
  StateId sum = add_state("sum", at::zeros({}, at::kDouble), metrics::StateReduction::kSum);
  mutable int computed = 0;
};

TEST(MetricLogRanks, AnEpochIsShownBeforeItIsFinished) {
  testing::run_ranks(2, [](const Communicator& communicator) {
    MetricBoard board;
    MetricLog log(board);
    const bool first = communicator.rank() == 0;
    CountedSum kept, changed, anew;
    log.set_scope(kEvalStepLog);
    log.set_batch_size(first ? 1 : 3);
    log.log("loss", first ? 2.0 : 6.0, {.prog_bar = true, .sync_dist = true});
    if (first) log.log("of_rank_0", 1.0, {.sync_dist = true});
    log.log("own", communicator.rank(), {});
    for (auto* metric : {&kept, &changed, &anew}) metric->update(1.0 + communicator.rank());
    log.log("anew", anew, {});
    log.log("kept", kept, {});
    log.log("changed", changed, {});
    for (int i = 0; i < 2; ++i) log.show_epoch(communicator);
    const double own = communicator.rank();
    EXPECT_EQ(
        board.callback,
        (Metrics{{"anew", 3}, {"changed", 3}, {"kept", 3}, {"loss", 5}, {"of_rank_0", 1}, {"own", own}}));
    EXPECT_EQ(board.progress_bar, (Metrics{{"loss", 5}}));
    EXPECT_FALSE(kept.is_synced());
    EXPECT_EQ(kept.compute().item<double>(), 1.0 + own);

    log.set_scope(kEpochLog);
    log.log("loss", 7.0, {.prog_bar = true, .sync_dist = true});
    if (!first) changed.update(4);
    anew.reset();
    anew.update(10);
    const int computed = kept.computed;
    const auto row = log.finish_epoch(communicator);
    EXPECT_EQ(std::map(row.begin(), row.end()),
              (std::map<std::string, double>{
                  {"anew", 20}, {"changed", 7}, {"kept", 3}, {"loss", 7}, {"of_rank_0", 1}, {"own", own}}));
    EXPECT_EQ(kept.computed, computed) << "nothing has changed since";
    EXPECT_EQ(kept.update_count(), 0);
  });
}

// Rank 1 has had its last batch before the checkpoint.
TEST(MetricLogRanks, AnEpochThatWasResumedIsShownOnAllRanks) {
  testing::run_ranks(2, [](const Communicator& communicator) {
    MetricBoard board;
    MetricLog before(board);
    CountedSum both, none;
    before.set_scope(kEvalStepLog);
    both.update(1.0 + communicator.rank());
    none.update(2);
    before.log("both", both, {});
    before.log("none", none, {});
    before.keep_metric_values(communicator);
    MetricBoard resumed;
    MetricLog log(resumed);
    log.load_state(before.state());
    CountedSum later;
    log.set_scope(kEvalStepLog);
    if (communicator.rank() == 0) {
      later.update(10);
      log.log("both", later, {});
    }
    log.show_epoch(communicator);
    EXPECT_EQ(resumed.callback, (Metrics{{"both", 13}, {"none", 4}}));
    EXPECT_EQ(log.finish_epoch(communicator), (MetricRow{{"both", 13}, {"none", 4}}));
  });
}

TEST_F(MetricLogTest, KeepsMetricsInTheMiddleOfAnEpoch) {
  metrics::Mean mean, after;
  log_.set_scope(kEvalStepLog);
  for (const double value : {1.0, 2.0}) mean.update(torch::tensor(value));
  log_.log("mean", mean, {});
  log_.keep_metric_values(alone_);
  EXPECT_FALSE(mean.is_synced());
  const auto state = log_.state();
  // Logged again, it goes on; else it has the value that it had.
  for (const bool is_logged : {true, false}) {
    MetricLog other(board_);
    other.load_state(state);
    EXPECT_EQ(other.state(), state);
    other.set_scope(kEvalStepLog);
    if (is_logged) after.update(torch::tensor(6.0));
    if (is_logged) other.log("mean", after, {});
    EXPECT_EQ(other.finish_epoch(alone_), (MetricRow{{"mean", is_logged ? 3.0 : 1.5}}));
  }
  EXPECT_EQ(after.update_count(), 0);
  log_.reset();
  EXPECT_EQ(mean.update_count(), 0);
  EXPECT_TRUE(log_.finish_epoch(alone_).empty());
}

// compute() gives two numbers.
struct Pair final : metrics::Metric {
  Pair() : Metric("Pair") {}
  at::Tensor compute() const override { return torch::ones({2}); }
};

TEST_F(MetricLogTest, RefusesAMetricOfSeveralNumbers) {
  Pair pair;
  log_.set_scope(kEpochLog);
  log_.log("m", pair, {});
  log_.keep_metric_values(alone_);
  test::expect_error<ConfigError>([&] { log_.finish_epoch(alone_); },
                                  {"log(\"m\")", "a metric of one number", "2 of them"});
}

// What a rank has kept, or measures.
void log_on(MetricLog& log, metrics::Metric& metric, const char* name) {
  log.set_scope(kEpochLog);
  log.log(name, metric, {});
}

TEST(MetricLogRanks, MetricsAreToldByTheirNames) {
  testing::run_ranks(2, [](const Communicator& communicator) {
    MetricBoard board;
    MetricLog log(board);
    metrics::Sum small, large;
    small.update(torch::tensor(1.0 + communicator.rank()));
    large.update(torch::tensor(100.0));
    const bool is_first = communicator.rank() == 0;
    log_on(log, is_first ? small : large, is_first ? "small" : "large");
    log_on(log, is_first ? large : small, is_first ? "large" : "small");
    log.finish_epoch(communicator);
    EXPECT_EQ(board.callback, (Metrics{{"large", 200.0}, {"small", 3.0}}));
  });
}

TEST(MetricLogRanks, ARankWithoutAMetricIsNamed) {
  testing::run_ranks(2, [](const Communicator& communicator) {
    MetricBoard board;
    MetricLog log(board);
    metrics::Sum sum;
    if (communicator.rank() == 0) log_on(log, sum, "accuracy");
    test::expect_error<ConfigError>([&] { log.finish_epoch(communicator); },
                                    {"log(\"accuracy\")", "every rank", "none on rank 1"});
  });
}

TEST(MetricLogRanks, MetricsGoOnWhereOnlySomeRanksHaveBatchesLeft) {
  testing::run_ranks(2, [](const Communicator& communicator) {
    MetricBoard board;
    StateTree state;
    {
      MetricLog log(board);
      metrics::Mean mean;
      mean.update(torch::tensor(communicator.rank() == 0 ? 1.0 : 4.0));
      log_on(log, mean, "mean");
      log.keep_metric_values(communicator);
      state = log.state();
    }
    MetricLog log(board);
    log.load_state(state);
    metrics::Mean rest;
    if (communicator.rank() == 1) {
      rest.update(torch::tensor(7.0));
      log_on(log, rest, "mean");
    }
    EXPECT_EQ(log.finish_epoch(communicator), (MetricRow{{"mean", 4.0}}));
    log.load_state(state);
    EXPECT_EQ(log.finish_epoch(communicator), (MetricRow{{"mean", 2.5}}));
  });
}

TEST_F(MetricLogTest, ANameIsOfNumbersOrOfAMetric) {
  metrics::Mean mean;
  log_.set_scope(kEvalStepLog);
  log_.log("mean", mean, {});
  test::expect_error<ConfigError>([&] { log_.log("mean", 1.0, {}); },
                                  {"log(\"mean\")", "a metric has the name"});
  log_.log("loss", 1.0, {});
  test::expect_error<ConfigError>([&] { log_.log("loss", mean, {}); },
                                  {"log(\"loss\")", "a number has the name"});
}

TEST_F(MetricLogTest, ANameHasLetters) {
  metrics::Mean mean;
  log_.set_scope(kEvalStepLog);
  test::expect_error<ConfigError>([&] { log_.log("", 1.0, {}); }, {"log(\"\")", "a name", "none"});
  test::expect_error<ConfigError>([&] { log_.log("", mean, {}); }, {"log(\"\")", "a name", "none"});
}

}  // namespace
}  // namespace lockstep::detail
