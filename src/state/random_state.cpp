#include <lockstep/state/random_state.h>

#include <ATen/Context.h>

namespace lockstep {
namespace {

at::Generator cpu_generator() { return at::globalContext().defaultGenerator(at::kCPU); }

}  // namespace

StateTree random_state() {
  StateTree state;
  state.set("cpu", cpu_generator().get_state());
  return state;
}

void load_random_state(const StateTree& state) {
  auto generator = cpu_generator();
  const auto wanted = generator.get_state();  // a copy: also the shape and type that are expected
  state.copy_to("cpu", wanted);
  generator.set_state(wanted);
}

}  // namespace lockstep
