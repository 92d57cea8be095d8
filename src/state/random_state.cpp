#include <lockstep/state/random_state.h>

#include <lockstep/device/torch_device.h>

namespace lockstep {
namespace {

// A copy: also the shape and type that are expected.
at::Tensor state_of(at::Device device) { return detail::state_of_generator(generator_of(device)); }

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
    detail::set_state_of_generator(generator_of(device), of_device);
  }
  detail::set_state_of_generator(generator_of(at::kCPU), wanted);
}

}  // namespace lockstep
