// How the Tuner searches (names, meaning and defaults are Lightning's), and what a sweep of learning rates
// has shown.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/base/option_type.h>
#include <lockstep/base/options.h>
#include <lockstep/train/train_context.h>

namespace lockstep {

/// How scale_batch_size() goes from one size to the next.
enum class BatchSizeMode {
  kPower,     ///< doubles until the memory is not enough
  kBinsearch  ///< the same, then halves the distance between what fits and what does not
};

LOCKSTEP_API std::span<const OptionName<BatchSizeMode>> option_names(BatchSizeMode);

/// How a batch size is searched.
struct ScaleBatchSizeOptions {
  EnumOption<BatchSizeMode> mode = BatchSizeMode::kPower;
  int steps_per_trial = 3;      ///< optimizer steps, or batches of an evaluation, with each size
  std::int64_t init_val = 2;    ///< samples of a rank's batch in the first trial
  int max_trials = 25;          ///< at most so many sizes; kBinsearch counts those that fit
  double margin = 0.05;         ///< what kBinsearch takes off in the end: 0.05 is 5 %
  std::int64_t max_val = 8192;  ///< no larger size is tried
  Stage method = Stage::kFit;   ///< what is run with each size: kFit, kValidate, kTest or kPredict
  /// Makes the data's next loaders give batches of that many samples. Called on every rank, in the end with
  /// what was found. None: the data module's set_batch_size().
  std::function<void(std::int64_t)> apply = {};
};

/// How lr_find() goes from min_lr to max_lr.
enum class LrFindMode {
  kExponential,  ///< by equal factors
  kLinear        ///< by equal differences
};

LOCKSTEP_API std::span<const OptionName<LrFindMode>> option_names(LrFindMode);

/// How a learning rate is searched.
struct LrFindOptions {
  double min_lr = 1e-8;
  double max_lr = 1.0;
  int num_training = 100;  ///< optimizer steps, each with a learning rate of its own
  EnumOption<LrFindMode> mode = LrFindMode::kExponential;
  /// Stop when the smoothed loss is worse than the best one by this factor; none: never.
  std::optional<double> early_stop_threshold = 4.0;
  bool update_attr = true;  ///< make use of what is suggested
  /// Takes the learning rate that is suggested, on every rank. None: nothing but the optimizer that is at
  /// work gets it.
  std::function<void(double)> apply = {};
};

/// All but `method` and `apply`.
LOCKSTEP_API void describe(OptionVisitor& visitor, ScaleBatchSizeOptions& options);
/// All but `update_attr` and `apply`.
LOCKSTEP_API void describe(OptionVisitor& visitor, LrFindOptions& options);

/// Learning rates and the smoothed loss that each led to, in the order in which they were tried. A value.
struct LOCKSTEP_API LrFindResult {
  LrFindMode mode = LrFindMode::kExponential;  ///< how the rate grows from trial to trial
  std::vector<double> lr = {};                 ///< rates that were tried
  std::vector<double> loss = {};               ///< as many; Lightning's running mean of factor 0.98

  /// The learning rate at which the loss falls most steeply (by the learning rate itself, not its
  /// logarithm), without the first `skip_begin` points, the last `skip_end` and those whose loss is not
  /// finite. None where fewer than two points are left.
  std::optional<double> suggestion(int skip_begin = 10, int skip_end = 1) const;

  /// Draws loss over learning rate as an SVG picture and marks suggestion(), where there is one.
  /// @throws IoError when the file cannot be written
  void plot(const std::filesystem::path& file) const;
};

}  // namespace lockstep
