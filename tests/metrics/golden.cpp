#include "metrics/golden.h"
#include "support/paths.h"

#include <cmath>
#include <fstream>
#include <limits>
#include <set>
#include <stdexcept>

#include <lockstep/metrics/aggregation.h>
#include <lockstep/metrics/classification.h>
#include <lockstep/metrics/regression.h>

namespace lockstep::metrics::test {
namespace {

using nlohmann::json;

double number_of(const json& value) {
  if (value.is_number()) return value.get<double>();
  const auto text = value.get<std::string>();
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  return (text == "-inf" ? -1 : 1) * std::numeric_limits<double>::infinity();
}

EnumOption<Average> average_of(const json& arguments, Average otherwise) {
  if (!arguments.contains("average")) return otherwise;
  return arguments.at("average").get<std::string>();
}

ClassificationTask task_of(const json& arguments) {
  const auto task = arguments.at("task").get<std::string>();
  std::optional<std::int64_t> ignore_index;
  if (arguments.contains("ignore_index")) ignore_index = arguments.at("ignore_index").get<std::int64_t>();
  const double threshold = arguments.value("threshold", 0.5);
  if (task == "binary") return Binary{.threshold = threshold, .ignore_index = ignore_index};
  if (task == "multiclass")
    return Multiclass{arguments.at("num_classes"), arguments.value("top_k", std::int64_t{1}), ignore_index};
  return Multilabel{arguments.at("num_labels"), threshold, ignore_index};
}

AurocOptions auroc_options_of(const json& arguments) {
  AurocOptions options{.average = average_of(arguments, Average::kMacro)};
  if (arguments.contains("max_fpr")) options.max_fpr = arguments.at("max_fpr").get<double>();
  const auto& thresholds = arguments.at("thresholds");
  if (thresholds.is_number()) options.thresholds = thresholds.get<std::int64_t>();
  if (thresholds.is_array()) options.thresholds = thresholds.get<std::vector<double>>();
  return options;
}

AggregationOptions aggregation_options_of(const json& arguments) {
  if (!arguments.contains("nan_strategy")) return {};
  const auto& strategy = arguments.at("nan_strategy");
  if (strategy.is_number()) return {.nan_strategy = strategy.get<double>()};
  return {.nan_strategy = strategy.get<std::string>()};
}

at::Tensor weight_of(const Batch& batch) {
  const auto weight = batch.find("weight");
  return weight == batch.end() ? at::Tensor() : weight->second;
}

template <class M>
AnyMetric of_predictions(M metric) {
  auto owned = std::make_unique<M>(std::move(metric));
  auto* raw = owned.get();
  return {std::move(owned), [raw](const Batch& batch) { raw->update(batch.at("preds"), batch.at("target")); },
          [raw](const Batch& batch) { return raw->forward(batch.at("preds"), batch.at("target")); }};
}

template <class M>
AnyMetric of_values(M metric) {
  auto owned = std::make_unique<M>(std::move(metric));
  auto* raw = owned.get();
  return {std::move(owned), [raw](const Batch& batch) { raw->update(batch.at("value")); },
          [raw](const Batch& batch) { return raw->forward(batch.at("value")); }};
}

AnyMetric mean_of(const AggregationOptions& options) {
  auto owned = std::make_unique<Mean>(options);
  auto* raw = owned.get();
  return {std::move(owned), [raw](const Batch& batch) { raw->update(batch.at("value"), weight_of(batch)); },
          [raw](const Batch& batch) { return raw->forward(batch.at("value"), weight_of(batch)); }};
}

AnyMetric of_task(const std::string& name, const json& arguments) {
  const auto task = task_of(arguments);
  const auto average = average_of(arguments, Average::kMicro);
  const double zero_division = arguments.value("zero_division", 0.0);
  if (name == "Accuracy") return of_predictions(Accuracy(task, {.average = average}));
  if (name == "Precision")
    return of_predictions(Precision(task, {.average = average, .zero_division = zero_division}));
  if (name == "Recall")
    return of_predictions(Recall(task, {.average = average, .zero_division = zero_division}));
  if (name == "F1Score") return of_predictions(F1(task, {.average = average}));
  if (name == "ConfusionMatrix")
    return of_predictions(ConfusionMatrix(task, {.normalize = arguments.at("normalize").get<std::string>()}));
  if (name == "AUROC") return of_predictions(Auroc(task, auroc_options_of(arguments)));
  if (name != "FBetaScore") throw std::runtime_error("no metric for " + name);
  return of_predictions(
      FBeta(task, {.beta = arguments.at("beta"), .average = average, .zero_division = zero_division}));
}

}  // namespace

const json& golden() {
  static const json file =
      json::parse(std::ifstream(lockstep::test::in_repository("tests/metrics/golden_metrics.json")));
  return file;
}

at::Tensor tensor_of(const json& stored, at::ScalarType dtype) {
  std::vector<double> data;
  for (const auto& value : stored.at("data")) data.push_back(number_of(value));
  return at::tensor(data, at::kDouble).to(dtype).view(stored.at("shape").get<std::vector<std::int64_t>>());
}

std::vector<Batch> batches_of(const json& golden_case) {
  std::vector<Batch> batches;
  for (const auto& stored : golden().at("inputs").at(golden_case.at("inputs"))) {
    auto& batch = batches.emplace_back();
    for (const auto& [name, tensor] : stored.items())
      batch[name] = tensor_of(tensor, tensor.at("dtype") == "float" ? at::kFloat : at::kLong);
  }
  return batches;
}

AnyMetric metric_of(const json& golden_case) {
  const auto name = golden_case.at("metric").get<std::string>();
  const auto& arguments = golden_case.at("arguments");
  if (name == "MeanMetric") return mean_of(aggregation_options_of(arguments));
  if (name == "SumMetric") return of_values(Sum(aggregation_options_of(arguments)));
  if (name == "MinMetric") return of_values(Min(aggregation_options_of(arguments)));
  if (name == "MaxMetric") return of_values(Max(aggregation_options_of(arguments)));
  if (name == "MeanSquaredError")
    return of_predictions(MeanSquaredError(
        {.squared = arguments.value("squared", true), .num_outputs = arguments.at("num_outputs")}));
  if (name == "MeanAbsoluteError")
    return of_predictions(MeanAbsoluteError({.num_outputs = arguments.at("num_outputs")}));
  return of_task(name, arguments);
}

bool is_exact(const json& golden_case) {
  static const std::set<std::string> sums = {"MeanMetric", "SumMetric", "MeanSquaredError",
                                             "MeanAbsoluteError"};
  return !sums.contains(golden_case.at("metric").get<std::string>());
}

}  // namespace lockstep::metrics::test
