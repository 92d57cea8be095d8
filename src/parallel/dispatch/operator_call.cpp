#include <lockstep/parallel/dispatch/operator_call.h>

#include <ATen/core/dispatch/Dispatcher.h>

#include <lockstep/base/error.h>

namespace lockstep {
namespace {

std::span<c10::IValue> last(std::vector<c10::IValue>& stack, std::size_t count) {
  return std::span(stack).last(count);
}

}  // namespace

const std::string& OperatorCall::name() const { return op_->operator_name().name; }

std::span<c10::IValue> OperatorCall::arguments() {
  return is_done_ ? std::span<c10::IValue>() : last(*stack_, op_->schema().arguments().size());
}

void OperatorCall::run() {
  is_done_ = true;
  op_->callBoxed(*stack_);
}

void OperatorCall::set_results(std::vector<c10::IValue> results) {
  const auto expected = op_->schema().returns().size();
  if (results.size() != expected) {
    throw ConfigError("parallel", {.what = "a handler gave results that are not those of " + name(),
                                   .expected = std::to_string(expected),
                                   .got = std::to_string(results.size())});
  }
  stack_->resize(stack_->size() - (is_done_ ? expected : op_->schema().arguments().size()));
  stack_->insert(stack_->end(), std::make_move_iterator(results.begin()),
                 std::make_move_iterator(results.end()));
  is_done_ = true;
}

std::span<c10::IValue> OperatorCall::results() {
  return is_done_ ? last(*stack_, op_->schema().returns().size()) : std::span<c10::IValue>();
}

}  // namespace lockstep
