// What the ranks of ZeRO have saved, by parameter: in which rows of which ranks its elements lie. Each rank
// has flat rows of elements, one for each group of parameters (stages 1 and 2) or for each sub-group (stage
// 3).
//
// Stages 1 and 2: the parameters of a group follow each other in one long row, which is cut into as many
// pieces as there are ranks. Stage 3: each parameter is cut into as many equal pieces, the last ones padded;
// the pieces that a rank has follow each other through all of its rows.
// https://github.com/deepspeedai/DeepSpeed/blob/v0.19.8/deepspeed/utils/zero_to_fp32.py
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <lockstep/base/expected.h>
#include <lockstep/base/export.h>

#include "formats/stored_elements.h"
#include "formats/zero_files.h"

namespace lockstep::detail {

struct ZeroParameter {
  std::string name;
  std::vector<std::int64_t> shape;
  std::uint64_t elements = 0;
  std::size_t row = 0;        ///< of the optimizer: a group, or a sub-group of stage 3
  std::uint64_t padding = 0;  ///< stages 1 and 2: unused elements behind it
};

/// A run of elements in a row of a rank.
struct ZeroRun {
  std::size_t rank = 0;
  std::size_t row = 0;
  std::uint64_t begin = 0;
  std::uint64_t elements = 0;
};

/// Elements of each row, by rank.
using ZeroLengths = std::vector<std::vector<std::uint64_t>>;
/// The runs of each parameter, in the order of the parameters.
using ZeroRuns = std::vector<std::vector<ZeroRun>>;

/// The runs at stages 1 and 2; `groups` has the parameters of each row. The reason for a refusal says what
/// does not fit.
LOCKSTEP_API Expected<ZeroRuns> zero_runs_of_groups(const std::vector<std::vector<ZeroParameter>>& groups,
                                                    const ZeroLengths& lengths);

/// The runs at stage 3.
LOCKSTEP_API Expected<ZeroRuns> zero_runs_of_pieces(const std::vector<ZeroParameter>& parameters,
                                                    const ZeroLengths& lengths);

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
  /// The runs of the parameter of that number.
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

/// The shape in a torch.Size of `file`. @throws CheckpointError naming file and tensor
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

/// The key in the optimizer file of a rank under which the state of the inner optimizer is; stages 1 to 3.
const char* inner_key(int stage);

/// The dicts in `state` of the inner optimizer, by the number of the row.
std::unordered_map<std::int64_t, const pickle::Dict*> rows_in(const pickle::Dict& state);

/// Refuses optimizers of several ranks that were saved at different steps, where their rows say it.
/// @throws CheckpointError naming the file
void check_steps(const ZeroFiles& files);

}  // namespace lockstep::detail
