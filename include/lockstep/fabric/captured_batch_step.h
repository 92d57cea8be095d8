// CapturedStep for batches of any type.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include <ATen/core/Tensor.h>

#include <lockstep/data/any_loader.h>
#include <lockstep/device/captured_step.h>

namespace lockstep {

namespace detail {
[[noreturn]] LOCKSTEP_API void refuse_batch_without_tensors();
}

/// What Fabric::capture() gives: a step that takes a batch and returns its loss, captured as CapturedStep
/// says. The tensors of a batch are found as loaders find them (data/any_loader.h); what else a batch holds
/// is that of the recorded one in all replays.
template <class Batch>
class CapturedBatchStep {
 public:
  using Function = std::function<at::Tensor(const Batch&)>;

  /// As CapturedStep.
  CapturedBatchStep(at::Device device, Function function, int warm_up, CapturedStep::Around around = {})
      : has_device_(!device.is_cpu()),
        batch_(std::make_unique<const Batch*>()),
        step_(
            device,
            [batch = batch_.get(), function = std::move(function)](const CapturedStep::Tensors& inputs) {
              std::size_t next = 0;
              const auto place = [&](const at::Tensor&) { return inputs.at(next++); };
              return CapturedStep::Tensors{function(detail::with_changed_tensors(**batch, place))};
            },
            warm_up, std::move(around)) {}

  /// One step; the loss is overwritten by the next one. Collective where the function is.
  /// @throws ConfigError for a batch on a device in which no tensor is found
  at::Tensor operator()(const Batch& batch) {
    CapturedStep::Tensors inputs;
    detail::with_changed_tensors(batch, [&](const at::Tensor& tensor) {
      inputs.push_back(tensor);
      return tensor;
    });
    if (has_device_ && inputs.empty()) detail::refuse_batch_without_tensors();
    *batch_ = &batch;
    return step_(inputs).front();
  }

  /// As those of CapturedStep.
  std::int64_t replays() const { return step_.replays(); }
  const std::string& refusal() const { return step_.refusal(); }

 private:
  bool has_device_;
  std::unique_ptr<const Batch*> batch_;  // that of the call under way
  CapturedStep step_;
};

}  // namespace lockstep
