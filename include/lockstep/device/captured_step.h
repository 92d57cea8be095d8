// CapturedStep: a step of training that is recorded once and issued again by one call.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>

namespace lockstep {

/// A function of tensors whose work on a device is recorded after some calls and replayed by later ones:
/// CUDA's graphs. The host then neither computes shapes nor issues operators one by one.
///
/// What the function does on the host happens while it is recorded, not in replays, but for what lockstep
/// does itself: learning rates, step counts, logged values and collectives are those of each step. Tensors
/// must keep their place: write to them (`mean.mul_(0.9)`), do not put others in theirs (`mean = mean *
/// 0.9`). What cannot be recorded, such as a number that the host reads, is not: then one warning says why,
/// and the function is called as it is. So it is for inputs of other shapes than the recorded ones, such as a
/// last, smaller batch. The bits are the same in every case.
///
/// Collective where the function is; ranks need not agree on what they record. Blocks no longer than the
/// function. Not thread-safe. What the function uses must outlive this.
/// Source: torch.cuda.graph, torch.cuda.make_graphed_callables
class LOCKSTEP_API CapturedStep {
 public:
  /// What goes into a step and comes out of it.
  using Tensors = std::vector<at::Tensor>;
  /// A step: tensors in, tensors out.
  using Function = std::function<Tensors(const Tensors&)>;

  /// What somebody around the function has to do.
  struct Around {
    std::function<void()> before_step;  ///< before each call of the function and each replay, not recorded
    std::function<void()> given_up;     ///< what the function did last was recorded, and is not done
  };

  /// @param device   of the function's inputs, or the CPU, where nothing is recorded
  /// @param warm_up  calls before one may be recorded, >= 1
  CapturedStep(at::Device device, Function function, int warm_up = 3, Around around = {});
  ~CapturedStep();
  CapturedStep(CapturedStep&&) noexcept;
  CapturedStep& operator=(CapturedStep&&) noexcept;

  /// One step. What it returns is overwritten by the next call. `inputs` are on the device.
  Tensors operator()(const Tensors& inputs);

  /// Calls that were replays, the one that recorded among them.
  std::int64_t replays() const;
  /// Why no call is a replay; empty while they are or it has not been tried.
  const std::string& refusal() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
