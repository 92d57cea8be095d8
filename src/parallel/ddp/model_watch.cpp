#include "parallel/ddp/model_watch.h"

#include <sstream>

#include <lockstep/base/error.h>
#include <lockstep/torch.h>

namespace lockstep::detail {
namespace {

constexpr std::int64_t kAlwaysUntil = 10;  // calls that look at the module's lists, and then each
constexpr std::int64_t kEvery = 100;       // hundredth: that costs a microsecond per parameter

std::string describe(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype, at::Device device,
                     bool is_trained) {
  std::ostringstream text;
  text << sizes << " of strides " << strides << ' ' << dtype << " on " << device
       << (is_trained ? ", trained" : ", frozen");
  return text.str();
}

[[noreturn]] void refuse(const std::string& name, std::string expected, std::string got) {
  throw ConfigError("parallel", {.what = "the module changed after it was set up for ddp: " + name,
                                 .expected = std::move(expected),
                                 .got = std::move(got),
                                 .hint = "release it (Fabric::release), or drop its DdpEngine, before it is "
                                         "changed, moved or frozen, and set it up again then; on all ranks"});
}

void compare(const char* kind, const std::vector<NamedTensor>& now, const auto& known, const auto& named_of) {
  for (std::size_t i = 0; i < std::max(now.size(), known.size()); ++i) {
    const bool is_same = i < now.size() && i < known.size() && now[i].name == named_of(known[i]).name;
    if (is_same && now[i].tensor.is_same(named_of(known[i]).tensor)) continue;
    const std::string prefix = std::string(kind) + " ";
    if (is_same) refuse(prefix + now[i].name, "the tensor that was set up", "another one");
    const bool is_added = now.size() > known.size() || i >= known.size();
    if (is_added) refuse(prefix + now[i].name, "not there", "added");
    refuse(prefix + named_of(known[i]).name, "there", "removed");
  }
}

// Who follows a parameter's gradients holds on to this; the parameter gets another one when its dtype or
// device changes.
auto accumulator_of(const at::Tensor& tensor) {
  return tensor.requires_grad() ? torch::autograd::impl::grad_accumulator(tensor) : nullptr;
}

}  // namespace

ModelWatch::ModelWatch(const torch::nn::Module& module, const ModuleStates& states, bool allows_freezing)
    : buffers_(states.buffers), module_(module.weak_from_this()), allows_freezing_(allows_freezing) {
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
  const auto call = calls_++;
  if (call >= kAlwaysUntil && call % kEvery != 0) return;
  if (const auto module = module_.lock()) compare_lists(*module);
}

void ModelWatch::check(const Known& known) const {
  const auto& tensor = known.named.tensor;
  const bool is_trained = tensor.requires_grad();
  const bool may_rest = allows_freezing_ && known.is_trained && !is_trained;
  const bool is_same = (is_trained == known.is_trained || may_rest) && tensor.scalar_type() == known.dtype &&
                       tensor.device() == known.device && tensor.sizes() == at::IntArrayRef(known.sizes) &&
                       tensor.strides() == at::IntArrayRef(known.strides);
  if (!is_same) {
    refuse("parameter " + known.named.name,
           describe(known.sizes, known.strides, known.dtype, known.device, known.is_trained),
           describe(tensor.sizes(), tensor.strides(), tensor.scalar_type(), tensor.device(), is_trained));
  }
  if (known.accumulator && torch::autograd::impl::try_get_grad_accumulator(tensor) != known.accumulator) {
    refuse("parameter " + known.named.name, "of the same dtype and on the same device all the time",
           "converted or moved, and back");
  }
}

void ModelWatch::compare_lists(const torch::nn::Module& module) const {
  const ModuleStates now(module);
  compare("parameter", now.parameters, parameters_,
          [](const Known& k) -> const NamedTensor& { return k.named; });
  compare("buffer", now.buffers, buffers_, [](const NamedTensor& n) -> const NamedTensor& { return n; });
}

}  // namespace lockstep::detail
