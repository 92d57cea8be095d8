// The state of an optimizer in a checkpoint of DeepSpeed, by parameter.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <lockstep/base/export.h>

#include "formats/zero_checkpoint.h"

namespace lockstep::detail {

class LOCKSTEP_API ZeroOptimizer {
 public:
  /// `checkpoint` must outlive it. @throws CheckpointError naming the file: of stage 0, which does not say
  /// whose state is whose, or a form that is not known
  explicit ZeroOptimizer(const ZeroCheckpoint& checkpoint);

  /// The number of the parameter of that name. @throws CheckpointError when it was not trained
  std::size_t number_of(const std::string& name) const;

  /// Elements of `kind`, such as exp_avg, as many as the parameter of that number has.
  /// @throws CheckpointError naming the kind when there are none
  StoredElements state_of(std::size_t number, const std::string& kind) const;

  /// Updates of the parameter of that number.
  double steps_of(std::size_t number) const;

  /// The value under `key` in the settings of the parameter's group: lr, weight_decay, betas.
  const pickle::Value* setting_of(std::size_t number, const char* key) const;

  /// The factor of the loss; none where it is 1 for good.
  std::optional<double> loss_scale() const;

 private:
  const OpenedTorchFile& file(std::size_t rank) const { return checkpoint_.files().optimizers[rank]; }
  const pickle::Dict& inner(std::size_t rank) const;
  const pickle::Dict& row(std::size_t rank, std::size_t number) const;

  const ZeroCheckpoint& checkpoint_;
};

}  // namespace lockstep::detail
