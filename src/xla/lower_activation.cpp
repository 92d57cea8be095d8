// Activations and limits, with their derivatives.
#include <array>

#include "xla/arithmetic.h"
#include "xla/lowering.h"

namespace lockstep::xla {
namespace {

// An activation's arguments in the type and shape of its result.
class Activation : public Arithmetic {
 public:
  explicit Activation(Call& call) : Arithmetic(call.emit, call.out()), call_(call) {}
  Named of(std::string_view name) const { return call_.operand(name, shape().dtype, shape().sizes); }
  Named zero() const { return number(0.0); }

 private:
  Call& call_;
};

// LibTorch lets the upper limit win where limits cross.
std::vector<Named> clamp(Call& call) {
  const Activation a(call);
  auto made = a.of("self");
  if (call.has("min")) made = a.max(made, a.of("min"));
  if (call.has("max")) made = a.min(made, a.of("max"));
  return {made};
}

std::vector<Named> hardtanh(Call& call) {
  const Activation a(call);
  return {a.min(a.max(a.of("self"), a.of("min_val")), a.of("max_val"))};
}

std::vector<Named> hardtanh_backward(Call& call) {
  const Activation a(call);
  const auto self = a.of("self");
  const auto is_inside =
      call.emit.apply("and", {a.greater(self, a.of("min_val")), a.greater(a.of("max_val"), self)});
  return {a.select(is_inside, a.of("grad_output"), a.zero())};
}

std::vector<Named> leaky_relu(Call& call) {
  const Activation a(call);
  const auto self = a.of("self");
  return {a.select(a.greater(self, a.zero()), self, a.mul(self, a.of("negative_slope")))};
}

std::vector<Named> leaky_relu_backward(Call& call) {
  const Activation a(call);
  const auto gradient = a.of("grad_output");
  return {a.select(a.greater(a.of("self"), a.zero()), gradient, a.mul(gradient, a.of("negative_slope")))};
}

std::vector<Named> silu(Call& call) {
  const Activation a(call);
  const auto self = a.of("self");
  return {a.mul(self, a.sigmoid(self))};
}

std::vector<Named> silu_backward(Call& call) {
  const Activation a(call);
  const auto self = a.of("self"), sigmoid = a.sigmoid(self), one = a.number(1.0);
  const auto slope = a.mul(sigmoid, a.add(one, a.mul(self, a.sub(one, sigmoid))));
  return {a.mul(a.of("grad_output"), slope)};
}

std::vector<Named> elu(Call& call) {
  const Activation a(call);
  const auto self = a.of("self");
  const auto below = a.mul(a.mul(a.expm1(a.mul(self, a.of("input_scale"))), a.of("alpha")), a.of("scale"));
  return {a.select(a.greater(self, a.zero()), a.mul(self, a.of("scale")), below)};
}

std::vector<Named> elu_backward(Call& call) {
  const Activation a(call);
  const auto given = a.of("self_or_result"), gradient = a.of("grad_output");
  const auto scale = a.mul(a.of("scale"), a.of("input_scale"));
  const auto below = call.flag("is_result")
                         ? a.add(a.mul(given, a.of("input_scale")), a.mul(a.of("alpha"), scale))
                         : a.mul(a.mul(a.exp(a.mul(given, a.of("input_scale"))), a.of("alpha")), scale);
  return {a.mul(gradient, a.select(a.greater(given, a.zero()), a.of("scale"), below))};
}

std::vector<Named> softplus(Call& call) {
  const Activation a(call);
  const auto self = a.of("self"), beta = a.of("beta"), scaled = a.mul(self, beta);
  const auto curved = a.div(a.log1p(a.exp(scaled)), beta);
  return {a.select(a.greater(scaled, a.of("threshold")), self, curved)};
}

std::vector<Named> softplus_backward(Call& call) {
  const Activation a(call);
  const auto scaled = a.mul(a.of("self"), a.of("beta")), gradient = a.of("grad_output");
  return {a.select(a.greater(scaled, a.of("threshold")), gradient, a.mul(gradient, a.sigmoid(scaled)))};
}

// min(x, 0) - log(1 + exp(-|x|)). The second result serves the CPU's backward pass alone.
std::vector<Named> log_sigmoid(Call& call) {
  const Activation a(call);
  const auto self = a.of("self");
  const auto rest = a.log1p(a.exp(a.neg(a.abs(self))));
  return {a.sub(a.min(self, a.zero()), rest), call.emit.constant(0.0, call.out(1))};
}

std::vector<Named> log_sigmoid_backward(Call& call) {
  const Activation a(call);
  return {a.mul(a.of("grad_output"), a.sigmoid(a.neg(a.of("self"))))};
}

Shapes log_sigmoid_shapes(const Given& given) {
  const auto self = given.shape("self");
  return {self, Shape{{0}, self.dtype}};
}

// Limits of integers that are floats make floats.
bool is_clamped_in_type(const Given& given) {
  const auto self = given["self"].toTensor();
  for (const auto* const name : {"min", "max"}) {
    const auto limit = given[name];
    if (limit.isNone()) continue;
    if (limit.isTensor() ? at::result_type(self, limit.toTensor()) != self.scalar_type()
                         : at::isIntegralType(self.scalar_type(), true) && limit.toScalar().isFloatingPoint())
      return false;
  }
  return true;
}

}  // namespace

std::span<const Row> activation_rows() {
  static const std::array rows{
      Row{.name = "aten::clamp", .lower = &clamp, .accepts = &is_clamped_in_type},
      Row{.name = "aten::clamp_min", .lower = &clamp, .accepts = &is_clamped_in_type},
      Row{.name = "aten::clamp_max", .lower = &clamp, .accepts = &is_clamped_in_type},
      Row{.name = "aten::hardtanh", .lower = &hardtanh, .like = "self"},
      Row{.name = "aten::hardtanh_backward", .lower = &hardtanh_backward, .like = "self"},
      Row{.name = "aten::leaky_relu", .lower = &leaky_relu, .like = "self"},
      Row{.name = "aten::leaky_relu_backward", .lower = &leaky_relu_backward, .like = "grad_output"},
      Row{.name = "aten::silu", .lower = &silu, .like = "self"},
      Row{.name = "aten::silu_backward", .lower = &silu_backward, .like = "self"},
      Row{.name = "aten::elu", .lower = &elu, .like = "self"},
      Row{.name = "aten::elu_backward", .lower = &elu_backward, .like = "grad_output"},
      Row{.name = "aten::softplus", .lower = &softplus, .like = "self"},
      Row{.name = "aten::softplus_backward", .lower = &softplus_backward, .like = "self"},
      Row{.name = "aten::log_sigmoid_forward", .lower = &log_sigmoid, .shapes = &log_sigmoid_shapes},
      Row{.name = "aten::log_sigmoid_backward", .lower = &log_sigmoid_backward, .like = "self"},
  };
  return rows;
}

}  // namespace lockstep::xla
