// Optimizer settings of a resumed run: the checkpoint's settings override those that the program gives.
#pragma once

#include <string>
#include <vector>

#include "train/options/run_setup.h"

namespace lockstep::detail {

/// Learning rate, weight decay and momentum of each optimizer's groups.
class OptimizerSettings {
 public:
  /// Takes the settings that the program gives, before a checkpoint is loaded.
  explicit OptimizerSettings(const RunSetup& setup);

  /// Call after the checkpoint is loaded: rank 0 warns once of given settings that have no effect. The
  /// checkpoint's settings replace them in the recorded options of the run.
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

/// Returns `yaml` with the scalar at `key` ("optimizer.lr") set to `value`; unchanged where there is none.
LOCKSTEP_API std::string with_scalar(const std::string& yaml, const std::string& key,
                                     const std::string& value);

}  // namespace lockstep::detail
