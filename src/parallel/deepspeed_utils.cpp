#include <lockstep/parallel/deepspeed_utils.h>

#include <algorithm>
#include <memory>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/parallel/sharded/sharded_modules.h>
#include <lockstep/torch.h>

#include "optim/pieces.h"

namespace lockstep::deepspeed {
namespace {

/// What this rank holds of a tensor in the shape of a parameter: all of it, or a run of its elements.
struct Held {
  at::Tensor parameter;
  at::Tensor elements;  // undefined: nobody has any
  std::shared_ptr<ShardedEngine> engine = {};

  bool is_run() const { return engine != nullptr; }
};

at::ScalarType wide_type(const at::Tensor& tensor) {
  return tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

at::Tensor wide_copy(const at::Tensor& tensor) {
  return tensor.detach().to(wide_type(tensor), /*non_blocking=*/false, /*copy=*/true);
}

at::Tensor whole(const Held& held) {
  if (!held.elements.defined()) return {};
  if (!held.is_run()) return wide_copy(held.elements);
  return held.engine->gather_elements(held.parameter, held.elements).to(wide_type(held.elements));
}

at::Tensor run(const Held& held) {
  return held.elements.defined() ? wide_copy(held.elements).reshape({-1}) : at::Tensor();
}

void check_shape(const at::Tensor& value, at::IntArrayRef expected) {
  if (value.defined() && value.sizes() == expected) return;
  throw ConfigError("parallel",
                    {.what = "a value that does not fit its parameter",
                     .expected = c10::str("shape ", expected),
                     .got = value.defined() ? c10::str(value.sizes()) : std::string("an undefined tensor")});
}

void set_whole(const Held& held, const at::Tensor& value) {
  check_shape(value, held.parameter.sizes());
  const torch::NoGradGuard no_grad;
  auto elements = held.elements.detach();
  if (!held.is_run()) {
    elements.copy_(value);
    return;
  }
  const auto begin = held.engine->shard_of(held.parameter)->begin;
  elements.copy_(value.reshape({-1}).narrow(0, begin, elements.numel()));
}

void set_run(const Held& held, const at::Tensor& value) {
  check_shape(value, {held.elements.numel()});
  const torch::NoGradGuard no_grad;
  auto elements = held.elements.detach();
  elements.copy_(value.view(elements.sizes()));
}

std::shared_ptr<ShardedEngine> engine_of(const at::Tensor& parameter) {
  if (parameter.defined() && !detail::is_piece(parameter)) return sharded_engine_of(parameter);
  throw ConfigError("parallel",
                    {.what = "a parameter to look at or to set",
                     .expected = "a tensor of the module",
                     .got = parameter.defined() ? "this rank's piece of one, which optimizers have"
                                                : "an undefined tensor"});
}

Held held_param(const at::Tensor& parameter) {
  const auto engine = engine_of(parameter);
  return {parameter, engine ? engine->piece_of(parameter) : parameter, engine};
}

// What is gathered, or on its way, is outdated.
void forget_gathered(const Held& held) {
  if (held.is_run()) held.engine->forget_gathered();
}

Held held_grad(const at::Tensor& parameter) {
  const auto engine = engine_of(parameter);
  return {parameter, engine ? engine->piece_of(parameter).grad() : parameter.grad(), engine};
}

// As the step will see it.
at::Tensor scaled(const Held& held, const at::Tensor& gradient) {
  const auto scales = held.is_run() ? held.engine->pending_scales() : nullptr;
  if (!scales || !gradient.defined()) return gradient;
  const auto factor = scales->factor_of(held.engine->piece_of(held.parameter));
  return factor == 1.0 ? gradient : gradient * factor;
}

Held held_grad_to_set(const at::Tensor& parameter) {
  auto held = held_grad(parameter);
  if (!held.elements.defined())
    throw ConfigError("parallel", {.what = "a gradient that is to be set",
                                   .expected = "a parameter that has one, after backward and before the step",
                                   .got = c10::str("none, of shape ", parameter.sizes())});
  if (const auto scales = held.is_run() ? held.engine->pending_scales() : nullptr) scales->apply_all();
  return held;
}

std::string name_in(const lockstep::Optimizer& optimizer, const Held& held) {
  for (const auto& [name, tensor] : optimizer.parameters())
    if (tensor.is_same(held.elements)) return name;
  throw ConfigError("parallel",
                    {.what = "the state of a parameter in " + std::string(optimizer.name()),
                     .expected = "one that this optimizer trains",
                     .got = held.is_run() ? held.engine->name_of(held.parameter) + ", which it does not"
                                          : c10::str("another, of shape ", held.parameter.sizes())});
}

// Some keep what is not in the shape of a parameter: a count, or LBFGS's of all parameters in a row.
Held held_state(const at::Tensor& parameter, const std::string& kind, lockstep::Optimizer& optimizer) {
  const auto held = held_param(parameter);
  const auto name = name_in(optimizer, held);
  std::string kinds;
  for (const auto& entry : optimizer.state()) {
    if (entry.parameter != name) continue;
    if (entry.kind == kind && entry.tensor.numel() == held.elements.numel() && kind != "step")
      return {parameter, entry.tensor, held.engine};
    if (entry.kind == kind) return {entry.tensor, entry.tensor};
    kinds += (kinds.empty() ? "" : ", ") + entry.kind;
  }
  throw ConfigError("parallel",
                    {.what = "the state of " + name + " in " + std::string(optimizer.name()),
                     .expected = kinds.empty() ? "none: it keeps nothing of this parameter" : kinds,
                     .got = kind});
}

}  // namespace

at::Tensor safe_get_full_fp32_param(const at::Tensor& parameter) { return whole(held_param(parameter)); }

void safe_set_full_fp32_param(const at::Tensor& parameter, const at::Tensor& value) {
  const auto held = held_param(parameter);
  forget_gathered(held);
  set_whole(held, value);
}

at::Tensor safe_get_full_grad(const at::Tensor& parameter) {
  const auto held = held_grad(parameter);
  return scaled(held, whole(held));
}

void safe_set_full_grad(const at::Tensor& parameter, const at::Tensor& value) {
  set_whole(held_grad_to_set(parameter), value);
}

at::Tensor safe_get_full_optimizer_state(const at::Tensor& parameter, const std::string& kind,
                                         lockstep::Optimizer& optimizer) {
  return whole(held_state(parameter, kind, optimizer));
}

void safe_set_full_optimizer_state(const at::Tensor& parameter, const at::Tensor& value,
                                   const std::string& kind, lockstep::Optimizer& optimizer) {
  set_whole(held_state(parameter, kind, optimizer), value);
}

void safe_update_full_grad_vectorized(
    std::span<const at::Tensor> parameters,
    const std::function<at::Tensor(const at::Tensor& gradient, const at::Tensor& parameter)>& update) {
  for (const auto& parameter : parameters) {
    const auto gradient = safe_get_full_grad(parameter);
    if (gradient.defined()) safe_set_full_grad(parameter, update(gradient, parameter));
  }
}

at::Tensor safe_get_local_fp32_param(const at::Tensor& parameter) { return run(held_param(parameter)); }

void safe_set_local_fp32_param(const at::Tensor& parameter, const at::Tensor& value) {
  const auto held = held_param(parameter);
  forget_gathered(held);
  set_run(held, value);
}

at::Tensor safe_get_local_grad(const at::Tensor& parameter) {
  const auto held = held_grad(parameter);
  return scaled(held, run(held));
}

void safe_set_local_grad(const at::Tensor& parameter, const at::Tensor& value) {
  set_run(held_grad_to_set(parameter), value);
}

at::Tensor safe_get_local_optimizer_state(const at::Tensor& parameter, const std::string& kind,
                                          lockstep::Optimizer& optimizer) {
  return run(held_state(parameter, kind, optimizer));
}

void safe_set_local_optimizer_state(const at::Tensor& parameter, const at::Tensor& value,
                                    const std::string& kind, lockstep::Optimizer& optimizer) {
  set_run(held_state(parameter, kind, optimizer), value);
}

}  // namespace lockstep::deepspeed
