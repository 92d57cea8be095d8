#include "parallel/ddp/model_watch.h"

#include <sstream>

#include <lockstep/base/error.h>
#include <lockstep/torch.h>

namespace lockstep::detail {
namespace {

std::string describe(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype, at::Device device,
                     bool is_trained) {
  std::ostringstream text;
  text << sizes << " of strides " << strides << ' ' << dtype << " on " << device
       << (is_trained ? ", trained" : ", frozen");
  return text.str();
}

constexpr auto kHint =
    "release it (Fabric::release), or drop its DdpEngine, before it is changed, moved or frozen, and set it "
    "up "
    "again then; on all ranks";

// Who follows a parameter's gradients holds on to this; the parameter gets another one when its dtype or
// device changes.
auto accumulator_of(const at::Tensor& tensor) {
  return tensor.requires_grad() ? torch::autograd::impl::grad_accumulator(tensor) : nullptr;
}

}  // namespace

ModelWatch::ModelWatch(const torch::nn::Module& module, const ModuleStates& states, bool allows_freezing)
    : lists_(module, states, {.set_up_for = "ddp", .hint = kHint}), allows_freezing_(allows_freezing) {
  for (const auto& named : states.parameters) {
    const auto& tensor = named.tensor;
    parameters_.push_back({.named = named,
                           .sizes = tensor.sizes().vec(),
                           .strides = tensor.strides().vec(),
                           .dtype = tensor.scalar_type(),
                           .device = tensor.device(),
                           .is_trained = tensor.requires_grad(),
                           .accumulator = accumulator_of(tensor)});
  }
}

void ModelWatch::check() {
  for (const auto& known : parameters_) check(known);
  lists_.check();
}

void ModelWatch::check(const Known& known) const {
  const auto& tensor = known.named.tensor;
  const bool is_trained = tensor.requires_grad();
  const bool may_rest = allows_freezing_ && known.is_trained && !is_trained;
  const bool is_same = (is_trained == known.is_trained || may_rest) && tensor.scalar_type() == known.dtype &&
                       tensor.device() == known.device && tensor.sizes() == at::IntArrayRef(known.sizes) &&
                       tensor.strides() == at::IntArrayRef(known.strides);
  if (!is_same) {
    refuse_change(
        lists_.words(), "parameter " + known.named.name,
        describe(known.sizes, known.strides, known.dtype, known.device, known.is_trained),
        describe(tensor.sizes(), tensor.strides(), tensor.scalar_type(), tensor.device(), is_trained));
  }
  if (known.accumulator && torch::autograd::impl::try_get_grad_accumulator(tensor) != known.accumulator) {
    refuse_change(lists_.words(), "parameter " + known.named.name,
                  "of the same dtype and on the same device all the time", "converted or moved, and back");
  }
}

}  // namespace lockstep::detail
