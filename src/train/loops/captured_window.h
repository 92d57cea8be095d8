// Windows of micro-batches as captured steps: each kind of micro-batch is recorded by itself.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/device/captured_step.h>

#include "train/data/accumulation_window.h"

namespace lockstep::detail {

/// The first micro-batch of a window clears gradients, those behind it add to them, the last one steps: what
/// is recorded of the latter knows the memory of what was recorded of the first. So they are replayed only in
/// windows whose first micro-batch was replayed, and whose gradients nobody has put elsewhere; in all others
/// they run as they are.
class CapturedWindow {
 public:
  using Tensors = CapturedStep::Tensors;

  /// @param run         runs the micro-batch of these tensors
  /// @param parameters  those on which gradients lie or may come to lie
  CapturedWindow(at::Device device, CapturedStep::Function run,
                 std::function<std::vector<at::Tensor>()> parameters, CapturedStep::Around around)
      : device_(device),
        run_(std::move(run)),
        parameters_(std::move(parameters)),
        around_(std::move(around)) {}
  CapturedWindow(const CapturedWindow&) = delete;
  CapturedWindow& operator=(const CapturedWindow&) = delete;

  /// One micro-batch. What it returns is overwritten by the next of its kind. As CapturedStep else.
  Tensors operator()(const Window& window, const Tensors& inputs);

  /// A micro-batch runs without this.
  void leave_window() { in_window_.clear(); }

 private:
  /// A parameter, or a piece of one, and the gradient that lies on it; which may be none.
  using Gradients = std::vector<std::pair<at::Tensor, at::Tensor>>;

  struct Kind {
    std::optional<CapturedStep> step = {};
    Gradients left = {};  // by what was recorded
  };

  Kind& kind_of(const Window& window);
  void make(Kind& kind, const Window& window);
  Tensors run_as_it_is(const Tensors& inputs);
  Gradients gradients();
  static void put(const Gradients& gradients);
  bool is_as_left() const;

  at::Device device_;
  CapturedStep::Function run_;
  std::function<std::vector<at::Tensor>()> parameters_;
  CapturedStep::Around around_;
  std::vector<at::Tensor> known_;  // parameters, once somebody has asked
  std::array<Kind, 4> kinds_;      // by whether they are first and last
  std::int64_t recordings_of_first_ = 0;
  Gradients in_window_;  // of the replayed first micro-batch of the open window
  Gradients before_;     // the micro-batch under way
};

}  // namespace lockstep::detail
