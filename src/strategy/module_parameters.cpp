// Where a module's tensors are: on the device of their rank.
#include "strategy/module_parameters.h"

#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/device/torch_device.h>
#include <lockstep/parallel/deferred_init.h>
#include <lockstep/torch.h>

#include "parallel/sharded/shardable.h"

namespace lockstep::detail {
namespace {

template <class Dict>
void require_placeable(const char* kind, const Dict& tensors, at::Device device, int rank) {
  for (const auto& item : tensors) {
    const auto& tensor = item.value();
    if (!tensor.defined() || tensor.is_cpu() || tensor.device() == device) continue;
    throw ConfigError(
        "strategy",
        {.what = kind + (" " + item.key()) + " is on another device than this rank's",
         .expected = device.is_cpu() ? "the CPU" : "the CPU or " + device.str(),
         .got = tensor.device().str(),
         .where = "rank " + std::to_string(rank),
         .hint = "call module->to(torch::kCPU) before: it is moved to the device that the options "
                 "accelerator and devices name"});
  }
}

void place(at::Tensor& tensor, at::Device device) {
  if (!tensor.defined() || tensor.device() == device) return;
  auto gradient = std::exchange(tensor.mutable_grad(), {});
  tensor.set_data(to_device(tensor.detach(), device));
  if (gradient.defined()) tensor.mutable_grad() = to_device(gradient, device);
}

}  // namespace

void require_placeable(const torch::nn::Module& module, c10::Device device, int rank) {
  require_placeable("parameter", module.named_parameters(), device, rank);
  require_placeable("buffer", module.named_buffers(), device, rank);
}

void place_module(torch::nn::Module& module, c10::Device device) {
  for (auto& parameter : module.parameters()) place(parameter, device);
  for (auto& buffer : module.buffers()) place(buffer, device);
}

void place_unsharded(torch::nn::Module& module, c10::Device device) {
  if (device.is_cpu()) return;
  const auto place_one = [&](at::Tensor& tensor) {
    materialize(tensor);
    place(tensor, device);
  };
  for (auto& buffer : module.buffers()) place_one(buffer);
  for (auto& parameter : module.parameters())
    if (!is_sharded_type(parameter.scalar_type())) place_one(parameter);
}

}  // namespace lockstep::detail
