// The cases of golden_metrics.json: inputs, metrics made of their arguments, and what torchmetrics computed.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <lockstep/metrics/metric.h>
#include <lockstep/torch.h>
#include <nlohmann/json.hpp>

namespace lockstep::metrics::test {

/// The file. make_golden_metrics.py says what is in it.
const nlohmann::json& golden();

/// Named tensors of one batch: preds and target, or value and weight.
using Batch = std::map<std::string, at::Tensor>;
std::vector<Batch> batches_of(const nlohmann::json& golden_case);

/// A tensor as the file has it.
at::Tensor tensor_of(const nlohmann::json& stored, at::ScalarType dtype);

/// A metric of any class, by what a case does with it.
struct AnyMetric {
  std::unique_ptr<Metric> metric;
  std::function<void(const Batch&)> update;
  std::function<at::Tensor(const Batch&)> forward;
};
AnyMetric metric_of(const nlohmann::json& golden_case);

/// Whether the value is a function of integer counts or kept rows, and so the same bits for any order of
/// batches.
bool is_exact(const nlohmann::json& golden_case);

}  // namespace lockstep::metrics::test
