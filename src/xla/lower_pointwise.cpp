// Operators that take each element by itself.
#include <array>
#include <cmath>
#include <numbers>

#include "xla/lowering.h"

namespace lockstep::xla {
namespace {

Named whole(Call& call, std::string_view name) {
  return call.operand(name, call.out().dtype, call.out().sizes);
}

template <const char* Name>
std::vector<Named> binary(Call& call) {
  return {call.emit.apply(Name, {whole(call, "self"), whole(call, "other")})};
}

template <const char* Name>
std::vector<Named> unary(Call& call) {
  return {call.emit.apply(Name, {whole(call, "self")})};
}

constexpr char kMultiply[] = "multiply", kDivide[] = "divide", kMaximum[] = "maximum", kMinimum[] = "minimum",
               kNegate[] = "negate", kExponential[] = "exponential", kLog[] = "log", kSqrt[] = "sqrt",
               kRsqrt[] = "rsqrt", kTanh[] = "tanh", kLogistic[] = "logistic", kAbs[] = "abs",
               kSign[] = "sign", kFloor[] = "floor", kCeil[] = "ceil", kSine[] = "sine", kCosine[] = "cosine",
               kAnd[] = "and", kOr[] = "or", kNot[] = "not";

// `other` times alpha, which is 1 nearly always.
Named scaled_other(Call& call) {
  const auto other = whole(call, "other");
  if (!call.is_array("alpha") && call.number("alpha") == 1.0) return other;
  return call.emit.apply("multiply", {other, whole(call, "alpha")});
}

std::vector<Named> add(Call& call) {
  return {call.emit.apply("add", {whole(call, "self"), scaled_other(call)})};
}
std::vector<Named> sub(Call& call) {
  return {call.emit.apply("subtract", {whole(call, "self"), scaled_other(call)})};
}
std::vector<Named> rsub(Call& call) {
  return {call.emit.apply("subtract", {whole(call, "other"), whole(call, "self")})};
}

// addcmul and addcdiv: self + value * tensor1 (* or /) tensor2.
template <const char* Name>
std::vector<Named> add_product(Call& call) {
  auto product = call.emit.apply(Name, {whole(call, "tensor1"), whole(call, "tensor2")});
  if (call.is_array("value") || call.number("value") != 1.0)
    product = call.emit.apply("multiply", {product, whole(call, "value")});
  return {call.emit.apply("add", {whole(call, "self"), product})};
}

std::vector<Named> lerp(Call& call) {
  const auto self = whole(call, "self");
  const auto way = call.emit.apply("subtract", {whole(call, "end"), self});
  return {call.emit.apply("add", {self, call.emit.apply("multiply", {way, whole(call, "weight")})})};
}

at::ScalarType compared_type(const Call& call) {
  const auto self = call.tensor("self").shape.dtype;
  if (!call.is_array("other")) return self;
  return c10::promoteTypes(self, call.tensor("other").shape.dtype);
}

template <const char* Direction>
std::vector<Named> compare(Call& call) {
  const auto type = compared_type(call);
  const auto& sizes = call.out().sizes;
  return {
      call.emit.compare(Direction, call.operand("self", type, sizes), call.operand("other", type, sizes))};
}

constexpr char kEq[] = "EQ", kNe[] = "NE", kLt[] = "LT", kLe[] = "LE", kGt[] = "GT", kGe[] = "GE";

std::vector<Named> reciprocal(Call& call) {
  return {call.emit.apply("divide", {call.emit.constant(1.0, call.out()), whole(call, "self")})};
}

std::vector<Named> power(Call& call) {
  const auto self = whole(call, "self");
  if (!call.is_array("exponent")) {
    const double exponent = call.number("exponent");
    if (exponent == 1.0) return {self};
    if (exponent == 2.0) return {call.emit.apply("multiply", {self, self})};
    if (exponent == 0.5) return {call.emit.apply("sqrt", {self})};
  }
  return {call.emit.apply("power", {self, whole(call, "exponent")})};
}

std::vector<Named> relu(Call& call) {
  return {call.emit.apply("maximum", {whole(call, "self"), call.emit.constant(0.0, call.out())})};
}

std::vector<Named> threshold_backward(Call& call) {
  const auto passes = call.emit.compare("GT", whole(call, "self"), whole(call, "threshold"));
  return {call.emit.select(passes, whole(call, "grad_output"), call.emit.constant(0.0, call.out()))};
}

Named product(Call& call, const Named& left, const Named& right) {
  return call.emit.apply("multiply", {left, right});
}
Named number(Call& call, double value) { return call.emit.constant(value, call.out()); }
Named plus(Call& call, const Named& left, const Named& right) {
  return call.emit.apply("add", {left, right});
}

Named erf(Call& call, const Named& array) {
  const auto type = type_text(array.shape);
  return call.emit.emit("chlo.erf " + array.name + " : " + type + " -> " + type, array.shape);
}

// The cumulative distribution of x, (1 + erf(x / sqrt 2)) / 2.
Named normal_cdf(Call& call, const Named& x) {
  const auto inner = erf(call, product(call, x, number(call, 1.0 / std::numbers::sqrt2)));
  return product(call, plus(call, inner, number(call, 1.0)), number(call, 0.5));
}

// tanh(sqrt(2 / pi) (x + 0.044715 x^3)).
Named gelu_tanh(Call& call, const Named& x) {
  const auto cube = product(call, product(call, x, x), x);
  const auto sum = plus(call, x, product(call, cube, number(call, 0.044715)));
  return call.emit.apply("tanh", {product(call, sum, number(call, std::sqrt(2.0 / std::numbers::pi)))});
}

std::vector<Named> gelu(Call& call) {
  const auto x = whole(call, "self");
  if (call.text("approximate") == "none") return {product(call, x, normal_cdf(call, x))};
  const auto half = product(call, x, number(call, 0.5));
  return {product(call, half, plus(call, gelu_tanh(call, x), number(call, 1.0)))};
}

Named gelu_slope(Call& call, const Named& x) {
  if (call.text("approximate") == "none") {
    const auto square = product(call, product(call, x, x), number(call, -0.5));
    const auto density = product(call, call.emit.apply("exponential", {square}),
                                 number(call, 1.0 / std::sqrt(2.0 * std::numbers::pi)));
    return plus(call, normal_cdf(call, x), product(call, x, density));
  }
  const auto t = gelu_tanh(call, x);
  const auto left = product(call, plus(call, t, number(call, 1.0)), number(call, 0.5));
  const auto t_slope = call.emit.apply("subtract", {number(call, 1.0), product(call, t, t)});
  const double factor = std::sqrt(2.0 / std::numbers::pi);
  const auto inner = plus(call, product(call, product(call, x, x), number(call, 3 * 0.044715 * factor)),
                          number(call, factor));
  const auto right = product(call, product(call, product(call, x, number(call, 0.5)), t_slope), inner);
  return plus(call, left, right);
}

std::vector<Named> gelu_backward(Call& call) {
  return {product(call, whole(call, "grad_output"), gelu_slope(call, whole(call, "self")))};
}

std::vector<Named> tanh_backward(Call& call) {
  const auto output = whole(call, "output");
  const auto slope = call.emit.apply("subtract", {number(call, 1.0), product(call, output, output)});
  return {product(call, whole(call, "grad_output"), slope)};
}

std::vector<Named> sigmoid_backward(Call& call) {
  const auto output = whole(call, "output");
  const auto rest = call.emit.apply("subtract", {number(call, 1.0), output});
  return {product(call, whole(call, "grad_output"), product(call, rest, output))};
}

std::vector<Named> where(Call& call) {
  return {call.emit.select(call.operand("condition", at::kBool, call.out().sizes), whole(call, "self"),
                           whole(call, "other"))};
}

std::vector<Named> masked_fill(Call& call) {
  return {call.emit.select(call.operand("mask", at::kBool, call.out().sizes), whole(call, "value"),
                           whole(call, "self"))};
}

// Integers are never infinite.
template <bool IsNegative>
std::vector<Named> is_infinite(Call& call) {
  const auto& self = call.tensor("self");
  if (!at::isFloatingType(self.shape.dtype)) return {call.emit.constant(0.0, call.out())};
  return {call.emit.compare("EQ", self, call.emit.constant(IsNegative ? -INFINITY : INFINITY, self.shape))};
}

std::vector<Named> zero(Call& call) { return {call.emit.constant(0.0, call.out())}; }
std::vector<Named> fill(Call& call) { return {whole(call, "value")}; }

// LibTorch's integers are divided as float; `rounding_mode` runs on the CPU.
bool divides_exactly(const Given& given) { return given["rounding_mode"].isNone(); }
bool is_of_bool(const Given& given) {
  const auto other = given["other"];
  return given["self"].toTensor().scalar_type() == at::kBool &&
         (!other.isTensor() || other.toTensor().scalar_type() == at::kBool);
}
bool is_no_integer(const Given& given) { return at::isFloatingType(given["self"].toTensor().scalar_type()); }

}  // namespace

std::span<const Row> pointwise_rows() {
  static const std::array rows{
      Row{.name = "aten::add", .lower = &add, .numbers = {"other", "alpha"}},
      Row{.name = "aten::sub", .lower = &sub, .numbers = {"other", "alpha"}},
      Row{.name = "aten::rsub", .lower = &rsub, .numbers = {"other"}},
      Row{.name = "aten::mul", .lower = &binary<kMultiply>, .numbers = {"other"}},
      Row{.name = "aten::div", .lower = &binary<kDivide>, .numbers = {"other"}, .accepts = &divides_exactly},
      Row{.name = "aten::maximum", .lower = &binary<kMaximum>},
      Row{.name = "aten::minimum", .lower = &binary<kMinimum>},
      Row{.name = "aten::addcmul", .lower = &add_product<kMultiply>, .numbers = {"value"}},
      Row{.name = "aten::addcdiv", .lower = &add_product<kDivide>, .numbers = {"value"}},
      Row{.name = "aten::lerp", .lower = &lerp, .numbers = {"weight"}},
      Row{.name = "aten::eq", .lower = &compare<kEq>, .numbers = {"other"}},
      Row{.name = "aten::ne", .lower = &compare<kNe>, .numbers = {"other"}},
      Row{.name = "aten::lt", .lower = &compare<kLt>, .numbers = {"other"}},
      Row{.name = "aten::le", .lower = &compare<kLe>, .numbers = {"other"}},
      Row{.name = "aten::gt", .lower = &compare<kGt>, .numbers = {"other"}},
      Row{.name = "aten::ge", .lower = &compare<kGe>, .numbers = {"other"}},
      Row{.name = "aten::logical_and", .lower = &binary<kAnd>, .is_truth = true, .accepts = &is_of_bool},
      Row{.name = "aten::logical_or", .lower = &binary<kOr>, .is_truth = true, .accepts = &is_of_bool},
      Row{.name = "aten::logical_not", .lower = &unary<kNot>, .like = "self", .accepts = &is_of_bool},
      Row{.name = "aten::bitwise_and", .lower = &binary<kAnd>, .is_truth = true, .accepts = &is_of_bool},
      Row{.name = "aten::bitwise_or", .lower = &binary<kOr>, .is_truth = true, .accepts = &is_of_bool},
      Row{.name = "aten::bitwise_not", .lower = &unary<kNot>, .like = "self", .accepts = &is_of_bool},
      Row{.name = "aten::neg", .lower = &unary<kNegate>},
      Row{.name = "aten::exp", .lower = &unary<kExponential>},
      Row{.name = "aten::log", .lower = &unary<kLog>},
      Row{.name = "aten::sqrt", .lower = &unary<kSqrt>},
      Row{.name = "aten::rsqrt", .lower = &unary<kRsqrt>},
      Row{.name = "aten::tanh", .lower = &unary<kTanh>},
      Row{.name = "aten::sigmoid", .lower = &unary<kLogistic>},
      Row{.name = "aten::abs", .lower = &unary<kAbs>, .like = "self", .accepts = &is_no_integer},
      Row{.name = "aten::sign", .lower = &unary<kSign>, .accepts = &is_no_integer},
      Row{.name = "aten::floor", .lower = &unary<kFloor>, .accepts = &is_no_integer},
      Row{.name = "aten::ceil", .lower = &unary<kCeil>, .accepts = &is_no_integer},
      Row{.name = "aten::sin", .lower = &unary<kSine>},
      Row{.name = "aten::cos", .lower = &unary<kCosine>},
      Row{.name = "aten::reciprocal", .lower = &reciprocal},
      Row{.name = "aten::pow", .lower = &power, .accepts = &is_no_integer},
      Row{.name = "aten::relu", .lower = &relu, .like = "self"},
      Row{.name = "aten::threshold_backward", .lower = &threshold_backward, .like = "self"},
      Row{.name = "aten::gelu", .lower = &gelu, .like = "self"},
      Row{.name = "aten::gelu_backward", .lower = &gelu_backward, .like = "self"},
      Row{.name = "aten::tanh_backward", .lower = &tanh_backward, .like = "output"},
      Row{.name = "aten::sigmoid_backward", .lower = &sigmoid_backward, .like = "output"},
      Row{.name = "aten::where",
          .lower = &where,
          .is_choice = true,
          .accepts = [](const Given& given) { return !given["self"].isNone(); }},
      Row{.name = "aten::masked_fill", .lower = &masked_fill, .like = "self", .numbers = {"value"}},
      Row{.name = "aten::isneginf", .lower = &is_infinite<true>},
      Row{.name = "aten::isposinf", .lower = &is_infinite<false>},
      Row{.name = "aten::zero", .lower = &zero, .like = "self"},
      Row{.name = "aten::fill", .lower = &fill, .like = "self", .numbers = {"value"}},
  };
  return rows;
}

}  // namespace lockstep::xla
