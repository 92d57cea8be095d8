// What Metric gives to all metrics: states, their reduction over ranks, and their way into checkpoints.
#include <lockstep/metrics/metric.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include <lockstep/base/error.h>
#include <lockstep/metrics/aggregation.h>
#include <lockstep/testing/fork_ranks.h>
#include <lockstep/testing/run_ranks.h>
#include <lockstep/testing/wrapped_backends.h>
#include <lockstep/torch.h>

#include "support/expect_error.h"

namespace lockstep::metrics {
namespace {

using lockstep::test::expect_error;
using testing::run_ranks;

constexpr std::int64_t kHuge = (std::int64_t{1} << 60) + 1;  // more digits than a double has

// One state of every kind.
class Everything final : public Metric {
 public:
  Everything() : Metric("Everything") {}

  void update(double number, std::int64_t count, const at::Tensor& rows) {
    const auto value = at::scalar_tensor(number, at::kDouble);
    update_states(
        {value.expand({2}), at::scalar_tensor(count, at::kLong), value, value, value, rows, rows.ge(0)});
  }
  at::Tensor compute() const override { return at::cat({value(sum_), value(mean_).view({1})}); }

  std::vector<double> numbers() const {
    return {value(sum_)[1].item<double>(), value(mean_).item<double>(), value(min_).item<double>(),
            value(max_).item<double>()};
  }
  std::int64_t count() const { return value(count_).item<std::int64_t>(); }
  at::Tensor rows() const { return value(rows_); }
  at::Tensor flags() const { return value(flags_); }

 private:
  StateId sum_ = add_state("sum", at::zeros({2}, at::kDouble), StateReduction::kSum);
  StateId count_ = add_state("count", at::zeros({}, at::kLong), StateReduction::kSum);
  StateId mean_ = add_state("mean", at::zeros({}, at::kDouble), StateReduction::kMean);
  StateId min_ = add_state("min", at::full({}, INFINITY, at::kDouble), StateReduction::kMin);
  StateId max_ = add_state("max", at::full({}, -INFINITY, at::kDouble), StateReduction::kMax);
  StateId rows_ = add_cat_state("rows");
  StateId flags_ = add_cat_state("flags");
};

at::Tensor rows_from(int first, int count) {
  return at::arange(first, first + 3 * count, at::kInt).view({count, 3});
}

Everything updated_twice() {
  Everything metric;
  metric.update(2, kHuge, rows_from(-1, 2));
  metric.update(5, -1, rows_from(9, 1));
  return metric;
}

TEST(MetricTest, TakesUpBatchesByTheirReduction) {
  const auto metric = updated_twice();
  EXPECT_EQ(metric.name(), "Everything");
  EXPECT_EQ(metric.update_count(), 2);
  EXPECT_THAT(metric.numbers(), ::testing::ElementsAre(7, 3.5, 2, 5));
  EXPECT_EQ(metric.count(), kHuge - 1);
  EXPECT_TRUE(at::equal(metric.rows(), at::cat({rows_from(-1, 2), rows_from(9, 1)})));
}

TEST(MetricTest, BeginsAnewAfterReset) {
  auto metric = updated_twice();
  metric.reset();
  EXPECT_EQ(metric.update_count(), 0);
  EXPECT_EQ(metric.count(), 0);
  EXPECT_EQ(metric.rows().numel(), 0);
  metric.update(4, 1, rows_from(0, 1));
  EXPECT_THAT(metric.numbers(), ::testing::ElementsAre(4, 4, 4, 4));
}

TEST(MetricTest, CopiesRowsAndKeepsNoGraph) {
  Everything metric;
  const auto rows = rows_from(0, 1);
  metric.update(1, 1, rows);
  rows.fill_(7);
  EXPECT_TRUE(at::equal(metric.rows(), rows_from(0, 1)));
  Mean mean;
  mean.update(torch::ones({2}, torch::requires_grad()));
  EXPECT_FALSE(mean.compute().requires_grad());
}

// Rank r of three: 10 r; rank 1 has no update at all.
void expect_synced(const Everything& metric, int rank) {
  SCOPED_TRACE(rank);
  EXPECT_TRUE(metric.is_synced());
  EXPECT_THAT(metric.numbers(), ::testing::ElementsAre(1 + 2 + 20, (1.5 + 0 + 20) / 3, 1, 20));
  EXPECT_EQ(metric.count(), 2 * kHuge - 3);
  EXPECT_TRUE(at::equal(metric.rows(), at::cat({rows_from(-4, 1), rows_from(7, 2)})));
  EXPECT_TRUE(at::equal(metric.flags(), at::cat({rows_from(-4, 1), rows_from(7, 2)}).ge(0)));
}

void update_as(Everything& metric, int rank) {
  if (rank == 0) {
    metric.update(1, kHuge, rows_from(-4, 1));
    metric.update(2, -3, rows_from(0, 0));
  }
  if (rank == 2) metric.update(20, kHuge, rows_from(7, 2));
}

TEST(MetricTest, ReducesEachStateOverRanks) {
  run_ranks(3, [](const Communicator& comm) {
    Everything metric, own;
    update_as(metric, comm.rank());
    update_as(own, comm.rank());
    metric.sync(comm);
    expect_synced(metric, comm.rank());
    EXPECT_EQ(metric.state(), own.state());  // what a checkpoint of this rank takes
    metric.unsync();
    EXPECT_FALSE(metric.is_synced());
    EXPECT_EQ(metric.state(), own.state());
    metric.sync(comm);
    expect_synced(metric, comm.rank());
    metric.reset();
    EXPECT_FALSE(metric.is_synced());
    EXPECT_EQ(metric.state(), Everything().state());
  });
}

TEST(MetricTest, FusesTheCollectivesOfAllMetrics) {
  run_ranks(2, [](const Communicator& comm) {
    const testing::CountingBackend counting(comm);
    Everything a, b;
    Mean mean, other;
    a.update(1, 1, rows_from(0, comm.rank()));
    std::vector<Metric*> sums{&mean, &other}, all{&a, &b, &mean};
    sync(sums, counting.communicator());
    EXPECT_EQ(counting.count(), 1U);
    EXPECT_EQ(counting.bytes("all_reduce"), 4 * sizeof(double));
    for (auto* each : sums) each->reset();
    finish_epoch(all, counting.communicator());
    EXPECT_EQ(counting.count("all_reduce"), 1U + 3U);
    EXPECT_EQ(counting.count(), 1U + 3U + 2U);
  });
}

TEST(MetricTest, NeedsNoCollectiveInAWorldOfOne) {
  const testing::CountingBackend counting{Communicator()};
  auto metric = updated_twice();
  const auto before = metric.numbers();
  metric.sync(counting.communicator());
  EXPECT_EQ(metric.numbers(), before);
  EXPECT_EQ(counting.count(), 0U);
}

TEST(MetricTest, RefusesUpdatesAndSyncsWhileSynced) {
  auto metric = updated_twice();
  expect_error<ConfigError>([&] { metric.unsync(); }, {"Everything", "unsynced"});
  metric.sync(Communicator());
  const auto before = metric.numbers();
  expect_error<ConfigError>([&] { metric.update(1, 1, rows_from(0, 1)); },
                            {"Everything", "updated", "unsync()"});
  expect_error<ConfigError>([&] { metric.sync(Communicator()); }, {"Everything", "synced"});
  EXPECT_EQ(metric.numbers(), before);
}

TEST(MetricTest, NamesTheRanksWhoseMetricsDiffer) {
  run_ranks(2, [](const Communicator& comm) {
    Mean one;
    Everything other;
    Metric* metric = comm.rank() == 0 ? static_cast<Metric*>(&one) : &other;
    one.update(3);
    EXPECT_THROW(metric->sync(comm), CollectiveMismatch);
    EXPECT_FALSE(metric->is_synced());
    EXPECT_EQ(one.compute().item<double>(), 3);
  });
}

TEST(MetricTest, GivesItsStateByName) {
  const auto tree = updated_twice().state();
  EXPECT_EQ(tree.get<std::int64_t>("update_count"), 2);
  EXPECT_EQ(tree.get<at::Tensor>("count").item<std::int64_t>(), kHuge - 1);
  EXPECT_EQ(tree.get<StateList>("rows").size(), 1U);
  EXPECT_EQ(Everything().state().get<StateList>("rows").size(), 0U);
  Everything metric;
  metric.load_state(tree.clone());
  EXPECT_EQ(metric.state(), tree);
  metric.update(8, 0, rows_from(0, 0));
  EXPECT_THAT(metric.numbers(), ::testing::ElementsAre(15, 5, 2, 8));
}

TEST(MetricTest, KeepsItsStateWhereAnotherDoesNotFit) {
  auto metric = updated_twice();
  auto tree = Everything().state();
  tree.set("max", at::zeros({2}, at::kDouble));
  expect_error<CheckpointError>([&] { metric.load_state(tree); }, {"max", "Double [2]"});
  expect_error<CheckpointError>([&] { metric.load_state(Mean().state()); }, {"sum"});
  EXPECT_EQ(metric.state(), updated_twice().state());
}

class Misdeclared final : public Metric {
 public:
  Misdeclared(const at::Tensor& initial, StateReduction reduction, const std::string& second = "b")
      : Metric("Misdeclared") {
    add_state("a", initial, reduction);
    add_cat_state(second);
  }
  void update(const std::vector<at::Tensor>& batch) { update_states(batch); }
  at::Tensor compute() const override { return {}; }
};

TEST(MetricTest, NamesStatesThatCannotBeDeclared) {
  const auto declare = [](const at::Tensor& initial, StateReduction reduction,
                          const std::string& second = "b") {
    return [=] { Misdeclared(initial, reduction, second); };
  };
  expect_error<ConfigError>(declare(at::zeros({}), StateReduction::kSum), {"state a", "float64", "Float"});
  expect_error<ConfigError>(declare(at::zeros({}, at::kLong), StateReduction::kMin), {"state a", "Long"});
  expect_error<ConfigError>(declare({}, StateReduction::kSum), {"state a", "undefined"});
  expect_error<ConfigError>(declare(at::zeros({}, at::kDouble), StateReduction::kCat), {"add_cat_state"});
  expect_error<ConfigError>(declare(at::zeros({}, at::kDouble), StateReduction::kSum, "a"),
                            {"state a", "taken"});
}

TEST(MetricTest, TakesUpAllOfABatchOrNothing) {
  Misdeclared metric(at::zeros({}, at::kLong), StateReduction::kSum);
  const auto one = at::ones({}, at::kLong);
  metric.update({one, at::zeros({1, 2})});
  expect_error<DataError>([&] { metric.update({one, at::zeros({1, 3})}); }, {"state b", "[1, 2]", "[1, 3]"});
  expect_error<DataError>([&] { metric.update({one, at::zeros({1, 2}, at::kInt)}); }, {"state b", "Int"});
  expect_error<DataError>([&] { metric.update({one, one}); }, {"state b", "dimension"});
  expect_error<DataError>([&] { metric.update({at::ones({1}, at::kLong), at::zeros({1, 2})}); }, {"state a"});
  expect_error<DataError>([&] { metric.update({at::ones({}), at::zeros({1, 2})}); }, {"state a", "Float"});
  expect_error<DataError>([&] { metric.update({one}); }, {"Misdeclared", "2 tensors", "1"});
  EXPECT_EQ(metric.update_count(), 1);
  EXPECT_EQ(metric.state().get<at::Tensor>("a").item<std::int64_t>(), 1);
}

}  // namespace
}  // namespace lockstep::metrics
