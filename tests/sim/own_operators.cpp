// Operators whose kernels for the CPU, or whose ways there, are not what the device wants.
#include <ATen/ATen.h>
#include <ATen/native/transformers/attention.h>

#include "sim/operators.h"
#include "sim/streams.h"

namespace lockstep::sim {
namespace {

// The CPU's kernel draws from the host's generator.
std::tuple<at::Tensor, at::Tensor> native_dropout(const at::Tensor& input, double p,
                                                  std::optional<bool> train) {
  auto mask = at::empty_like(input, input.options().dtype(at::kBool));
  if (!train.value_or(true)) return {input.clone(), mask.fill_(true)};
  mask.bernoulli_(1 - p);
  return {input.mul(mask).mul_(p < 1 ? 1 / (1 - p) : 0.0), mask};
}

at::Tensor on_host(const at::Tensor& tensor) {
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(at::kCPU));
}

// Asks what the CPU would do with tensors of these shapes.
std::int64_t sdp_choice(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                        const std::optional<at::Tensor>& mask, double dropout_p, bool is_causal,
                        std::optional<double> scale, bool enable_gqa) {
  constexpr std::int64_t kMath = 0, kFlash = 1, kOverrideable = 4;
  const auto of = [](const at::Tensor& tensor) {
    auto made = on_host(tensor);
    return tensor.requires_grad() && tensor.is_floating_point() ? made.requires_grad_() : made;
  };
  const auto choice =
      at::_fused_sdp_choice(of(query), of(key), of(value), mask ? std::optional(of(*mask)) : std::nullopt,
                            dropout_p, is_causal, scale, enable_gqa);
  return choice == kFlash ? kOverrideable : kMath;
}

using Attention = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt,
                             at::Tensor, at::Tensor, at::Tensor>;

Attention attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                    const std::optional<at::Tensor>& bias, double dropout_p, bool is_causal, bool,
                    std::optional<double> scale) {
  auto [output, logsumexp] =
      at::_scaled_dot_product_flash_attention_for_cpu(query, key, value, dropout_p, is_causal, bias, scale);
  const auto none = at::empty({0}, query.options().dtype(at::kLong));
  return {output, logsumexp, none, none, query.size(2), key.size(2), none, none, none};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> attention_backward(
    const at::Tensor& gradient, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& bias, std::array<bool, 4>, const at::Tensor& output, const at::Tensor& logsumexp,
    const at::Tensor&, const at::Tensor&, c10::SymInt, c10::SymInt, double dropout_p, bool is_causal,
    const at::Tensor&, const at::Tensor&, std::optional<double> scale) {
  auto [of_query, of_key, of_value] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      gradient, query, key, value, output, logsumexp, dropout_p, is_causal,
      bias.defined() ? std::optional(bias) : std::nullopt, scale);
  return {of_query, of_key, of_value, at::Tensor()};
}

bool makes_views(const c10::FunctionSchema& schema) {
  return std::ranges::any_of(schema.returns(), [](const auto& result) {
    return result.alias_info() != nullptr && !result.alias_info()->isWrite();
  });
}

// Other devices would compose it of other operators, in other bits than the kernel has that the CPU has for
// it.
bool is_composed_elsewhere(const c10::OperatorHandle& op) {
  using c10::DispatchKey;
  if (!op.hasSchema() || makes_views(op.schema()) || !op.hasKernelForDispatchKey(DispatchKey::CPU))
    return false;
  if (op.hasKernelForDispatchKey(DispatchKey::PrivateUse1)) return false;
  return op.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd) ||
         op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd);
}

}  // namespace

void add_own_operators(torch::Library& aten) {
  aten.impl("native_dropout", &native_dropout);
  aten.impl("_fused_sdp_choice", &sdp_choice);
  at::native::_fused_sdp_choice_stub.set_privateuse1_dispatch_ptr(&sdp_choice);  // whom attention asks
  aten.impl("_scaled_dot_product_fused_attention_overrideable", &attention);
  aten.impl("_scaled_dot_product_fused_attention_overrideable_backward", &attention_backward);
  // LibTorch chooses a kernel by the device, and knows none for this one.
  for (const auto* const name : {"convolution", "convolution_backward"})
    aten.impl(name, torch::CppFunction::makeFromBoxedFunction<&run_on_stream>());
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findOp(name);
    if (!name.name.starts_with("aten::") || !op || !is_composed_elsewhere(*op)) continue;
    const auto own = name.name.substr(6) + (name.overload_name.empty() ? "" : '.' + name.overload_name);
    aten.impl(own.c_str(), torch::CppFunction::makeFromBoxedFunction<&run_on_stream>());
  }
}

}  // namespace lockstep::sim
