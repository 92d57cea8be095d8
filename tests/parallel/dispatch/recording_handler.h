// A handler that writes down which operator used which marks.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include <lockstep/parallel/dispatch/tensor_mark.h>

namespace lockstep {

/// One entry per operator, such as "aten::linear 1 2", or "aten::add_ 1!" where tag 1 is written.
class RecordingHandler : public UseHandler {
 public:
  void before_use(OperatorCall& call, std::span<const TensorUse> uses) override {
    auto text = call.name();
    for (const auto& use : uses) {
      text += ' ' + std::to_string(use.mark->tag()) + (use.is_written ? "!" : "");
    }
    log_.push_back(text);
  }

  void replace(OperatorCall& call, std::span<const TensorUse>) override {
    if (instead) instead(call);
  }

  /// What was recorded since the last call.
  std::vector<std::string> take() { return std::exchange(log_, {}); }

  std::function<void(OperatorCall&)> instead;

 private:
  std::vector<std::string> log_;
};

}  // namespace lockstep
