// What a run that goes on has of its optimizers' settings: those of the checkpoint, not those that it was
// given.
#pragma once

#include <string>
#include <vector>

#include "train/options/run_setup.h"

namespace lockstep::detail {

/// Learning rate, weight decay and momentum of each optimizer's groups.
class OptimizerSettings {
 public:
  /// As the program has given them: before a checkpoint is loaded.
  explicit OptimizerSettings(const RunSetup& setup);

  /// Once it is: says on rank 0, in one warning, which of them have no effect, and puts the checkpoint's into
  /// what is recorded of the run's options.
  void tell(RunSetup& setup) const;

 private:
  struct Setting {
    std::string name;   // as options call it
    std::string place;  // optimizer/group
    double value = 0;
  };

  static std::vector<Setting> settings_of(const RunSetup& setup);

  std::vector<Setting> given_;
};

/// `yaml` with `value` for the scalar of `key`, "optimizer.lr"; as it is where there is none.
LOCKSTEP_API std::string with_scalar(const std::string& yaml, const std::string& key,
                                     const std::string& value);

}  // namespace lockstep::detail
