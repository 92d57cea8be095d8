#include "parallel/activations/run_state.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>

#include <mutex>

namespace lockstep::detail {
namespace {

at::Generator or_default(const at::Generator& generator) {
  return generator.defined() ? generator : at::detail::getDefaultCPUGenerator();
}

}  // namespace

at::Tensor generator_state(const at::Generator& generator) {
  auto of = or_default(generator);
  const std::lock_guard lock(of.mutex());
  return of.get_state();
}

void set_generator_state(const at::Tensor& state, const at::Generator& generator) {
  auto of = or_default(generator);
  const std::lock_guard lock(of.mutex());
  of.set_state(state);
}

AutocastState AutocastState::now() {
  return {.is_enabled = at::autocast::is_autocast_enabled(at::kCPU),
          .is_cache_enabled = at::autocast::is_autocast_cache_enabled(),
          .dtype = at::autocast::get_autocast_dtype(at::kCPU)};
}

void AutocastState::set() const {
  at::autocast::set_autocast_enabled(at::kCPU, is_enabled);
  at::autocast::set_autocast_cache_enabled(is_cache_enabled);
  at::autocast::set_autocast_dtype(at::kCPU, dtype);
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

}  // namespace lockstep::detail
