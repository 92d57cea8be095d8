// Values against those of torchmetrics.
#include <gtest/gtest.h>

#include "metrics/golden.h"

namespace lockstep::metrics {
namespace {

using nlohmann::json;

// Bits for counts, else what float32, in which torchmetrics computes, allows.
void expect_value(const json& expected, const at::Tensor& value) {
  ASSERT_EQ(value.sizes(), c10::IntArrayRef(expected.at("shape").get<std::vector<std::int64_t>>()));
  const auto want = test::tensor_of(expected, value.scalar_type());
  if (!value.is_floating_point()) {
    EXPECT_TRUE(at::equal(want, value)) << want << value;
    return;
  }
  ASSERT_EQ(value.scalar_type(), at::kDouble);
  EXPECT_TRUE(at::allclose(want, value, 1e-6, 1e-6, /*equal_nan=*/true)) << want << value;
}

TEST(GoldenMetrics, HasTheCasesOfAllMetrics) {
  EXPECT_EQ(test::golden().at("cases").size(), 802U);
  std::set<std::string> names;
  for (const json& each : test::golden().at("cases")) names.insert(each.at("metric"));
  EXPECT_EQ(names.size(), 13U);
}

TEST(GoldenMetrics, AreTorchmetricss) {
  for (const json& each : test::golden().at("cases")) {
    SCOPED_TRACE(each.at("inputs").dump() + each.at("metric").dump() + each.at("arguments").dump());
    const auto metric = test::metric_of(each);
    for (const auto& batch : test::batches_of(each)) metric.update(batch);
    expect_value(each.at("value"), metric.metric->compute());
  }
}

TEST(GoldenMetrics, ForwardGivesTheBatchAndTakesItUp) {
  for (const json& each : test::golden().at("cases")) {
    SCOPED_TRACE(each.at("inputs").dump() + each.at("metric").dump() + each.at("arguments").dump());
    const auto metric = test::metric_of(each);
    const auto batches = test::batches_of(each);
    expect_value(each.at("forward"), metric.forward(batches.at(0)));
    metric.update(batches.at(1));
    metric.forward(batches.at(2));
    EXPECT_EQ(metric.metric->update_count(), 3);
    expect_value(each.at("value"), metric.metric->compute());
  }
}

TEST(GoldenMetrics, GoOnFromTheirState) {
  for (const json& each : test::golden().at("cases")) {
    SCOPED_TRACE(each.at("inputs").dump() + each.at("metric").dump() + each.at("arguments").dump());
    const auto first = test::metric_of(each), second = test::metric_of(each);
    const auto batches = test::batches_of(each);
    first.update(batches.at(0));
    first.update(batches.at(1));
    second.update(batches.at(2));  // is forgotten
    second.metric->load_state(first.metric->state());
    EXPECT_EQ(second.metric->update_count(), 2);
    second.update(batches.at(2));
    expect_value(each.at("value"), second.metric->compute());
  }
}

}  // namespace
}  // namespace lockstep::metrics
