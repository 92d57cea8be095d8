#include "parallel/xla/xla_engine.h"

#include <string>
#include <utility>

#include <lockstep/torch.h>

#include "device/step_recording.h"
#include "device/xla_library_interface.h"
#include "parallel/backward_checks.h"

namespace lockstep::detail {
namespace {

std::vector<NamedTensor> trained_of(const ModuleStates& states) {
  std::vector<NamedTensor> trained;
  for (const auto& named : states.parameters)
    if (named.tensor.requires_grad()) trained.push_back(named);
  return trained;
}

std::vector<at::Tensor> tensors_in(const std::vector<NamedTensor>& named) {
  std::vector<at::Tensor> tensors;
  for (const auto& each : named) tensors.push_back(each.tensor);
  return tensors;
}

std::vector<at::Tensor> states_in(const ModuleStates& states) {
  auto tensors = tensors_in(states.parameters);
  for (const auto& buffer : states.buffers) tensors.push_back(buffer.tensor);
  return tensors;
}

constexpr auto kHowToChange =
    "release it (Fabric::release) before it is changed, moved or frozen, and set it up again then; on all "
    "ranks";

}  // namespace

XlaEngine::XlaEngine(const torch::nn::Module& module, Communicator comm, const Xla& options,
                     std::shared_ptr<const ProgramCollectives> in_program)
    : XlaEngine(module, ModuleStates(module), std::move(comm), options, std::move(in_program)) {}

XlaEngine::XlaEngine(const torch::nn::Module& module, const ModuleStates& states, Communicator comm,
                     const Xla& options, std::shared_ptr<const ProgramCollectives> in_program)
    : comm_(std::move(comm)),
      options_(options),
      in_program_(std::move(in_program)),
      trained_(trained_of(states)),
      buffers_(tensors_in(states.buffers)),
      lists_(module, states, {.set_up_for = "xla", .hint = kHowToChange}),
      versions_(tensors_in(states.parameters)),
      replicas_(comm_, states.parameters.size(), [all = states.parameters](std::size_t i) {
        return Replica{.name = all[i].name, .tensor = all[i].tensor};
      }) {}

void XlaEngine::make_equal(const torch::nn::Module& module, const Communicator& comm) {
  if (comm.size() == 1) return;
  const ModuleStates states(module);
  require_writable(states);
  compare_states(states, comm);
  broadcast_on_host(comm, states_in(states));
}

// Recordings refer to it.
XlaEngine::~XlaEngine() { outdate_recordings(); }

void XlaEngine::begin_backward() {
  const auto look = [this] {
    lists_.check();
    versions_.note_writes(replicas_);
  };
  look();
  if (auto* const recording = StepRecording::current()) recording->before_replay(look);
}

// Of the parameters whose gradients are averaged.
std::vector<bool> XlaEngine::used_by_a_rank() const {
  const auto flags = at::zeros({static_cast<std::int64_t>(trained_.size())}, at::kByte);
  auto* const is_used = flags.mutable_data_ptr<std::uint8_t>();
  for (std::size_t i = 0; i < trained_.size(); ++i) is_used[i] = trained_[i].tensor.grad().defined() ? 1 : 0;
  if (comm_.size() > 1) comm_.all_reduce(flags, ReduceOp::kMax);
  return std::vector<bool>(is_used, is_used + trained_.size());
}

std::vector<at::Tensor> XlaEngine::gradients_to_average() {
  std::vector<at::Tensor> gradients;
  std::vector<bool> is_used(trained_.size(), true);
  if (options_.find_unused_parameters) is_used = used_by_a_rank();
  std::string missing;
  for (std::size_t i = 0; i < trained_.size(); ++i) {
    const auto& [name, parameter] = trained_[i];
    auto& gradient = parameter.mutable_grad();
    if (!gradient.defined() && options_.find_unused_parameters && is_used[i])
      gradient = at::zeros_like(parameter);
    if (gradient.defined() && gradient.layout() != at::kStrided) refuse_sparse_gradient(name);
    if (gradient.defined())
      gradients.push_back(gradient);
    else if (is_used[i])
      missing += (missing.empty() ? "" : ", ") + name;
  }
  if (!missing.empty()) refuse_missing(missing, /*is_static=*/false, comm_.rank());
  return gradients;
}

void XlaEngine::average_gradients() {
  const at::NoGradGuard no_grad;
  const auto gradients = gradients_to_average();
  if (comm_.size() == 1 || gradients.empty()) return;
  if (in_program_)
    in_program_->average(gradients);
  else
    average_on_host(comm_, gradients);
}

void XlaEngine::after_step() {
  if (options_.broadcast_buffers && comm_.size() > 1 && !buffers_.empty()) {
    if (in_program_)
      in_program_->broadcast(buffers_);
    else
      broadcast_on_host(comm_, buffers_);
  }
  once_per_step([this] { versions_.settle(); });
  replicas_.end_step();
}

void XlaEngine::check_replicas() {
  versions_.note_writes(replicas_);
  replicas_.compare();
}

void end_xla_step(at::Device device) {
  if (device.is_xla()) xla_library().run_recorded(device.index());
}

}  // namespace lockstep::detail
