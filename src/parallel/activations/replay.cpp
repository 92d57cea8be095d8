#include "parallel/activations/replay.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>

#include <lockstep/base/error.h>
#include <lockstep/device/torch_device.h>
#include <lockstep/torch.h>

namespace lockstep::detail {

GeneratorState generator_state(const at::Generator& generator) {
  if (generator.defined()) return {.state = state_of_generator(generator)};
  GeneratorState states{.state = state_of_generator(generator_of(at::kCPU))};
  if (const auto device = device_in_use(); !device.is_cpu())
    states.of_device = state_of_generator(generator_of(device));
  return states;
}

void set_generator_state(const GeneratorState& state, const at::Generator& generator) {
  if (generator.defined()) return set_state_of_generator(generator, state.state);
  set_state_of_generator(generator_of(at::kCPU), state.state);
  if (state.of_device.defined()) set_state_of_generator(generator_of(device_in_use()), state.of_device);
}

AutocastState AutocastState::now() {
  const auto type = device_in_use().type();
  return {.is_enabled = at::autocast::is_autocast_enabled(type),
          .is_cache_enabled = at::autocast::is_autocast_cache_enabled(),
          .dtype = at::autocast::get_autocast_dtype(type)};
}

void AutocastState::set() const {
  const auto type = device_in_use().type();
  at::autocast::set_autocast_enabled(type, is_enabled);
  at::autocast::set_autocast_cache_enabled(is_cache_enabled);
  at::autocast::set_autocast_dtype(type, dtype);
}

ScopedRunState::ScopedRunState() : generator_(generator_state()), autocast_(AutocastState::now()) {}

ScopedRunState::~ScopedRunState() {
  set_generator_state(generator_);
  autocast_.set();
}

void ScopedRunState::enter(AutocastState then) {
  then.is_cache_enabled = false;
  then.set();
}

namespace {

bool gives_tensors(const c10::FunctionSchema& schema) {
  return std::ranges::any_of(schema.returns(), [](const c10::Argument& result) {
    return result.type()->str().find("Tensor") != std::string::npos;
  });
}

bool writes(const c10::FunctionSchema& schema) {
  return std::ranges::any_of(schema.arguments(), [](const c10::Argument& argument) {
    return argument.alias_info() && argument.alias_info()->isWrite();
  });
}

bool is_empty_factory(std::string_view name) {
  return name.starts_with("aten::empty") || name.starts_with("aten::new_empty");
}

ReplayInfo read_replay_info(const c10::OperatorHandle& op) {
  const auto& schema = op.schema();
  const std::string_view name = op.operator_name().name;
  ReplayInfo info;
  info.can_replay = !name.starts_with("c10d::") && !name.starts_with("_c10d_functional::");
  info.has_effect = gives_tensors(schema) || writes(schema);
  info.is_defined = !is_empty_factory(name);
  info.draws = op.hasTag(at::Tag::nondeterministic_seeded) || !name.starts_with("aten::");
  for (std::size_t i = 0; i < std::min<std::size_t>(schema.arguments().size(), 64); ++i) {
    if (schema.arguments()[i].name().starts_with("running_")) info.statistics |= std::uint64_t{1} << i;
  }
  return info;
}

}  // namespace

const ReplayInfo& replay_info(const c10::OperatorHandle& op) {
  thread_local std::unordered_map<c10::OperatorHandle, ReplayInfo> known;
  const auto found = known.find(op);
  return found != known.end() ? found->second : known.emplace(op, read_replay_info(op)).first->second;
}

}  // namespace lockstep::detail

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "parallel/dispatch/operator_dispatch.h"

namespace lockstep::detail {
namespace {

// Only floating-point tensors are compared: workspaces of kernels, which have other types, may hold
// uninitialized bytes.
bool can_compare(const at::Tensor& tensor) {
  return tensor.is_cpu() && tensor.is_floating_point() && tensor.layout() == at::kStrided &&
         tensor.is_non_overlapping_and_dense() && !tensor.key_set().has(use_key());
}

std::string kind_of(const LeftOutTensor& tensor) {
  return c10::str(tensor.dtype, ' ', at::IntArrayRef(tensor.sizes));
}

[[noreturn]] void refuse_other_run(const std::string& expected, const std::string& got) {
  throw Error(
      "parallel",
      {.what = "a checkpointed part of the model computed something else in its second run",
       .expected = expected,
       .got = got,
       .hint = "it must depend on nothing but its arguments, draw its random numbers from LibTorch's "
               "generator, and write memory by operators only; ls::checkpoint(function, arguments...) "
               "runs the function itself again"});
}

}  // namespace

std::size_t LeftOutTensors::leave_out(const at::Tensor& tensor) {
  const auto number = left_out_.size();
  left_out_.push_back({.sizes = tensor.sizes().vec(), .dtype = tensor.scalar_type()});
  if (compares_bytes_ && can_compare(tensor)) latest_.emplace_back(number, tensor);
  return number;
}

void LeftOutTensors::keep(const at::Tensor& tensor) {
  const auto number = next_++;
  if (number >= left_out_.size()) return;
  const LeftOutTensor now{.sizes = tensor.sizes().vec(), .dtype = tensor.scalar_type()};
  const auto& then = left_out_[number];
  if (now.sizes != then.sizes || now.dtype != then.dtype) refuse_other_run(kind_of(then), kind_of(now));
  again_.resize(left_out_.size());
  again_[number] = tensor;
  if (compares_bytes_ && can_compare(tensor)) latest_.emplace_back(number, tensor);
}

void LeftOutTensors::end_operator() {
  for (const auto& [number, tensor] : std::exchange(latest_, {})) {
    auto& then = left_out_[number];
    const auto now = XXH3_64bits(tensor.const_data_ptr(), tensor.nbytes());
    if (!then.checksum) then.checksum = now;
    if (then.checksum != now) refuse_other_run(kind_of(then), kind_of(then) + " of other values");
  }
}

void LeftOutTensors::expect_next(std::size_t number) const {
  if (next_ != number) refuse_other_run(c10::str(number, " tensors for backward"), std::to_string(next_));
}

at::Tensor LeftOutTensors::take(std::size_t number) {
  return number < again_.size() ? std::exchange(again_[number], at::Tensor()) : at::Tensor();
}

}  // namespace lockstep::detail
