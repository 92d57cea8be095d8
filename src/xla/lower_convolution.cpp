// Convolutions of any number of dimensions, transposed ones, and their derivatives, all by
// stablehlo.convolution.
#include <array>

#include "xla/lowering.h"

namespace lockstep::xla {
namespace {

using Sizes = std::vector<std::int64_t>;

// How a kernel moves, for each dimension of space.
struct Window {
  Sizes stride, padding, dilation;
  std::int64_t groups;

  // Elements of the input that the kernel spans.
  std::int64_t span(std::size_t i, std::int64_t kernel) const { return dilation[i] * (kernel - 1) + 1; }
};

// One number may stand for all dimensions.
Sizes for_each_dimension(const c10::IValue& value, std::size_t dimensions) {
  auto numbers = value.toIntVector();
  if (numbers.size() == 1) numbers.resize(dimensions, numbers.front());
  return numbers;
}

template <class Arguments>
Window window_of(const Arguments& arguments, std::size_t dimensions) {
  return {.stride = for_each_dimension(arguments["stride"], dimensions),
          .padding = for_each_dimension(arguments["padding"], dimensions),
          .dilation = for_each_dimension(arguments["dilation"], dimensions),
          .groups = arguments["groups"].toInt()};
}

// What of stablehlo.convolution differs between the three products of a convolution.
struct Product {
  std::string_view left, right, result;  ///< what the dimensions beside those of space are: "b, f"
  Sizes stride, low, high, left_dilation, right_dilation;
  bool is_reversed = false;
  std::int64_t feature_groups = 1, batch_groups = 1;
};

std::string dimensions_text(std::string_view leading, std::size_t count) {
  std::string text = "[" + std::string(leading);
  for (std::size_t i = 0; i < count; ++i) text += ", " + std::to_string(i);
  return text + "]";
}

std::string padding_text(const Product& product) {
  std::string text = "[";
  for (std::size_t i = 0; i < product.low.size(); ++i)
    text += (i > 0 ? ", " : "") + list_text({product.low[i], product.high[i]});
  return text + "]";
}

std::string reversal_text(const Product& product) {
  std::string text = "[";
  for (std::size_t i = 0; i < product.low.size(); ++i)
    text += std::string(i > 0 ? ", " : "") + (product.is_reversed ? "true" : "false");
  return text + "]";
}

// Sums of 16 bits are taken in float32.
Named convolve(Emitter& emit, const Named& left, const Named& right, const Product& product,
               const Sizes& sizes) {
  const auto dtype = left.shape.dtype;
  if (dtype == at::kHalf || dtype == at::kBFloat16)
    return emit.convert(
        convolve(emit, emit.convert(left, at::kFloat), emit.convert(right, at::kFloat), product, sizes),
        dtype);
  const Shape shape{sizes, dtype};
  const auto count = product.low.size();
  return emit.emit(
      "stablehlo.convolution(" + left.name + ", " + right.name + ") dim_numbers = " +
          dimensions_text(product.left, count) + "x" + dimensions_text(product.right, count) + "->" +
          dimensions_text(product.result, count) + ", window = {stride = " + list_text(product.stride) +
          ", pad = " + padding_text(product) + ", lhs_dilate = " + list_text(product.left_dilation) +
          ", rhs_dilate = " + list_text(product.right_dilation) + ", reverse = " + reversal_text(product) +
          "} {batch_group_count = " + std::to_string(product.batch_groups) +
          " : i64, feature_group_count = " + std::to_string(product.feature_groups) + " : i64} : (" +
          type_text(left.shape) + ", " + type_text(right.shape) + ") -> " + type_text(shape),
      shape);
}

// `input` [N, C, ...] with `weight` [O, C / groups, ...].
Named forward(Emitter& emit, const Named& input, const Named& weight, const Window& window,
              const Sizes& sizes) {
  const Sizes ones(window.stride.size(), 1);
  return convolve(emit, input, weight,
                  {.left = "b, f",
                   .right = "o, i",
                   .result = "b, f",
                   .stride = window.stride,
                   .low = window.padding,
                   .high = window.padding,
                   .left_dilation = ones,
                   .right_dilation = window.dilation,
                   .feature_groups = window.groups},
                  sizes);
}

// [O, C / groups, ...] as [O / groups, C, ...].
Named with_groups_in_second(Emitter& emit, const Named& weight, std::int64_t groups) {
  if (groups == 1) return weight;
  const auto& sizes = weight.shape.sizes;
  Sizes split{groups, sizes[0] / groups, sizes[1]}, order{1, 0, 2},
      joined{sizes[0] / groups, groups * sizes[1]};
  for (std::size_t i = 2; i < sizes.size(); ++i) {
    split.push_back(sizes[i]);
    joined.push_back(sizes[i]);
    order.push_back(static_cast<std::int64_t>(i) + 1);
  }
  return emit.reshape(emit.transpose(emit.reshape(weight, split), order), joined);
}

// The adjoint of forward() in its input, of `sizes`.
Named backward_of_input(Emitter& emit, const Named& gradient, const Named& weight, const Window& window,
                        const Sizes& sizes) {
  Product product{.left = "b, f",
                  .right = "i, o",
                  .result = "b, f",
                  .stride = Sizes(window.stride.size(), 1),
                  .low = {},
                  .high = {},
                  .left_dilation = window.stride,
                  .right_dilation = window.dilation,
                  .is_reversed = true,
                  .feature_groups = window.groups};
  for (std::size_t i = 0; i < window.stride.size(); ++i) {
    const auto span = window.span(i, weight.shape.sizes[i + 2]);
    const auto spread = (gradient.shape.sizes[i + 2] - 1) * window.stride[i] + 1;
    product.low.push_back(span - 1 - window.padding[i]);
    product.high.push_back(sizes[i + 2] + span - 1 - spread - product.low.back());
  }
  return convolve(emit, gradient, with_groups_in_second(emit, weight, window.groups), product, sizes);
}

// The adjoint of forward() in its weight, of `sizes`.
Named backward_of_weight(Emitter& emit, const Named& gradient, const Named& input, const Window& window,
                         const Sizes& sizes) {
  Product product{.left = "f, b",
                  .right = "i, o",
                  .result = "f, b",
                  .stride = window.dilation,
                  .low = window.padding,
                  .high = {},
                  .left_dilation = Sizes(window.stride.size(), 1),
                  .right_dilation = window.stride,
                  .batch_groups = window.groups};
  for (std::size_t i = 0; i < window.stride.size(); ++i) {
    const auto spread = (gradient.shape.sizes[i + 2] - 1) * window.stride[i] + 1;
    product.high.push_back(window.span(i, sizes[i + 2]) - 1 + spread - input.shape.sizes[i + 2] -
                           window.padding[i]);
  }
  return convolve(emit, input, gradient, product, sizes);
}

// The arguments of a call as a window's.
struct Arguments {
  const Call& call;
  c10::IValue operator[](std::string_view name) const { return call.value(name); }
};

std::vector<Named> convolution(Call& call) {
  auto& emit = call.emit;
  const auto &input = call.tensor("input"), &weight = call.tensor("weight");
  const auto window = window_of(Arguments{call}, input.shape.sizes.size() - 2);
  const auto& sizes = call.out().sizes;
  auto made = call.flag("transposed") ? backward_of_input(emit, input, weight, window, sizes)
                                      : forward(emit, input, weight, window, sizes);
  if (call.is_array("bias"))
    made = emit.apply("add", {made, emit.broadcast_to(call.tensor("bias"), sizes, {1})});
  return {made};
}

std::vector<Named> convolution_backward(Call& call) {
  auto& emit = call.emit;
  const auto &gradient = call.tensor("grad_output"), &input = call.tensor("input"),
             &weight = call.tensor("weight");
  const auto window = window_of(Arguments{call}, input.shape.sizes.size() - 2);
  Sizes others{0};
  for (std::size_t i = 2; i < input.shape.sizes.size(); ++i) others.push_back(static_cast<std::int64_t>(i));
  const auto &input_sizes = input.shape.sizes, &weight_sizes = weight.shape.sizes;
  const auto of_bias = emit.reduce("add", gradient, others);
  if (call.flag("transposed"))
    return call.asked_for({forward(emit, gradient, weight, window, input_sizes),
                           backward_of_weight(emit, input, gradient, window, weight_sizes), of_bias});
  return call.asked_for({backward_of_input(emit, gradient, weight, window, input_sizes),
                         backward_of_weight(emit, gradient, input, window, weight_sizes), of_bias});
}

Shapes convolution_shapes(const Given& given) {
  const auto input = given.shape("input"), weight = given.shape("weight");
  const auto window = window_of(given, input.sizes.size() - 2);
  const bool is_transposed = given["transposed"].toBool();
  Shape made{{input.sizes[0], is_transposed ? weight.sizes[1] * window.groups : weight.sizes[0]},
             input.dtype};
  const auto more = for_each_dimension(given["output_padding"], window.stride.size());
  for (std::size_t i = 0; i < window.stride.size(); ++i) {
    const auto size = input.sizes[i + 2], span = window.span(i, weight.sizes[i + 2]);
    made.sizes.push_back(is_transposed
                             ? (size - 1) * window.stride[i] - 2 * window.padding[i] + span + more[i]
                             : (size + 2 * window.padding[i] - span) / window.stride[i] + 1);
  }
  return {made};
}

Shapes convolution_gradient_shapes(const Given& given) {
  const auto weight = given.shape("weight");
  return given.asked_for(
      {given.shape("input"), weight, Shape{{given.shape("grad_output").sizes[1]}, weight.dtype}});
}

// The CPU says what is wrong with others.
bool is_a_convolution(const Given& given) {
  const auto input = given["input"].toTensor(), weight = given["weight"].toTensor();
  if (input.dim() < 3 || input.dim() != weight.dim() || input.numel() == 0 || weight.numel() == 0)
    return false;
  if (!at::isFloatingType(input.scalar_type()) || input.scalar_type() != weight.scalar_type()) return false;
  const bool is_transposed = given["transposed"].toBool();
  const auto channels = is_transposed ? weight.size(0) : weight.size(1) * given["groups"].toInt();
  if (input.size(1) != channels) return false;
  if (given.has("grad_output")) return given["grad_output"].toTensor().numel() > 0;
  const auto shape = convolution_shapes(given).front().value();
  for (const auto size : shape.sizes)
    if (size <= 0) return false;
  return true;
}

}  // namespace

std::span<const Row> convolution_rows() {
  static const std::array rows{
      Row{.name = "aten::convolution",
          .lower = &convolution,
          .shapes = &convolution_shapes,
          .accepts = &is_a_convolution},
      Row{.name = "aten::convolution_backward",
          .lower = &convolution_backward,
          .shapes = &convolution_gradient_shapes,
          .accepts = &is_a_convolution},
  };
  return rows;
}

}  // namespace lockstep::xla
