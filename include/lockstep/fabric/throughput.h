// Throughput: batches, samples and operations per second over the latest updates.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

#include <lockstep/base/export.h>

namespace lockstep {

/// Names, meaning and defaults are Lightning's.
struct ThroughputOptions {
  std::optional<double> available_flops = {};  ///< floating-point operations per second that a device can do
  int world_size = 1;                          ///< devices; of one, only its own figures are given
  std::size_t window_size = 100;               ///< updates that rates are measured over, >= 2
  std::string separator = "/";                 ///< in "device/samples_per_sec"
};

/// Totals of this device since the start: each larger than in the update before.
struct ThroughputUpdate {
  std::chrono::duration<double> time = {};   ///< that has passed
  std::int64_t batches = 0;                  ///< that were seen
  std::int64_t samples = 0;                  ///< in them: at least as many
  std::optional<std::int64_t> lengths = {};  ///< items, such as tokens, in the samples: at least as many
  std::optional<double> flops = {};          ///< floating-point operations since the update before
};

/// Give it the totals after each batch; nothing is measured and no rank asked. Lightning's Throughput.
class LOCKSTEP_API Throughput {
 public:
  /// Values by name.
  using Metrics = std::map<std::string, double, std::less<>>;

  /// @throws ConfigError naming the option that is out of range
  explicit Throughput(ThroughputOptions options = {});

  /// @throws ConfigError naming the total that has not grown, or is smaller than what it must hold; nothing
  ///   is taken then
  void update(const ThroughputUpdate& totals);

  /// "time" in seconds, "batches", "samples" and, if given, "lengths"; once the window is full also
  /// "device/batches_per_sec", "device/samples_per_sec", "device/items_per_sec", "device/flops_per_sec" and
  /// "device/mfu", the share of available_flops that is used. With several devices the same rates without
  /// "device/", world_size times as large: they are taken to be equally fast.
  /// @throws ConfigError before the first update
  Metrics compute() const;

  /// Forgets all updates.
  void reset();

  /// Of the latest update; 0 before the first.
  std::chrono::duration<double> time() const;

 private:
  void check(const ThroughputUpdate& totals) const;
  void add_rates(Metrics& metrics) const;
  void add_flops(Metrics& metrics) const;
  void add_rate(Metrics& metrics, const std::string& name, double per_second) const;

  ThroughputOptions options_;
  std::deque<ThroughputUpdate> window_;
  std::deque<double> flops_;  // of all devices, by update
};

}  // namespace lockstep
