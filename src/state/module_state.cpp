#include <lockstep/state/module_state.h>

#include <lockstep/base/error.h>
#include <lockstep/torch.h>

namespace lockstep {
namespace {

std::string said_of(const StateValue* value) { return value ? value->describe() : "none"; }

bool fits(const at::Tensor& own, const StateValue* saved) {
  const auto* tensor = saved ? std::get_if<at::Tensor>(saved) : nullptr;
  return tensor != nullptr && tensor->defined() && tensor->sizes() == own.sizes() &&
         tensor->scalar_type() == own.scalar_type();
}

// One clause for each tensor that does not fit.
std::string misfits(const StateTree& own, const StateTree& saved) {
  std::string text;
  const auto add = [&](const std::string& name, const StateValue* expected, const StateValue* got) {
    text += (text.empty() ? "" : "; ") + name + ": expected " + said_of(expected) + ", got " + said_of(got);
  };
  for (const auto& [name, value] : own.entries()) {
    const auto* found = saved.find(name);
    if (!fits(std::get<at::Tensor>(value), found)) add(name, &value, found);
  }
  for (const auto& [name, value] : saved.entries()) {
    if (!own.contains(name)) add(name, nullptr, &value);
  }
  return text;
}

}  // namespace

StateTree module_state(const torch::nn::Module& module) {
  StateTree state;
  for (const auto& parameter : module.named_parameters()) {
    state.set(parameter.key(), parameter.value().detach());
  }
  for (const auto& buffer : module.named_buffers()) {
    if (buffer.value().defined()) state.set(buffer.key(), buffer.value().detach());
  }
  return state;
}

void load_module_state(torch::nn::Module& module, const StateTree& state) {
  const auto own = module_state(module);
  if (const auto text = misfits(own, state); !text.empty()) {
    throw CheckpointError("state", {.what = "the state does not fit the module: " + text,
                                    .where = state.path().empty() ? "" : "state " + state.path(),
                                    .hint = "load state that was saved for the same module"});
  }
  for (const auto& [name, tensor] : own.entries()) state.copy_to(name, std::get<at::Tensor>(tensor));
}

}  // namespace lockstep
