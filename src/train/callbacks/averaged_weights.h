// A second set of a module's weights: the averages of its weights over training.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <lockstep/state/state_tree.h>
#include <lockstep/torch.h>
#include <lockstep/train/train_context.h>

namespace lockstep::detail {

/// Updates `averages` with `weights`, in place, after `num_averaged` earlier updates: a MultiAverageFunction.
using AverageUpdate =
    std::function<void(at::TensorList averages, at::TensorList weights, std::int64_t num_averaged)>;

/// Parameters and, if wanted, floating-point buffers are averaged; other buffers are taken as they are. Works
/// in place on the tensors of the module, which it holds; averages are computed by every rank for itself.
class AveragedWeights {
 public:
  /// Starts with the current weights of `module` as averages.
  AveragedWeights(const torch::nn::Module& module, bool averages_buffers);

  /// Adds the module's current weights to the averages; the first call copies them. No allocation.
  void update(const AverageUpdate& average);
  std::int64_t num_averaged() const { return num_averaged_; }
  /// Copies from the module what is not averaged.
  void take_others();

  /// Sets the averages of weights to 0 that callbacks of `context` have pruned.
  void prune(const TrainContext& context) const;

  /// Swaps averages and weights; a second call swaps them back.
  void swap();
  /// Whether the module holds the averages at the moment.
  bool is_swapped() const { return is_swapped_; }

  /// The averages by PyTorch names, whether they are swapped or not; the tensors alias.
  StateTree averages() const { return is_swapped_ ? in_module() : beside_; }
  StateTree weights() const { return is_swapped_ ? beside_ : in_module(); }

  /// The averages of this rank's buffers, and the buffers themselves: they may differ from rank 0's.
  StateTree average_buffers() const { return buffers_of(averages()); }
  StateTree current_buffers() const { return buffers_of(weights()); }
  /// Puts `buffers` into the module. @throws CheckpointError as StateTree::copy_to
  void set_buffers(const StateTree& buffers) const;

  /// Continues with averages of `num_averaged` updates; `buffers` go before `averages`.
  /// @throws CheckpointError as StateTree::copy_to
  void load_averages(const StateTree& averages, const StateTree& buffers, std::int64_t num_averaged);

 private:
  struct Tensors {
    std::vector<at::Tensor> weights, averages;
    void add(const at::Tensor& weight);
    void swap() const;
  };

  void add(const torch::OrderedDict<std::string, at::Tensor>& named, bool averages);
  StateTree in_module() const;
  StateTree buffers_of(const StateTree& all) const;

  Tensors averaged_, copied_;
  StateTree module_, beside_;  // all names, also several of one tensor
  std::vector<std::string> buffer_names_;
  std::int64_t num_averaged_ = 0;
  bool is_swapped_ = false;
};

}  // namespace lockstep::detail
