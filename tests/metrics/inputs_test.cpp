// What metrics refuse, and how they say so.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include <lockstep/base/error.h>
#include <lockstep/metrics/classification.h>
#include <lockstep/metrics/regression.h>
#include <lockstep/torch.h>

#include "support/expect_error.h"

namespace lockstep::metrics {
namespace {

using lockstep::test::expect_error;

at::Tensor longs(std::vector<std::int64_t> values) { return torch::tensor(values, torch::kLong); }

TEST(ClassificationOptions, AreNamedWhereTheyAreOutOfRange) {
  expect_error<ConfigError>([] { Accuracy(Multiclass{}); }, {"Accuracy: num_classes", "at least 2", "0"});
  expect_error<ConfigError>([] { Recall(Multilabel{.num_labels = 1}); }, {"Recall: num_labels", "got 1"});
  expect_error<ConfigError>([] { Precision(Binary{.threshold = 1.5}); }, {"Precision: threshold", "1.5"});
  expect_error<ConfigError>([] { Accuracy(Binary{.threshold = std::nan("")}); }, {"threshold", "nan"});
  expect_error<ConfigError>([] { Accuracy(Multiclass{.num_classes = 3, .top_k = 4}); },
                            {"top_k", "1 to num_classes, 3"});
  expect_error<ConfigError>([] { ConfusionMatrix(Multiclass{.num_classes = 3, .top_k = 2}); },
                            {"ConfusionMatrix: top_k", "no top_k"});
  expect_error<ConfigError>([] { FBeta(Binary{}, {.beta = 0}); }, {"FBeta: beta", "> 0"});
  expect_error<ConfigError>([] { F1(Binary{}, {.zero_division = 0.5}); },
                            {"FBeta: zero_division", "0 or 1", "0.5"});
  expect_error<ConfigError>([] { MeanSquaredError({.num_outputs = 0}); }, {"MeanSquaredError: num_outputs"});
}

TEST(AurocOptionsTest, AreNamedWhereTheyAreOutOfRange) {
  const Multiclass three{.num_classes = 3};
  expect_error<ConfigError>([&] { Auroc(three, {.average = Average::kMicro}); },
                            {"Auroc: average", "kMicro"});
  expect_error<ConfigError>([&] { Auroc(three, {.max_fpr = 0.5}); }, {"Auroc: max_fpr", "Binary"});
  expect_error<ConfigError>([] { Auroc(Binary{}, {.max_fpr = 0}); }, {"Auroc: max_fpr", "got 0"});
  expect_error<ConfigError>([] { Auroc(Binary{}, {.thresholds = 1}); }, {"Auroc: thresholds", "at least 2"});
  expect_error<ConfigError>([] { Auroc(Binary{}, {.thresholds = std::vector<double>{}}); },
                            {"thresholds", "none"});
  expect_error<ConfigError>(
      [] {
        Auroc(Binary{}, {.thresholds = std::vector<double>{0.5, 0.25}});
      },
      {"Auroc: thresholds[1]", "ascending", "0.25"});
}

TEST(ClassificationInputs, NameClassesOutOfRange) {
  Accuracy multiclass(Multiclass{.num_classes = 3, .ignore_index = -100});
  const auto scores = torch::rand({2, 3});
  expect_error<DataError>(
      [&] {
        multiclass.update(scores, longs({0, 3}));
      },
      {"Accuracy: target", "0 to 2", "ignore_index -100", "got 3"});
  expect_error<DataError>([&] { multiclass.update(scores, longs({-1, 0})); }, {"got -1"});
  expect_error<DataError>(
      [&] {
        multiclass.update(longs({0, 4}), longs({0, 0}));
      },
      {"Accuracy: preds", "got 4"});
  F1 binary(Binary{});
  expect_error<DataError>(
      [&] {
        binary.update(torch::rand({2}), longs({0, 2}));
      },
      {"FBeta: target", "0 to 1", "2"});
  expect_error<DataError>([&] { binary.update(longs({0, 2}), longs({0, 1})); }, {"FBeta: preds", "2"});
  expect_error<DataError>(
      [&] {
        binary.update(torch::rand({2}), torch::tensor({0.0, 0.5}));
      },
      {"target", "0.5"});
  EXPECT_EQ(multiclass.update_count() + binary.update_count(), 0);
}

TEST(ClassificationInputs, NameShapesThatDoNotFit) {
  Accuracy multiclass(Multiclass{.num_classes = 3});
  const auto refuses = [&](const at::Tensor& preds, const at::Tensor& target, const std::string& part) {
    expect_error<DataError>([&] { multiclass.update(preds, target); }, {"Accuracy: ", part});
  };
  refuses(torch::rand({2, 4}), longs({0, 1}), "Float [2, 4]");
  refuses(torch::rand({3, 3}), longs({0, 1}), "scores [N, 3, ...] for target [2]");
  refuses(torch::rand({2, 3, 5}), torch::zeros({2, 4}, torch::kLong), "[2, 4]");
  refuses(longs({0, 1, 2}), longs({0, 1}), "the shape of target, [2]");
  refuses(torch::rand({2}), longs({0, 1}), "Float [2]");
  refuses(torch::rand({2, 3}), torch::rand({2}), "integers");
  refuses(at::Tensor(), longs({0}), "undefined");
  refuses(torch::rand({2, 3}), at::Tensor(), "undefined");
  Recall multilabel(Multilabel{.num_labels = 4});
  expect_error<DataError>(
      [&] {
        multilabel.update(torch::rand({2, 3}), torch::zeros({2, 3}));
      },
      {"[N, 4, ...]"});
  ConfusionMatrix binary(Binary{});
  expect_error<DataError>(
      [&] {
        binary.update(torch::rand({2}), torch::zeros({2, 1}));
      },
      {"ConfusionMatrix: preds"});
}

// Padding does not make logits of probabilities.
TEST(ClassificationInputs, MayBeAnythingWhereTheyAreIgnored) {
  ConfusionMatrix matrix(Binary{.ignore_index = -1});
  matrix.update(torch::tensor({0.3, 0.4, 0.7, -100.0}), torch::tensor({0, 0, 1, -1}));
  EXPECT_TRUE(matrix.compute().equal(torch::tensor({{2, 0}, {0, 1}})));
}

TEST(ClassificationInputs, NeedScoresForTheBestK) {
  Accuracy accuracy(Multiclass{.num_classes = 3, .top_k = 2});
  expect_error<DataError>(
      [&] {
        accuracy.update(longs({0, 1}), longs({0, 1}));
      },
      {"Accuracy: preds", "scores"});
}

TEST(ClassificationInputs, MayBeEmptyOrOfOtherDtypes) {
  Accuracy accuracy(Multiclass{.num_classes = 3});
  accuracy.update(torch::rand({0, 3}), torch::zeros({0}, torch::kLong));
  EXPECT_EQ(accuracy.compute().item<double>(), 0);
  accuracy.update(torch::eye(3).to(torch::kBFloat16), torch::arange(3, torch::kByte));
  EXPECT_EQ(accuracy.compute().item<double>(), 1);
  Accuracy binary(Binary{});
  binary.update(torch::tensor({true, false}), torch::tensor({1.0, 1.0}));
  EXPECT_EQ(binary.compute().item<double>(), 0.5);
  Auroc auroc(Binary{});
  auroc.update(torch::empty({0}), torch::empty({0}));
  EXPECT_TRUE(std::isnan(auroc.compute().item<double>()));
  Auroc classes(Multiclass{.num_classes = 3}, {.average = Average::kNone});
  EXPECT_EQ(classes.compute().sizes(), (std::vector<std::int64_t>{3}));
}

TEST(AurocInputs, AreScores) {
  Auroc auroc(Binary{});
  expect_error<DataError>(
      [&] {
        auroc.update(longs({0, 1}), longs({0, 1}));
      },
      {"Auroc: preds", "floating point"});
  expect_error<DataError>([&] { auroc.update(torch::full({1}, std::nan("")), longs({1})); },
                          {"Auroc: preds", "NaN"});
}

TEST(AurocInputs, LeaveLabelsWithoutSamplesOutOfTheMean) {
  Auroc auroc(Multilabel{.num_labels = 2, .ignore_index = -1});
  auroc.update(torch::tensor({{0.1, 0.5}, {0.9, 0.5}}), torch::tensor({{0, -1}, {1, -1}}));
  EXPECT_EQ(auroc.compute().item<double>(), 1);
}

TEST(RegressionInputs, NameShapesThatDoNotFit) {
  MeanSquaredError error;
  expect_error<DataError>([&] { error.update(torch::rand({2}), torch::rand({3})); },
                          {"MeanSquaredError: preds", "[3]"});
  MeanAbsoluteError columns({.num_outputs = 3});
  expect_error<DataError>(
      [&] {
        columns.update(torch::rand({2, 2}), torch::rand({2, 2}));
      },
      {"MeanAbsoluteError: preds", "[N, 3]", "[2, 2]"});
  EXPECT_TRUE(std::isnan(error.compute().item<double>()));
  error.update(longs({1, 2}), torch::tensor({1.0, 4.0}));
  EXPECT_EQ(error.compute().item<double>(), 2);
}

TEST(AurocOptionsTest, ThresholdsNeedNotReachTheEndsOfTheCurve) {
  Auroc between(Binary{}, {.max_fpr = 0.9, .thresholds = std::vector<double>{0.5}});
  between.update(torch::tensor({0.2, 0.6, 0.7, 0.9}), torch::tensor({0, 1, 0, 1}));
  EXPECT_NEAR(between.compute().item<double>(), 0.5 * (1 + (0.65 - 0.405) / (0.9 - 0.405)), 1e-12);
  Auroc at_the_top(Binary{}, {.max_fpr = 0.25, .thresholds = 3});
  at_the_top.update(torch::tensor({1.0, 0.1, 0.8, 0.6}), torch::tensor({0, 0, 1, 1}));
  EXPECT_NEAR(at_the_top.compute().item<double>(), 0.5 * (1 - 0.03125 / (0.25 - 0.03125)), 1e-12);
}

}  // namespace
}  // namespace lockstep::metrics
