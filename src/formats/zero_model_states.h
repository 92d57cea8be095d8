// The model states in a checkpoint of DeepSpeed, of any stage of ZeRO and number of ranks: weights as whole
// tensors, and the state of the optimizer by parameter.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <lockstep/base/export.h>

#include "formats/stored_elements.h"
#include "formats/zero_checkpoint.h"

namespace lockstep::detail {

/// A tensor. Its elements lie in the files of the checkpoint.
struct StoredTensorView {
  std::string name;
  std::vector<std::int64_t> shape;
  StoredElements elements;
  std::string tied_to = {};  ///< the tensor before it that it is one with; empty where it is none
};

/// Buffers, frozen parameters, those that are trained, tied ones, as DeepSpeed's
/// get_fp32_state_dict_from_zero_checkpoint() has them; and what that leaves out: the frozen ones of stage 1,
/// and the model of stage 0. They are valid as long as `checkpoint`.
/// @throws CheckpointError naming file and key; ConfigError for `exclude_frozen` at stage 0, which does not
/// say which are frozen
LOCKSTEP_API std::vector<StoredTensorView> zero_weights(const ZeroCheckpoint& checkpoint,
                                                        bool exclude_frozen = false);

class LOCKSTEP_API ZeroOptimizer {
 public:
  /// `checkpoint` must outlive it. @throws CheckpointError naming the file: of stage 0, which does not say
  /// whose state is whose, or a form that is not known
  explicit ZeroOptimizer(const ZeroCheckpoint& checkpoint);

  /// The number of the parameter of that name; none where it was not trained.
  std::optional<std::size_t> find(const std::string& name) const;
  /// The same. @throws CheckpointError when it was not trained
  std::size_t number_of(const std::string& name) const;

  /// Elements of `kind`, such as exp_avg, as many as the parameter of that number has.
  /// @throws CheckpointError naming the kind when there are none
  StoredElements state_of(std::size_t number, const std::string& kind) const;

  /// Updates of the parameter of that number. @throws CheckpointError naming the rank's file when there is
  /// none, or ranks differ
  double steps_of(std::size_t number) const;

  /// What is under `key` in the settings of the parameter's group, such as lr, weight_decay or betas: a
  /// number, or those of a list or tuple; empty where the key is not there.
  /// @throws CheckpointError naming file and key when it is anything else
  std::vector<double> setting_of(std::size_t number, const char* key) const;

  /// The factor of the loss; none where it is 1 for good.
  std::optional<double> loss_scale() const;

 private:
  const OpenedTorchFile& file(std::size_t rank) const { return checkpoint_.files().optimizers[rank]; }
  const pickle::Dict& inner(std::size_t rank) const;
  const pickle::Dict& row(std::size_t rank, std::size_t number) const;
  const pickle::Dict* group_of(std::size_t row) const;
  std::optional<double> steps_in(std::size_t rank, std::size_t row) const;

  const ZeroCheckpoint& checkpoint_;
  std::unordered_map<std::string, std::size_t> numbers_;                          // by name
  std::vector<std::unordered_map<std::int64_t, const pickle::Dict*>> rows_ = {};  // by rank
};

}  // namespace lockstep::detail
