// What a sweep of learning rates has shown, and the rate that it suggests.
#pragma once

#include <filesystem>
#include <optional>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/train/tuner_options.h>

namespace lockstep {

/// Learning rates and the smoothed loss that each led to, in the order in which they were tried. A value.
struct LOCKSTEP_API LrFindResult {
  LrFindMode mode = LrFindMode::kExponential;
  std::vector<double> lr = {};
  std::vector<double> loss = {};  ///< as many; Lightning's running mean of factor 0.98

  /// The learning rate at which the loss falls most steeply (by the learning rate itself, not its
  /// logarithm), without the first `skip_begin` points, the last `skip_end` and those whose loss is not
  /// finite. None where fewer than two points are left.
  std::optional<double> suggestion(int skip_begin = 10, int skip_end = 1) const;

  /// Draws loss over learning rate as an SVG picture and marks suggestion(), where there is one.
  /// @throws IoError when the file cannot be written
  void plot(const std::filesystem::path& file) const;
};

}  // namespace lockstep
