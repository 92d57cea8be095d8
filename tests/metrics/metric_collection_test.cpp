#include <lockstep/metrics/metric_collection.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/base/error.h>
#include <lockstep/metrics/classification.h>
#include <lockstep/testing/run_ranks.h>
#include <lockstep/testing/wrapped_backends.h>
#include <lockstep/torch.h>

#include "support/expect_error.h"

namespace lockstep::metrics {
namespace {

using lockstep::test::expect_error;
using ::testing::ElementsAre;

const Multiclass kTask{.num_classes = 4};
const AurocOptions kBinned{.thresholds = 10};

// Other metrics of the same samples, one by one.
struct Alone {
  Accuracy accuracy{kTask};
  F1 f1{kTask, {.average = Average::kMacro}};
  Accuracy top2{Multiclass{.num_classes = 4, .top_k = 2}};
  Auroc auroc{kTask, kBinned};
  ConfusionMatrix confusion{kTask};

  void update(const at::Tensor& preds, const at::Tensor& target) {
    for (PredictionMetric* each : all()) each->update(preds, target);
  }
  std::vector<PredictionMetric*> all() { return {&accuracy, &f1, &top2, &auroc, &confusion}; }
};

MetricCollection together() {
  MetricCollection collection({.prefix = "val_"});
  collection.add("acc", Accuracy(kTask));
  collection.add("f1", F1(kTask, {.average = Average::kMacro}));
  collection.add("top2", Accuracy(Multiclass{.num_classes = 4, .top_k = 2}));
  collection.add("auroc", Auroc(kTask, kBinned));
  collection.add(ConfusionMatrix(kTask));
  return collection;
}

// Other samples for each `seed`.
at::Tensor preds_of(int seed) {
  return (torch::arange(20 * 4) * (7 + seed)).remainder(13).view({20, 4}).div(13);
}
at::Tensor target_of(int seed) { return (torch::arange(20) * (3 + seed)).remainder(4); }

void expect_same_values(const MetricCollection& collection, Alone& alone) {
  const auto values = collection.compute();
  const auto metrics = alone.all();
  ASSERT_EQ(values.size(), metrics.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_TRUE(at::equal(values[i].second, metrics[i]->compute())) << values[i].first;
}

std::vector<std::string> names_of(const MetricCollection& collection) {
  std::vector<std::string> names;
  for (const auto& [name, metric] : collection.metrics()) names.push_back(name);
  return names;
}

TEST(MetricCollectionTest, GivesWhatItsMetricsGiveAlone) {
  auto collection = together();
  Alone alone;
  for (const int seed : {1, 2}) {
    collection.update(preds_of(seed), target_of(seed));
    alone.update(preds_of(seed), target_of(seed));
  }
  EXPECT_THAT(names_of(collection),
              ElementsAre("val_acc", "val_f1", "val_top2", "val_auroc", "val_ConfusionMatrix"));
  expect_same_values(collection, alone);
  collection.reset();
  alone = Alone();
  expect_same_values(collection, alone);
}

TEST(MetricCollectionTest, KeepsEqualStatesOnce) {
  auto collection = together();
  EXPECT_THAT(collection.compute_groups(), ElementsAre(ElementsAre("acc", "f1"), ElementsAre("top2"),
                                                       ElementsAre("auroc"), ElementsAre("ConfusionMatrix")));
  collection.update(preds_of(1), target_of(1));
  for (const auto& [name, metric] : collection.metrics()) EXPECT_EQ(metric->update_count(), 1) << name;
}

TEST(MetricCollectionTest, ReducesAllOverRanksAtOnce) {
  testing::run_ranks(2, [](const Communicator& comm) {
    const testing::CountingBackend counting(comm);
    auto collection = together();
    Alone own, whole;
    for (const int seed : {0, 1, 2}) {
      whole.update(preds_of(seed), target_of(seed));
      if (seed % 2 != comm.rank()) continue;
      own.update(preds_of(seed), target_of(seed));
      collection.update(preds_of(seed), target_of(seed));
    }
    collection.sync(counting.communicator());
    EXPECT_EQ(counting.count(), 1U);
    expect_same_values(collection, whole);
    collection.unsync();
    expect_same_values(collection, own);
  });
}

TEST(MetricCollectionTest, GoesOnFromItsState) {
  auto first = together(), second = together();
  first.update(preds_of(1), target_of(1));
  second.load_state(first.state().clone());
  for (auto* each : {&first, &second}) each->update(preds_of(2), target_of(2));
  EXPECT_EQ(first.state(), second.state());
  auto wrong = first.state();
  wrong.set("auroc", Accuracy(kTask).state());
  second.reset();
  expect_error<CheckpointError>([&] { second.load_state(wrong); }, {"auroc/histogram"});
  EXPECT_EQ(second.state(), together().state());
}

TEST(MetricCollectionTest, TakesUpABatchInAllMetricsOrInNone) {
  MetricCollection collection;
  collection.add(Accuracy(kTask));
  collection.add(Auroc(kTask));
  const auto classes = target_of(1);
  expect_error<DataError>([&] { collection.update(classes, classes); }, {"Auroc: preds"});
  for (const auto& [name, metric] : collection.metrics()) EXPECT_EQ(metric->update_count(), 0) << name;
}

TEST(MetricCollectionTest, NamesMetricsThatCannotBeAdded) {
  auto collection = together();
  expect_error<ConfigError>([&] { collection.add("acc", Accuracy(kTask)); }, {"metric acc", "taken"});
  expect_error<ConfigError>([&] { collection.add("null", std::unique_ptr<PredictionMetric>()); },
                            {"null pointer"});
  Recall updated(kTask);
  updated.update(preds_of(1), target_of(1));
  expect_error<ConfigError>([&] { collection.add("recall", std::move(updated)); },
                            {"metric recall", "updates"});
  collection.update(preds_of(1), target_of(1));
  expect_error<ConfigError>([&] { collection.add("late", Recall(kTask)); }, {"metric late", "updates"});
}

}  // namespace
}  // namespace lockstep::metrics
