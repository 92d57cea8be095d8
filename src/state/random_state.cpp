#include <lockstep/state/random_state.h>

#include <mutex>

#include <ATen/Context.h>

namespace lockstep {
namespace {

at::Generator generator(at::Device device) { return at::globalContext().defaultGenerator(device); }

// A copy: also the shape and type that are expected.
at::Tensor state_of(at::Device device) {
  auto own = generator(device);
  const std::lock_guard lock(own.mutex());
  return own.get_state();
}

void set_state(at::Device device, const at::Tensor& state) {
  auto own = generator(device);
  const std::lock_guard lock(own.mutex());
  own.set_state(state);
}

}  // namespace

StateTree random_state(at::Device device) {
  StateTree state;
  state.set("cpu", state_of(at::kCPU));
  if (!device.is_cpu()) state.set("device", state_of(device));
  return state;
}

void load_random_state(const StateTree& state, at::Device device) {
  const auto wanted = state_of(at::kCPU);
  state.copy_to("cpu", wanted);
  if (!device.is_cpu() && state.contains("device")) {
    const auto of_device = state_of(device);
    state.copy_to("device", of_device);
    set_state(device, of_device);
  }
  set_state(at::kCPU, wanted);
}

}  // namespace lockstep
