#include "strategy/deferred_scales.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <lockstep/torch.h>

namespace lockstep::detail {
namespace {

// Kernels compute in float32 at least, where a gradient of 16 bits would be rounded once more in between.
bool has_same_bits(const Optimizer& optimizer) {
  return std::ranges::all_of(optimizer.parameters(), [](const NamedParameter& parameter) {
    const auto& gradient = parameter.tensor.grad();
    return !gradient.defined() || gradient.scalar_type() == at::kFloat ||
           gradient.scalar_type() == at::kDouble;
  });
}

bool is_power_of_two(double factor) {
  int exponent = 0;
  return std::frexp(factor, &exponent) == 0.5;
}

void multiply(const Optimizer& optimizer, double factor) {
  if (factor == 1.0) return;
  const torch::NoGradGuard no_grad;
  for (const auto& parameter : optimizer.parameters()) {
    if (parameter.tensor.grad().defined()) parameter.tensor.grad().mul_(factor);
  }
}

}  // namespace

std::shared_ptr<double> DeferredScales::follow(const Optimizer& optimizer) {
  std::erase_if(factors_, [](const auto& entry) { return entry.second.expired(); });
  auto factor = std::make_shared<double>(1.0);
  factors_[&optimizer] = factor;
  return factor;
}

std::shared_ptr<double> DeferredScales::find(const Optimizer& optimizer) const {
  const auto found = factors_.find(&optimizer);
  return found == factors_.end() ? nullptr : found->second.lock();
}

double DeferredScales::factor(const Optimizer& optimizer) const {
  const auto factor = find(optimizer);
  return factor ? *factor : 1.0;
}

double DeferredScales::factor_of(const at::Tensor& piece) const {
  for (const auto& [optimizer, factor] : factors_) {
    const auto current = factor.lock();
    if (!current || *current == 1.0) continue;
    const auto is_it = [&](const NamedParameter& parameter) { return parameter.tensor.is_same(piece); };
    if (std::ranges::any_of(optimizer->parameters(), is_it)) return *current;
  }
  return 1.0;
}

void DeferredScales::scale(const Optimizer& optimizer, double factor) {
  if (factor == 1.0) return;
  const auto deferred = find(optimizer);
  if (deferred && has_same_bits(optimizer)) {
    *deferred *= factor;
  } else {
    multiply(optimizer, factor);
  }
}

bool DeferredScales::defer_exact(const Optimizer& optimizer, double factor) {
  const auto deferred = find(optimizer);
  if (!deferred || !is_power_of_two(factor) || !has_same_bits(optimizer)) return false;
  settle(optimizer);
  *deferred *= factor;
  return true;
}

void DeferredScales::settle(const Optimizer& optimizer) {
  if (!is_power_of_two(factor(optimizer))) apply(optimizer);
}

void DeferredScales::apply(const Optimizer& optimizer) {
  if (const auto factor = find(optimizer)) multiply(optimizer, std::exchange(*factor, 1.0));
}

void DeferredScales::apply_all() {
  for (const auto& [optimizer, factor] : factors_) {
    if (!factor.expired()) apply(*optimizer);
  }
}

}  // namespace lockstep::detail
