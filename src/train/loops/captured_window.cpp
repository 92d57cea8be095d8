#include "train/loops/captured_window.h"

#include <algorithm>

#include "device/step_recording.h"

namespace lockstep::detail {
CapturedWindow::Kind& CapturedWindow::kind_of(const Window& window) {
  return kinds_[(window.first ? 2U : 0U) + (window.last ? 1U : 0U)];
}

void CapturedWindow::make(Kind& kind, const Window& window) {
  auto around = around_;
  around.given_up = [this, also = around_.given_up] {
    if (also) also();
    put(before_);
  };
  const auto run = [this, &kind, is_first = window.first,
                    is_alone = window.first && window.last](const Tensors& inputs) {
    auto outputs = run_(inputs);
    auto* const recording = StepRecording::current();
    if (recording == nullptr || is_alone) return outputs;
    kind.left = gradients();
    if (is_first)
      ++recordings_of_first_;
    else
      recording->depend_on([this] { return static_cast<double>(recordings_of_first_); });
    return outputs;
  };
  constexpr int kWarmUp = 3;  // of an optimizer's and a reducer's memory
  kind.step.emplace(device_, run, kWarmUp, std::move(around));
}

CapturedWindow::Tensors CapturedWindow::operator()(const Window& window, const Tensors& inputs) {
  auto& kind = kind_of(window);
  if (window.first && window.last) {
    if (!kind.step) make(kind, window);
    in_window_.clear();
    return (*kind.step)(inputs);
  }
  if (!window.first && !is_as_left()) return run_as_it_is(inputs);
  if (!kind.step) make(kind, window);
  before_ = gradients();
  const auto replays = kind.step->replays();
  auto outputs = (*kind.step)(inputs);
  before_.clear();
  const bool is_replayed = kind.step->replays() > replays;
  if (is_replayed) put(kind.left);
  if (window.first) in_window_ = is_replayed ? kind.left : Gradients();
  return outputs;
}

// As CapturedStep does it: whoever has kept something from earlier steps forgets it, as on ranks that replay.
CapturedWindow::Tensors CapturedWindow::run_as_it_is(const Tensors& inputs) {
  if (around_.before_step) around_.before_step();
  RecordingListener::tell_all(/*is_given_up=*/false);
  auto outputs = run_(inputs);
  RecordingListener::tell_all(/*is_given_up=*/false);
  return outputs;
}

CapturedWindow::Gradients CapturedWindow::gradients() {
  if (known_.empty()) known_ = parameters_();
  Gradients all;
  for (const auto& parameter : known_) all.emplace_back(parameter, parameter.grad());
  return all;
}

void CapturedWindow::put(const Gradients& gradients) {
  for (const auto& [parameter, gradient] : gradients) parameter.mutable_grad() = gradient;
}

bool CapturedWindow::is_as_left() const {
  return !in_window_.empty() && std::ranges::all_of(in_window_, [](const auto& entry) {
    return entry.second.is_same(entry.first.grad());
  });
}

}  // namespace lockstep::detail
