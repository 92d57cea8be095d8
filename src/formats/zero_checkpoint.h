// Checkpoints of DeepSpeed, of any stage of ZeRO and number of ranks: their files, what the ranks have saved
// by parameter, and the model states: weights as whole tensors, and the state of the optimizer by parameter.
//
// The files of a checkpoint, FOLDER/TAG/:
//
//   mp_rank_00_model_states.pt                          stages 0 to 2: the model, from rank 0
//   zero_pp_rank_R_mp_rank_00_model_states.pt           stage 3: from every rank R
//   [bf16_]zero_pp_rank_R_mp_rank_00_optim_states.pt    stages 1 to 3: the optimizer, from every rank R
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
#include "formats/torch_file.h"

namespace lockstep::detail {

/// Whether `folder` has files of such a checkpoint.
LOCKSTEP_API bool has_zero_files(const std::filesystem::path& folder);

struct ZeroFiles {
  std::filesystem::path folder;
  int stage = 0;
  std::vector<OpenedTorchFile> models;      ///< by rank; of stages 0 to 2 that of rank 0 alone
  std::vector<OpenedTorchFile> optimizers;  ///< by rank; at stage 0 none, or of bfloat16
};

/// Opens all of them; the bytes are compared with their checksums.
/// @throws IoError; CheckpointError naming the file that is missing, damaged, left over from another
///   checkpoint or of another kind, such as one of tensor parallelism
LOCKSTEP_API ZeroFiles open_zero_files(const std::filesystem::path& folder);

/// What is under `key` of a dict of `file`. @throws CheckpointError naming file and key unless it is a T
template <class T>
const T& held_in(const OpenedTorchFile& file, const pickle::Dict& dict, const char* key);

/// The dict of a rank's optimizer file in which everything is that ZeRO keeps.
/// @throws CheckpointError naming the file when there is none
LOCKSTEP_API const pickle::Dict& zero_state(const OpenedTorchFile& optimizer);

[[noreturn]] LOCKSTEP_API void refuse_key(const OpenedTorchFile& file, const std::string& key,
                                          const std::string& expected, const std::string& got);

template <class T>
const T& held_in(const OpenedTorchFile& file, const pickle::Dict& dict, const char* key) {
  const auto* value = dict.find(key);
  const auto* held = value == nullptr ? nullptr : value->as<T>();
  if (held == nullptr)
    refuse_key(file, key, std::string(pickle::Value(T{}).kind()),
               value == nullptr ? "none" : std::string(value->kind()));
  return *held;
}

// What the ranks of ZeRO have saved, by parameter: in which rows of which ranks its elements lie. Each rank
// has flat rows of elements, one for each group of parameters (stages 1 and 2) or for each sub-group (stage
// 3).
//
// Stages 1 and 2: the parameters of a group follow each other in one long row, which is cut into as many
// pieces as there are ranks. Stage 3: each parameter is cut into as many equal pieces, the last ones padded;
// the pieces that a rank has follow each other through all of its rows.
// https://github.com/deepspeedai/DeepSpeed/blob/v0.19.8/deepspeed/utils/zero_to_fp32.py

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

// The model states.

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
