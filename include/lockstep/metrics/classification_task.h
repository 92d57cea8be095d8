// What a classifier decides: one of two classes, one of many, or many labels at once.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <variant>

#include <lockstep/base/export.h>
#include <lockstep/base/option_type.h>

namespace lockstep::metrics {

/// Two classes. preds: scores (floating point) or classes 0 and 1, of any shape; target: 0 and 1, of the same
/// shape. Scores of a batch with one outside of [0, 1] are logits, and go through a sigmoid.
struct Binary {
  double threshold = 0.5;                         ///< scores above it are class 1; 0 to 1
  std::optional<std::int64_t> ignore_index = {};  ///< target of elements that do not count

  bool operator==(const Binary&) const = default;
};

/// One of many classes. preds: scores [N, num_classes, ...], or classes [N, ...]; target: classes [N, ...].
struct Multiclass {
  std::int64_t num_classes = 0;                   ///< at least 2
  std::int64_t top_k = 1;                         ///< the target among the k best scores counts as predicted
  std::optional<std::int64_t> ignore_index = {};  ///< target of elements that do not count

  bool operator==(const Multiclass&) const = default;
};

/// Many labels, each there or not. preds: scores or 0 and 1, [N, num_labels, ...]; target: 0 and 1, of the
/// same shape. Scores of a batch with one outside of [0, 1] are logits, and go through a sigmoid.
struct Multilabel {
  std::int64_t num_labels = 0;                    ///< at least 2
  double threshold = 0.5;                         ///< scores above it say that the label is there; 0 to 1
  std::optional<std::int64_t> ignore_index = {};  ///< target of elements that do not count

  bool operator==(const Multilabel&) const = default;
};

/// One of the three.
using ClassificationTask = std::variant<Binary, Multiclass, Multilabel>;

/// How the scores of classes or labels become one. Of no account for Binary.
enum class Average {
  kMicro,     ///< counts of all classes are summed first
  kMacro,     ///< mean over classes; of Multiclass, without those that are neither predicted nor there
  kWeighted,  ///< mean over classes, each weighted by how often it is the target
  kNone       ///< one value per class
};

LOCKSTEP_API std::span<const OptionName<Average>> option_names(Average);

}  // namespace lockstep::metrics
