// What ZeRO's ranks have saved, by parameter: where the elements of each are.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <lockstep/base/export.h>

#include "formats/stored_elements.h"
#include "formats/zero_files.h"
#include "formats/zero_layout.h"

namespace lockstep::detail {

class LOCKSTEP_API ZeroCheckpoint {
 public:
  /// Opens the checkpoint in `folder`, which has the tag's name.
  /// @throws as open_zero_files(); CheckpointError naming file and key, or parameter, of what does not fit
  explicit ZeroCheckpoint(const std::filesystem::path& folder) : ZeroCheckpoint(open_zero_files(folder)) {}
  explicit ZeroCheckpoint(ZeroFiles files);

  const ZeroFiles& files() const { return files_; }
  int stage() const { return files_.stage; }
  /// The model's file of rank 0.
  const OpenedTorchFile& model() const { return files_.models.front(); }

  /// The parameters that are trained, in the optimizer's order; none at stage 0.
  const std::vector<ZeroParameter>& parameters() const { return parameters_; }
  /// Where the ranks keep the parameter of that number.
  const std::vector<ZeroRun>& runs_of(std::size_t number) const { return runs_.at(number); }
  /// The float32 weights of the parameter of that number.
  StoredElements weights_of(std::size_t number) const;

 private:
  std::vector<std::vector<ZeroParameter>> read_groups() const;
  void read_rows();
  void refuse_copies() const;
  void find_runs(const std::vector<std::vector<ZeroParameter>>& groups);

  ZeroFiles files_;
  std::vector<ZeroParameter> parameters_;
  std::vector<std::vector<StoredElements>> rows_;  // of float32, by rank
  ZeroRuns runs_;                                  // by parameter
};

/// The shape that a torch.Size in `file` says. @throws CheckpointError naming file and tensor
std::vector<std::int64_t> zero_shape(const OpenedTorchFile& file, const std::string& name,
                                     const pickle::Value& shape);

/// The product of `shape`. @throws CheckpointError when it is none
std::uint64_t zero_elements(const OpenedTorchFile& file, const std::string& name,
                            const std::vector<std::int64_t>& shape);

/// The elements of a tensor in `file`, in row-major order: one run where they lie so.
StoredElements elements_of(const OpenedTorchFile& file, const pickle::Tensor& tensor);

// The rows of an optimizer in files of DeepSpeed, and how many steps each has had.

/// A number, also one in a tensor of one element; nothing where `value` is null or anything else.
std::optional<double> number_in(const OpenedTorchFile& file, const pickle::Value* value);

/// Where in the optimizer file of a rank that of the optimizer within ZeRO's is; stages 1 to 3.
const char* inner_key(int stage);

/// The dicts of its `state`, by the number of the row.
std::unordered_map<std::int64_t, const pickle::Dict*> rows_in(const pickle::Dict& state);

/// Refuses optimizers of several ranks that were saved at different steps, where their rows say it.
/// @throws CheckpointError naming the file
void check_steps(const ZeroFiles& files);

}  // namespace lockstep::detail
