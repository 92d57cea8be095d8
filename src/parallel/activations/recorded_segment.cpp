#include "parallel/activations/recorded_segment.h"

#include <algorithm>
#include <utility>

#include <c10/util/ScopeExit.h>

#include <lockstep/parallel/dispatch/engine_hooks.h>
#include <lockstep/torch.h>

#include "parallel/activations/replay.h"
#include "parallel/dispatch/operator_dispatch.h"

namespace lockstep::detail {
namespace {

bool has_bit(std::uint64_t bits, std::size_t i) { return i < 64 && (bits >> i & 1) != 0; }

template <class Visit>
void for_each_tensor(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isList()) {
    for (const auto& element : value.toListRef()) {
      if (element.isTensor()) visit(element.toTensor());
    }
  }
}

// The same with other tensors, in the same order.
template <class Map>
c10::IValue with_tensors(const c10::IValue& value, const Map& map) {
  if (value.isTensor()) return map(value.toTensor());
  if (!value.isList()) return value;
  const auto elements = value.toListRef();
  if (std::ranges::none_of(elements, [](const c10::IValue& element) { return element.isTensor(); }))
    return value;
  c10::impl::GenericList list(value.toList().elementType());
  for (const auto& element : elements)
    list.push_back(element.isTensor() ? c10::IValue(map(element.toTensor())) : element);
  return list;
}

bool has_tensors(std::span<const c10::IValue> arguments) {
  bool found = false;
  for (const auto& argument : arguments)
    for_each_tensor(argument, [&](const at::Tensor& tensor) { found = found || tensor.defined(); });
  return found;
}

at::Generator generator_among(std::span<const c10::IValue> arguments) {
  const auto found =
      std::ranges::find_if(arguments, [](const auto& argument) { return argument.isGenerator(); });
  return found == arguments.end() ? at::Generator() : found->toGenerator();
}

bool takes_gradients() {
  return at::GradMode::is_enabled() &&
         !c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::AutogradCPU);
}

// Copies of the running statistics that batch normalisation will write to.
RunningStatistics running_statistics(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments) {
  RunningStatistics statistics;
  const auto places = replay_info(op).statistics;
  for (std::size_t i = 0; places != 0 && i < arguments.size(); ++i) {
    if (!has_bit(places, i) || !arguments[i].isTensor() || !arguments[i].toTensor().defined()) continue;
    const auto& tensor = arguments[i].toTensor();
    statistics.emplace_back(tensor.variable_data(), tensor.detach().clone());
  }
  return statistics;
}

// Restores the statistics of the first run as long as it lives, so that a batch is counted once.
class ScopedStatistics {
 public:
  explicit ScopedStatistics(const RunningStatistics& then) {
    for (const auto& [tensor, values] : then) now_.emplace_back(tensor, tensor.clone());
    set(then);
  }
  ~ScopedStatistics() { set(now_); }
  ScopedStatistics(const ScopedStatistics&) = delete;
  ScopedStatistics& operator=(const ScopedStatistics&) = delete;

 private:
  static void set(const RunningStatistics& statistics) {
    const at::NoGradGuard no_grad;
    for (const auto& [tensor, values] : statistics) tensor.copy_(values);
  }
  RunningStatistics now_;
};

}  // namespace

// Statistics are identified by their tensor, also by code that synchronizes them between ranks, so that a
// copy cannot stand in for them.
bool OperatorTape::can_record(OperatorCall& call) const {
  const auto& info = replay_info(call.op());
  if (!info.can_replay) return false;
  const auto written = operator_info(call.op()).written;
  const auto arguments = call.arguments();
  bool can_repeat = true;
  for (std::size_t i = 0; (written | info.statistics) != 0 && i < arguments.size(); ++i) {
    if (!has_bit(written | info.statistics, i)) continue;
    for_each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      if (!tensor.defined()) return;
      const bool can = has_bit(written, i) ? values_.can_write(tensor) : values_.can_give_itself(tensor);
      can_repeat = can_repeat && can;
    });
  }
  return can_repeat;
}

OperatorTape::Entry OperatorTape::describe(OperatorCall& call) {
  const auto number = entries_.size();
  const auto& info = replay_info(call.op());
  const auto written = operator_info(call.op()).written;
  Entry entry{.op = call.op()};
  const auto arguments = call.arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    entry.arguments.push_back(with_tensors(arguments[i], [&](const at::Tensor& tensor) {
      entry.used.push_back(values_.use(tensor, number));
      if (has_bit(written, i)) values_.keep_before_write(tensor);
      if (has_bit(info.statistics, i)) values_.expect_changes(entry.used.back(), tensor);
      return at::Tensor();
    }));
  }
  entry.statistics = running_statistics(call.op(), arguments);
  if (info.draws) {
    entry.generator = generator_among(arguments);
    entry.generator_state = generator_state(entry.generator);
  }
  entry.autocast = AutocastState::now();
  entry.has_gradients = takes_gradients();
  entry.first_left_out = tensors_.size();
  return entry;
}

void OperatorTape::record(OperatorCall& call, const std::function<void()>& run) {
  const auto& info = replay_info(call.op());
  if (!info.has_effect || !info.is_defined || !has_tensors(call.arguments())) return run();
  auto entry = describe(call);
  is_recording_ = true;
  const auto done = c10::make_scope_exit([this] { is_recording_ = false; });
  run();
  for (const auto& result : call.results())
    for_each_tensor(result,
                    [&](const auto& t) { entry.results.push_back(values_.define(t, entries_.size())); });
  tensors_.end_operator();
  entry.left_out = tensors_.size() - entry.first_left_out;
  entries_.push_back(std::move(entry));
  if (entries_.back().left_out > 0) needed_ = entries_.size();
}

at::Tensor OperatorTape::take(std::size_t number) {
  if (auto tensor = tensors_.take(number); tensor.defined()) return tensor;
  run_again();
  return tensors_.take(number);
}

void OperatorTape::run_again() {
  tensors_.forget();
  const auto done = c10::make_scope_exit([this] { values_.forget(); });
  const ScopedRunState state;
  for (std::size_t i = 0; i < needed_; ++i) run_again(entries_[i], i);
}

std::vector<c10::IValue> OperatorTape::arguments_of(const Entry& entry) {
  std::vector<c10::IValue> stack;
  auto used = entry.used.begin();
  for (const auto& argument : entry.arguments)
    stack.push_back(with_tensors(argument, [&](const at::Tensor&) { return values_.get(*used++); }));
  return stack;
}

// Tensors that another scope of hooks has taken in the first run are ignored in the second.
void OperatorTape::run_again(const Entry& entry, std::size_t number) {
  ScopedRunState::enter(entry.autocast);
  if (entry.generator_state.defined()) set_generator_state(entry.generator_state, entry.generator);
  const at::AutoGradMode mode(entry.has_gradients);
  auto stack = arguments_of(entry);
  const ScopedStatistics statistics(entry.statistics);
  tensors_.continue_at(entry.first_left_out);
  {
    const bool keeps = entry.left_out > 0;
    const ScopedSavedTensorHooks scope({.pack = [&](const at::Tensor& tensor) -> std::any {
                                          if (keeps) tensors_.keep(tensor);
                                          return {};
                                        },
                                        .unpack = [](const std::any&) { return at::Tensor(); }});
    entry.op.callBoxed(stack);
  }
  tensors_.end_operator();
  tensors_.expect_next(entry.first_left_out + entry.left_out);
  std::size_t result = 0;
  for (const auto& value : stack) {
    for_each_tensor(value, [&](const at::Tensor& tensor) {
      if (result < entry.results.size()) values_.set(entry.results[result++], tensor);
    });
  }
  for (const auto& used : entry.used) values_.end_use(used.value, number);
  for (const auto value : entry.results) values_.end_use(value, number);
}

namespace {

// The number of operators after which a segment ends if autograd has saved nothing of it.
constexpr std::size_t kIdleOperators = 64;

}  // namespace

class RecordedSegment::SavedByNumber final : public torch::autograd::SavedVariableHooks {
 public:
  explicit SavedByNumber(std::shared_ptr<RecordedSegment> segment) : segment_(std::move(segment)) {
    ++segment_->saved_;
  }
  ~SavedByNumber() override { --segment_->saved_; }

  void call_pack_hook(const at::Tensor& tensor) override {
    number_ = segment_->tape_.leave_out(tensor);
    if (!segment_->tape_.keeps(tensor) || tensor.is_inference()) return;
    kept_ = keep(tensor);
    version_ = tensor._version();
  }

  // A backward that needs only the inputs, such as that of an embedding, recomputes nothing.
  at::Tensor call_unpack_hook() override {
    const auto tensor = kept_.get();
    const bool is_unchanged = kept_.is_copy() || (tensor.defined() && tensor._version() == version_);
    return is_unchanged ? tensor : segment_->tape_.take(number_);
  }

 private:
  std::shared_ptr<RecordedSegment> segment_;
  std::size_t number_ = 0;
  SavedTensor kept_;
  std::int64_t version_ = 0;
};

bool RecordedSegment::is_wanted() const {
  return saved_ > 0 || (tape_.left_out() == 0 && tape_.operators() < kIdleOperators);
}

void RecordedSegment::record(OperatorCall& call, const std::function<void()>& run) {
  if (!is_wanted() || !tape_.can_record(call)) {
    set_operator_recorder(nullptr);
    return run();
  }
  try {
    tape_.record(call, run);
  } catch (...) {
    set_operator_recorder(nullptr);
    throw;
  }
}

// A tensor that a custom autograd function saves would not be saved again by recorded operators.
std::unique_ptr<torch::autograd::SavedVariableHooks> RecordedSegment::hooks_of_saved_tensor() {
  if (!tape_.is_recording()) return nullptr;
  return std::make_unique<SavedByNumber>(shared_from_this());
}

}  // namespace lockstep::detail
