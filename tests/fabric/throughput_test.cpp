// Throughput: the numbers of Lightning's own tests.
#include <lockstep/fabric/throughput.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lockstep/base/error.h>

#include "support/expect_error.h"

namespace lockstep {
namespace {

using Seconds = std::chrono::duration<double>;
using Metrics = Throughput::Metrics;
using ::testing::ContainerEq;

TEST(Throughput, CountsUntilTheWindowIsFull) {
  Throughput throughput;
  throughput.update({.time = Seconds(2.0), .batches = 1, .samples = 2});
  EXPECT_THAT(throughput.compute(), ContainerEq(Metrics{{"time", 2}, {"batches", 1}, {"samples", 2}}));
}

TEST(Throughput, MeasuresOverTheWindow) {
  Throughput throughput({.window_size = 2});
  throughput.update({.time = Seconds(2.0), .batches = 1, .samples = 2, .lengths = 4});
  throughput.update({.time = Seconds(2.5), .batches = 2, .samples = 4, .lengths = 8});
  EXPECT_THAT(throughput.compute(), ContainerEq(Metrics{{"time", 2.5},
                                                        {"batches", 2},
                                                        {"samples", 4},
                                                        {"lengths", 8},
                                                        {"device/batches_per_sec", 2},
                                                        {"device/samples_per_sec", 4},
                                                        {"device/items_per_sec", 8}}));
}

TEST(Throughput, MeasuresOperationsOfTheUpdatesAfterTheFirst) {
  for (const auto available : {std::optional<double>(50), std::optional<double>()}) {
    Throughput throughput({.available_flops = available, .window_size = 2});
    throughput.update({.time = Seconds(1), .batches = 1, .samples = 2, .lengths = 10, .flops = 10});
    throughput.update({.time = Seconds(2), .batches = 2, .samples = 4, .lengths = 20, .flops = 10});
    Metrics expected{{"time", 2},
                     {"batches", 2},
                     {"samples", 4},
                     {"lengths", 20},
                     {"device/batches_per_sec", 1},
                     {"device/flops_per_sec", 10},
                     {"device/items_per_sec", 10},
                     {"device/samples_per_sec", 2}};
    if (available) expected["device/mfu"] = 0.2;
    EXPECT_THAT(throughput.compute(), ContainerEq(expected));
  }
}

TEST(Throughput, TakesAllDevicesToBeEquallyFast) {
  Throughput throughput({.available_flops = 100, .world_size = 2, .window_size = 4, .separator = "|"});
  for (int i = 1; i <= 5; ++i)
    throughput.update(
        {.time = Seconds(i + 0.5), .batches = i, .samples = i * 3, .lengths = i * 6, .flops = 10});
  EXPECT_THAT(throughput.compute(), ContainerEq(Metrics{{"time", 5.5},
                                                        {"batches", 5},
                                                        {"samples", 15},
                                                        {"lengths", 30},
                                                        {"device|batches_per_sec", 1},
                                                        {"device|samples_per_sec", 3},
                                                        {"device|items_per_sec", 6},
                                                        {"device|flops_per_sec", 10},
                                                        {"device|mfu", 0.1},
                                                        {"batches_per_sec", 2},
                                                        {"samples_per_sec", 6},
                                                        {"items_per_sec", 12},
                                                        {"flops_per_sec", 20}}));
}

TEST(Throughput, RefusesTotalsThatDoNotGrowAndKeepsWhatItHad) {
  Throughput throughput({.window_size = 2});
  throughput.update({.time = Seconds(2), .batches = 1, .samples = 2});
  const auto refused = [&](const ThroughputUpdate& totals, const char* name) {
    test::expect_error<ConfigError>([&] { throughput.update(totals); }, {name});
  };
  refused({.time = Seconds(2), .batches = 2, .samples = 4}, "time has not increased");
  refused({.time = Seconds(3), .batches = 1, .samples = 4}, "batches has not increased");
  refused({.time = Seconds(3), .batches = 2, .samples = 2}, "samples has not increased");
  refused({.time = Seconds(3), .batches = 5, .samples = 4}, "as many as batches");
  refused({.time = Seconds(3), .batches = 2, .samples = 4, .lengths = 3}, "as many as samples");
  refused({.time = Seconds(3), .batches = 2, .samples = 4, .lengths = 5},
          "the same number of them as of samples");
  throughput.update({.time = Seconds(3), .batches = 2, .samples = 4});
  EXPECT_EQ(throughput.compute().at("device/batches_per_sec"), 1);
}

TEST(Throughput, BeginsAnewAfterReset) {
  Throughput throughput({.window_size = 2});
  throughput.update({.time = Seconds(2), .batches = 2, .samples = 2});
  throughput.reset();
  test::expect_error<ConfigError>([&] { (void)throughput.compute(); }, {"update()"});
  throughput.update({.time = Seconds(1), .batches = 1, .samples = 1});
  EXPECT_EQ(throughput.time(), Seconds(1));
}

TEST(Throughput, NamesOptionsThatAreOutOfRange) {
  test::expect_error<ConfigError>([] { Throughput throughput({.window_size = 1}); }, {"window_size", "1"});
  test::expect_error<ConfigError>([] { Throughput throughput({.world_size = 0}); }, {"world_size", "0"});
}

}  // namespace
}  // namespace lockstep
