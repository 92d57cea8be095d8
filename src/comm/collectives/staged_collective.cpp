#include "comm/collectives/staged_collective.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <lockstep/device/torch_device.h>

namespace lockstep::detail {
namespace {

// Kinds without an input read what they overwrite, but for those that only receive.
bool reads_output(const Collective& collective) {
  switch (collective.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kAllReduceList:
    case CollectiveKind::kReduce:
    case CollectiveKind::kBroadcast:
      return true;
    default:
      return false;
  }
}

// Two ranks may send to each other at once: in one stream, the second message would wait for the first.
c10::Stream stream_for(const Collective& collective, at::Device device) {
  return is_message(collective.kind) ? side_stream(device) : staging_stream(device);
}

// Calls use(tensor) for each tensor of a call.
template <class Use>
void for_each_tensor(const Collective& collective, const Use& use) {
  if (collective.output.defined()) use(collective.output);
  if (collective.input.defined()) use(collective.input);
  for (const auto& tensor : collective.outputs) use(tensor);
  for (const auto& tensor : collective.inputs) use(tensor);
}

}  // namespace

std::optional<at::Device> device_of(const Collective& collective) {
  for (const auto* tensor : {&collective.output, &collective.input})
    if (tensor->defined()) return tensor->device();
  for (const auto* list : {&collective.outputs, &collective.inputs})
    if (!list->empty()) return list->front().device();
  return std::nullopt;
}

StagedCollective::StagedCollective(Collective on_device, at::Device device)
    : on_device_(std::move(on_device)),
      on_host_(on_device_),
      stream_(stream_for(on_device_, device)),
      arrived_(device.type()),
      returned_(device.type()) {
  order_streams(current_stream(device), stream_);
  const at::NoGradGuard no_grad;
  const c10::StreamGuard guard(stream_);
  on_host_.output = host_copy(on_device_.output, reads_output(on_device_));
  on_host_.input = host_copy(on_device_.input, true);
  for (auto& tensor : on_host_.outputs) tensor = host_copy(tensor, reads_output(on_device_));
  for (auto& tensor : on_host_.inputs) tensor = host_copy(tensor, true);
  gate_ = issue_gate();
  if (gate_)
    issue_return();
  else
    arrived_.record(stream_);
}

// Tensors that no stream was made to wait for may be used by the side stream still when they are freed.
StagedCollective::~StagedCollective() {
  open_gate();
  if (is_ordered_) return;
  const c10::impl::VirtualGuardImpl device(stream_.device_type());
  for_each_tensor(on_device_, [&](const at::Tensor& tensor) {
    if (tensor.has_storage()) device.recordDataPtrOnStream(tensor.storage().data_ptr(), stream_);
  });
}

at::Tensor StagedCollective::host_copy(const at::Tensor& tensor, bool is_read) {
  if (!tensor.defined()) return {};
  const auto options = at::TensorOptions(at::kCPU).dtype(tensor.scalar_type()).pinned_memory(true);
  auto copy = at::empty(tensor.sizes(), options);
  if (!is_read || tensor.numel() == 0) return copy;
  copy.copy_(tensor, /*non_blocking=*/true);
  reads_ = true;
  return copy;
}

std::shared_ptr<StreamGate> StagedCollective::issue_gate() const {
  const auto* const accelerator = find_accelerator(stream_.device_type());
  if (accelerator == nullptr || is_message(on_device_.kind)) return nullptr;
  std::vector<at::Tensor> memory;
  for_each_tensor(on_host_, [&](const at::Tensor& tensor) { memory.push_back(tensor); });
  auto gate = std::make_shared<StreamGate>();
  return accelerator->issue_gate(stream_, gate, memory) ? gate : nullptr;
}

void StagedCollective::issue_return() {
  const at::NoGradGuard no_grad;
  const c10::StreamGuard guard(stream_);
  const auto copy_back = [](const at::Tensor& tensor, const at::Tensor& copy) {
    if (tensor.defined() && tensor.numel() > 0) tensor.copy_(copy, /*non_blocking=*/true);
  };
  copy_back(on_device_.output, on_host_.output);
  for (std::size_t i = 0; i < on_device_.outputs.size(); ++i)
    copy_back(on_device_.outputs[i], on_host_.outputs[i]);
  returned_.record(stream_);
}

void StagedCollective::await_inputs() {
  if (gate_) return gate_->await_arrival();
  if (reads_) arrived_.synchronize();
}

void StagedCollective::return_outputs() {
  if (gate_) return gate_->open();
  issue_return();
}

void StagedCollective::open_gate() {
  if (gate_) gate_->open();
}

void StagedCollective::order_outputs() {
  returned_.block(current_stream(stream_.device()));
  is_ordered_ = true;
}

void StagedCollective::await_outputs() {
  returned_.synchronize();
  is_ordered_ = true;
}

void StagedCollective::release_device_tensors() {
  on_device_.output.reset();
  on_device_.input.reset();
  on_device_.outputs.clear();
  on_device_.inputs.clear();
}

void RetiredCollectives::add(std::shared_ptr<StagedCollective> call) {
  const std::lock_guard lock(mutex_);
  calls_.push_back(std::move(call));
}

void RetiredCollectives::clear() {
  std::vector<std::shared_ptr<StagedCollective>> calls;  // destroyed without the lock
  const std::lock_guard lock(mutex_);
  std::swap(calls, calls_);
}

}  // namespace lockstep::detail
