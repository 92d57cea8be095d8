// Several ranks against one that has seen everything.
#include <gtest/gtest.h>

#include <lockstep/testing/fork_ranks.h>

#include "metrics/golden.h"

namespace lockstep::metrics {
namespace {

using testing::fork_ranks;

// Which rank gets batch number `batch`: rank 1 of three has none, and ranks have other numbers of samples.
int owner_of(std::size_t batch, int ranks) {
  if (ranks == 2) return batch == 0 ? 0 : 1;
  return batch == 2 ? 2 : 0;
}

void expect_same(const nlohmann::json& golden_case, const at::Tensor& whole, const at::Tensor& synced) {
  SCOPED_TRACE(golden_case.at("inputs").dump() + golden_case.at("metric").dump() +
               golden_case.at("arguments").dump());
  if (test::is_exact(golden_case)) {
    EXPECT_TRUE(at::allclose(whole, synced, 0, 0, /*equal_nan=*/true)) << whole << synced;
  } else {
    EXPECT_TRUE(at::allclose(whole, synced, 1e-12, 0, /*equal_nan=*/true)) << whole << synced;
  }
}

// All cases together, so that they share their collectives.
LOCKSTEP_RANK_BODY(metrics_of_all_cases)(Communicator comm, std::string)->std::string {
  std::vector<test::AnyMetric> own, whole;
  for (const auto& each : test::golden().at("cases")) {
    own.push_back(test::metric_of(each));
    whole.push_back(test::metric_of(each));
    const auto batches = test::batches_of(each);
    for (std::size_t i = 0; i < batches.size(); ++i) {
      whole.back().update(batches[i]);
      if (owner_of(i, comm.size()) == comm.rank()) own.back().update(batches[i]);
    }
  }
  std::vector<Metric*> metrics;
  for (const auto& each : own) metrics.push_back(each.metric.get());
  const auto values = finish_epoch(metrics, comm);
  for (std::size_t i = 0; i < values.size(); ++i) {
    expect_same(test::golden().at("cases")[i], whole[i].metric->compute(), values[i]);
    EXPECT_EQ(own[i].metric->update_count(), 0);
    EXPECT_FALSE(own[i].metric->is_synced());
  }
  return std::to_string(values.size());
}

TEST(MetricRanks, GiveTheValueOfOneRankWithAllSamples) {
  for (const int ranks : {2, 3}) {
    const auto results = fork_ranks(ranks, "metrics_of_all_cases");
    ASSERT_EQ(results.size(), static_cast<std::size_t>(ranks));
    for (const auto& rank : results) EXPECT_EQ(rank.result, "802") << rank.error;
  }
}

}  // namespace
}  // namespace lockstep::metrics
