// What loggers write: rows of metrics, and hyper-parameters as hparams.yaml.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/loggers/logger.h>

namespace lockstep::detail {

// Names of metrics as loggers write them.

/// `prefix-name` for each metric, or the metrics as they are where there is no prefix.
inline std::vector<Metric> prefixed(const std::string& prefix, std::span<const Metric> metrics) {
  std::vector<Metric> named(metrics.begin(), metrics.end());
  if (prefix.empty()) return named;
  for (auto& [name, value] : named) name = prefix + "-" + name;
  return named;
}

/// Whether it is a whole number that an int64 and a double hold exactly.
bool is_whole(double value);

/// As in Lightning, a metric that is called `epoch` or `step` stands in for the Trainer's own number.
struct MetricRow {
  double epoch = 0;
  double step = 0;
  std::int64_t whole_step = 0;       ///< for files whose steps are whole numbers
  std::vector<Metric> metrics = {};  ///< the others, their names in UTF-8; of one name the last

  /// The metrics and the epoch, under names that begin with `prefix-` unless that is empty.
  std::vector<Metric> prefixed(const std::string& prefix) const;
};

MetricRow row_of(std::span<const Metric> metrics, std::int64_t epoch, std::int64_t step);

/// The settings as YAML: sorted by name, nested where names have slashes. A name that is both a setting and
/// a group (`a` and `a/b`) keeps its slash.
LOCKSTEP_API std::string hparams_yaml(const std::map<std::string, HyperParameter>& params);

/// hparams.yaml in a folder that may be known only later.
class LOCKSTEP_API HparamsFile {
 public:
  /// Takes settings; one that was given before is replaced.
  void update(const HyperParameters& params);

  /// Whether there is something that write() has not written yet.
  bool changed() const { return changed_; }

  /// Writes `folder`/hparams.yaml when there is something new. Blocking.
  /// @throws IoError when it cannot be written
  void write(const std::filesystem::path& folder);

 private:
  std::map<std::string, HyperParameter> params_;
  bool changed_ = false;
};

}  // namespace lockstep::detail
