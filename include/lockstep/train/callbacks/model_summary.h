// ModelSummary: a table of a model's parts.
#pragma once

#include <string>

#include <lockstep/train/hooks.h>

namespace lockstep {

/// Prints, when fit starts, the modules of the model with their numbers of parameters. Lightning's.
class LOCKSTEP_API ModelSummary final : public Callback {
 public:
  /// Modules down to `max_depth` below the model have a line; -1: all, 0: only the sums are printed.
  explicit ModelSummary(int max_depth = 1) : max_depth_(max_depth) {}

  void on_fit_start(TrainContext& context) override;

 private:
  int max_depth_;
};

/// The table of `module`, as ModelSummary prints it.
LOCKSTEP_API std::string summarize(const AnyModule& module, int max_depth = 1);

}  // namespace lockstep
