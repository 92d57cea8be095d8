// Softmax and losses, with their derivatives.
#include <array>

#include <ATen/core/Reduction.h>

#include "xla/lowering.h"

namespace lockstep::xla {
namespace {

// A reduction over one dimension, broadcast back.
Named over(Call& call, std::string_view name, const Named& array, std::int64_t dimension) {
  const auto reduced = call.emit.reduce(name, array, {dimension});
  std::vector<std::int64_t> kept;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(array.shape.sizes.size()); ++i)
    if (i != dimension) kept.push_back(i);
  return call.emit.broadcast_to(reduced, array.shape.sizes, kept);
}

std::int64_t dimension_of(const Call& call) {
  return call.dimensions("dim", call.out().sizes.size()).front();
}
Named like_result(Call& call, std::string_view name) {
  return call.operand(name, call.out().dtype, call.out().sizes);
}

Named shifted(Call& call, const Named& array, std::int64_t dimension) {
  return call.emit.apply("subtract", {array, over(call, "maximum", array, dimension)});
}

std::vector<Named> log_softmax(Call& call) {
  const auto dimension = dimension_of(call);
  const auto below = shifted(call, like_result(call, "self"), dimension);
  const auto sum = over(call, "add", call.emit.apply("exponential", {below}), dimension);
  return {call.emit.apply("subtract", {below, call.emit.apply("log", {sum})})};
}

std::vector<Named> softmax(Call& call) {
  const auto dimension = dimension_of(call);
  const auto powers = call.emit.apply("exponential", {shifted(call, like_result(call, "self"), dimension)});
  return {call.emit.apply("divide", {powers, over(call, "add", powers, dimension)})};
}

std::vector<Named> log_softmax_backward(Call& call) {
  const auto gradient = like_result(call, "grad_output");
  const auto weights = call.emit.apply("exponential", {like_result(call, "output")});
  const auto sum = over(call, "add", gradient, dimension_of(call));
  return {call.emit.apply("subtract", {gradient, call.emit.apply("multiply", {weights, sum})})};
}

std::vector<Named> softmax_backward(Call& call) {
  const auto output = like_result(call, "output");
  const auto product = call.emit.apply("multiply", {like_result(call, "grad_output"), output});
  const auto sum = over(call, "add", product, dimension_of(call));
  return {call.emit.apply("subtract", {product, call.emit.apply("multiply", {output, sum})})};
}

// Of log-probabilities [rows, classes]: the weight of an element that is its row's target, zero of others.
Named weights_of_targets(Call& call, const Shape& shape) {
  auto& emit = call.emit;
  const Shape classes{shape.sizes, at::kLong}, rows{{shape.sizes.front()}, at::kLong};
  const auto target = emit.convert(call.tensor("target"), at::kLong);
  const auto counts = emit.compare("NE", target, emit.constant(call.integer("ignore_index"), rows));
  const auto is_target =
      emit.compare("EQ", emit.iota(1, classes), emit.broadcast_to(target, shape.sizes, {0}));
  const auto is_counted = emit.apply("and", {is_target, emit.broadcast_to(counts, shape.sizes, {0})});
  const auto weights =
      call.is_array("weight")
          ? emit.broadcast_to(emit.convert(call.tensor("weight"), shape.dtype), shape.sizes, {1})
          : emit.constant(1.0, shape);
  return emit.select(is_counted, weights, emit.constant(0.0, shape));
}

std::vector<Named> nll_loss_forward(Call& call) {
  auto& emit = call.emit;
  const auto& self = call.tensor("self");
  const auto weights = weights_of_targets(call, self.shape);
  // Not a product: scores of other classes may be infinite.
  const auto zero = emit.constant(0.0, self.shape);
  const auto counted = emit.select(emit.compare("NE", weights, zero), self, zero);
  const auto losses =
      emit.apply("negate", {emit.reduce("add", emit.apply("multiply", {counted, weights}), {1})});
  const auto reduction = call.integer("reduction");
  // Without a reduction LibTorch tells no weight.
  if (reduction == at::Reduction::None) return {losses, emit.constant(0.0, call.out(1))};
  const auto sum = emit.reduce("add", losses, {0}), weight = emit.reduce("add", weights, {0, 1});
  return {reduction == at::Reduction::Mean ? emit.apply("divide", {sum, weight}) : sum, weight};
}

std::vector<Named> nll_loss_backward(Call& call) {
  auto& emit = call.emit;
  const auto& shape = call.out();
  auto gradient = emit.convert(call.tensor("grad_output"), shape.dtype);
  if (call.integer("reduction") == at::Reduction::Mean)
    gradient = emit.apply("divide", {gradient, emit.convert(call.tensor("total_weight"), shape.dtype)});
  gradient = emit.apply("negate", {gradient});
  const auto spread = emit.broadcast_to(
      gradient, shape.sizes,
      gradient.shape.sizes.empty() ? std::vector<std::int64_t>{} : std::vector<std::int64_t>{0});
  const auto weights = weights_of_targets(call, shape);
  const auto zero = emit.constant(0.0, shape);
  return {emit.select(emit.compare("NE", weights, zero), emit.apply("multiply", {spread, weights}), zero)};
}

bool is_matrix(const Given& given) { return given["self"].toTensor().dim() == 2; }

std::vector<Named> mse_loss(Call& call) {
  auto& emit = call.emit;
  const auto& shape = call.tensor("self").shape;
  const auto difference =
      emit.apply("subtract", {call.tensor("self"), call.operand("target", shape.dtype, shape.sizes)});
  const auto squares = emit.apply("multiply", {difference, difference});
  const auto reduction = call.integer("reduction");
  if (reduction == at::Reduction::None) return {squares};
  const auto sum = emit.reduce("add", squares, call.dimensions("dim", shape.sizes.size()));
  if (reduction == at::Reduction::Sum) return {sum};
  return {emit.apply("divide", {sum, emit.constant(static_cast<double>(shape.numel()), sum.shape)})};
}

std::vector<Named> mse_loss_backward(Call& call) {
  auto& emit = call.emit;
  const auto difference = emit.apply("subtract", {like_result(call, "self"), like_result(call, "target")});
  const auto product = emit.apply("multiply", {difference, like_result(call, "grad_output")});
  const bool is_mean = call.integer("reduction") == at::Reduction::Mean;
  const double factor = is_mean ? 2.0 / static_cast<double>(call.out().numel()) : 2.0;
  return {emit.apply("multiply", {product, emit.constant(factor, call.out())})};
}

bool are_of_one_shape(const Given& given) {
  const auto& self = given["self"].toTensor();
  return self.numel() > 0 && self.sizes() == given["target"].toTensor().sizes();
}

bool has_dimensions(const Given& given) {
  const auto self = given["self"], output = given["output"];
  return (self.isTensor() ? self : output).toTensor().dim() > 0;
}

}  // namespace

std::span<const Row> loss_rows() {
  static const std::array rows{
      Row{.name = "aten::_log_softmax", .lower = &log_softmax, .accepts = &has_dimensions},
      Row{.name = "aten::_softmax", .lower = &softmax, .accepts = &has_dimensions},
      Row{.name = "aten::_log_softmax_backward_data",
          .lower = &log_softmax_backward,
          .like = "output",
          .accepts = &has_dimensions},
      Row{.name = "aten::_softmax_backward_data",
          .lower = &softmax_backward,
          .like = "output",
          .accepts = &has_dimensions},
      Row{.name = "aten::nll_loss_forward", .lower = &nll_loss_forward, .accepts = &is_matrix},
      Row{.name = "aten::nll_loss_backward",
          .lower = &nll_loss_backward,
          .like = "self",
          .accepts = &is_matrix},
      Row{.name = "aten::mse_loss", .lower = &mse_loss, .accepts = &are_of_one_shape},
      Row{.name = "aten::mse_loss_backward",
          .lower = &mse_loss_backward,
          .like = "self",
          .accepts = &are_of_one_shape},
  };
  return rows;
}

}  // namespace lockstep::xla
