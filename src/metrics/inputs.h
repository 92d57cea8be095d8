// What classification metrics share: checks of what update() is given, scores from counts, and errors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include <ATen/core/Tensor.h>

#include <lockstep/metrics/classification_task.h>

namespace lockstep::metrics::detail {

/// @throws ConfigError: an option, such as "Accuracy: num_classes", is not usable
[[noreturn]] void refuse_option(std::string what, std::string expected, std::string got);

/// The same if `allowed` is false, where `value` was given.
void require_option(bool allowed, const std::string& what, double value, const std::string& expected);

/// @throws DataError: an argument of update(), such as "Accuracy: target", is not usable
[[noreturn]] void refuse_input(std::string what, std::string expected, std::string got);

/// The same if `allowed` is false, where `value` was given.
void require_input(bool allowed, const std::string& what, const at::Tensor& value,
                   const std::string& expected);

/// "Float [2, 3]"
std::string text_of(const at::Tensor& tensor);

/// numerator / denominator in float64, `zero_division` where the denominator is 0.
at::Tensor safe_divide(const at::Tensor& numerator, const at::Tensor& denominator, double zero_division = 0);

/// The mean of `values` [n], weighted by `weights` [n]; 0 where these sum to 0.
at::Tensor weighted_mean(const at::Tensor& values, const at::Tensor& weights);

/// `task`. @throws ConfigError naming `owner` and the field that is out of range
const ClassificationTask& checked_task(const std::string& owner, const ClassificationTask& task);

/// The same for metrics that have no top_k.
const ClassificationTask& checked_task_without_top_k(const std::string& owner,
                                                     const ClassificationTask& task);

/// Number of classes or labels; 1 for Binary.
std::int64_t width_of(const ClassificationTask& task);

/// Scores as probabilities: themselves where all lie in [0, 1], else what `normalize` makes of them.
enum class Normalization { kSigmoid, kSoftmax };
at::Tensor probabilities(const at::Tensor& scores, Normalization normalize);

/// Where `target` counts, bool; undefined if everything does.
at::Tensor counted(const at::Tensor& target, const std::optional<std::int64_t>& ignore_index);

/// Those elements, or rows, of `values` where `is_counted`; all where that is undefined.
at::Tensor select_counted(const at::Tensor& values, const at::Tensor& is_counted);

/// @throws DataError unless `target` holds integers, or numbers that are, from 0 to `classes` - 1 or
///   `ignore_index`. `what` is "Accuracy: target"
void check_classes(const std::string& what, const at::Tensor& target, std::int64_t classes,
                   const std::optional<std::int64_t>& ignore_index);

/// Checks of shapes. @throws DataError
void check_same_shape(const std::string& owner, const at::Tensor& preds, const at::Tensor& target);
void check_labels_shape(const std::string& owner, const at::Tensor& preds, const at::Tensor& target,
                        std::int64_t num_labels);
void check_scores_shape(const std::string& owner, const at::Tensor& preds, const at::Tensor& target,
                        std::int64_t num_classes);

/// [N, C, ...] as [N * ..., C].
at::Tensor classes_last(const at::Tensor& values);

}  // namespace lockstep::metrics::detail
