// Pooling in two dimensions, the last ones of its input.
#include <algorithm>
#include <array>

#include "xla/arithmetic.h"
#include "xla/lowering.h"

namespace lockstep::xla {
namespace {

using Pair = std::array<std::int64_t, 2>;

// How a window moves over height and width.
struct Pooling {
  Pair kernel, stride, padding, dilation, input, output;

  std::int64_t span(std::size_t i) const { return dilation[i] * (kernel[i] - 1) + 1; }
  // Behind the input, for as many windows as the output has elements.
  std::int64_t high(std::size_t i) const {
    return std::max<std::int64_t>(0, (output[i] - 1) * stride[i] + span(i) - input[i] - padding[i]);
  }
};

Pair pair_of(const Call& call, std::string_view name, Pair otherwise) {
  if (!call.has(name)) return otherwise;
  const auto numbers = call.integers(name);
  if (numbers.empty()) return otherwise;
  return {numbers.front(), numbers.back()};
}

Pair plane_of(const Shape& shape) { return {shape.sizes[shape.sizes.size() - 2], shape.sizes.back()}; }

Pooling pooling_of(const Call& call, const Shape& input, const Shape& output) {
  const auto kernel = pair_of(call, "kernel_size", {1, 1});
  return {.kernel = kernel,
          .stride = pair_of(call, "stride", kernel),
          .padding = pair_of(call, "padding", {0, 0}),
          .dilation = pair_of(call, "dilation", {1, 1}),
          .input = plane_of(input),
          .output = plane_of(output)};
}

// "array<i64: 1, 1, 2, 2>" for `rank` dimensions.
std::string array_text(std::size_t rank, Pair last) {
  std::string text = "array<i64: ";
  for (std::size_t i = 2; i < rank; ++i) text += "1, ";
  return text + std::to_string(last[0]) + ", " + std::to_string(last[1]) + ">";
}

std::string paddings_text(std::size_t rank, const Pooling& pooling) {
  std::string text = "dense<[";
  for (std::size_t i = 2; i < rank; ++i) text += "[0, 0], ";
  text += list_text({pooling.padding[0], pooling.high(0)}) + ", " +
          list_text({pooling.padding[1], pooling.high(1)});
  return text + "]> : tensor<" + std::to_string(rank) + "x2xi64>";
}

std::string window_text(std::size_t rank, const Pooling& pooling) {
  return "window_dimensions = " + array_text(rank, pooling.kernel) +
         ", window_strides = " + array_text(rank, pooling.stride) +
         ", padding = " + paddings_text(rank, pooling);
}

// stablehlo.`name` over each window.
Named reduce_windows(Emitter& emit, std::string_view name, const Named& array, const Pooling& pooling,
                     const Shape& shape) {
  const auto rank = array.shape.sizes.size();
  const Shape one{{}, array.shape.dtype};
  const auto start = emit.neutral(name, one);
  const auto type = type_text(one);
  return emit.emit(
      "\"stablehlo.reduce_window\"(" + array.name + ", " + start.name + ") <{" + window_text(rank, pooling) +
          ", window_dilations = " + array_text(rank, pooling.dilation) + "}> ({\n    ^bb0(%old: " + type +
          ", %new: " + type + "):\n      %both = stablehlo." + std::string(name) + " %old, %new : " + type +
          "\n      stablehlo.return %both : " + type + "\n  }) : (" + type_text(array.shape) + ", " + type +
          ") -> " + type_text(shape),
      shape);
}

// The largest of each window and its place in the plane, the first of several; NaN is the largest.
std::vector<Named> largest_and_places(Emitter& emit, const Named& array, const Pooling& pooling,
                                      const Shape& shape) {
  const auto rank = array.shape.sizes.size();
  const Shape one{{}, array.shape.dtype}, place{{}, at::kLong}, places{shape.sizes, at::kLong};
  const auto plane = emit.reshape(emit.iota(0, {{pooling.input[0] * pooling.input[1]}, at::kLong}),
                                  {pooling.input[0], pooling.input[1]});
  const auto where = emit.broadcast(plane, array.shape.sizes);
  const auto start = emit.neutral("maximum", one);
  const auto behind = emit.constant(pooling.input[0] * pooling.input[1], place);
  const auto type = type_text(one);
  const std::string truth = " : (" + type + ", " + type + ") -> tensor<i1>\n";
  const auto made = emit.emit_several(
      "\"stablehlo.reduce_window\"(" + array.name + ", " + where.name + ", " + start.name + ", " +
          behind.name + ") <{" + window_text(rank, pooling) +
          ", window_dilations = " + array_text(rank, pooling.dilation) + "}> ({\n    ^bb0(%a: " + type +
          ", %i: tensor<i64>, %b: " + type + ", %j: tensor<i64>):\n" +
          "      %more = stablehlo.compare GT, %a, %b" + truth + "      %nan = stablehlo.compare NE, %a, %a" +
          truth + "      %same = stablehlo.compare EQ, %a, %b" + truth +
          "      %before = stablehlo.compare LT, %i, %j : (tensor<i64>, tensor<i64>) -> tensor<i1>\n"
          "      %first = stablehlo.and %same, %before : tensor<i1>\n"
          "      %most = stablehlo.or %more, %nan : tensor<i1>\n"
          "      %left = stablehlo.or %most, %first : tensor<i1>\n"
          "      %value = stablehlo.select %left, %a, %b : tensor<i1>, " +
          type +
          "\n      %place = stablehlo.select %left, %i, %j : tensor<i1>, tensor<i64>\n"
          "      stablehlo.return %value, %place : " +
          type + ", tensor<i64>\n  }) : (" + type_text(array.shape) + ", " + type_text(where.shape) + ", " +
          type + ", tensor<i64>) -> (" + type_text(shape) + ", " + type_text(places) + ")",
      {shape, places});
  return made;
}

// Places are computed where somebody reads them: the compiler leaves out what nobody does.
std::vector<Named> max_pool(Call& call) {
  const auto& self = call.tensor("self");
  const auto pooling = pooling_of(call, self.shape, call.out());
  return {reduce_windows(call.emit, "maximum", self, pooling, call.out()),
          largest_and_places(call.emit, self, pooling, call.out()).back()};
}

std::vector<Named> max_pool_backward(Call& call) {
  auto& emit = call.emit;
  const auto &self = call.tensor("self"), &gradient = call.tensor("grad_output");
  const auto pooling = pooling_of(call, self.shape, gradient.shape);
  const Shape one{{}, self.shape.dtype};
  const auto type = type_text(one);
  return {emit.emit(
      "\"stablehlo.select_and_scatter\"(" + self.name + ", " + gradient.name + ", " +
          emit.constant(0.0, one).name + ") <{" + window_text(self.shape.sizes.size(), pooling) +
          "}> ({\n    ^bb0(%a: " + type + ", %b: " + type +
          "):\n      %chosen = stablehlo.compare GE, %a, %b : (" + type + ", " + type +
          ") -> tensor<i1>\n      stablehlo.return %chosen : tensor<i1>\n  }, {\n    ^bb0(%old: " + type +
          ", %new: " + type + "):\n      %both = stablehlo.add %old, %new : " + type +
          "\n      stablehlo.return %both : " + type + "\n  }) : (" + type_text(self.shape) + ", " +
          type_text(gradient.shape) + ", " + type + ") -> " + type_text(call.out()),
      call.out())};
}

bool has_a_plane(const Given& given) {
  const auto self = given["self"].toTensor();
  return self.dim() >= 3 && self.numel() > 0 && at::isFloatingType(self.scalar_type());
}

// A window with holes cannot be scattered to.
bool has_windows_without_holes(const Given& given) {
  const auto dilation = given["dilation"].toIntVector();
  return has_a_plane(given) && given["grad_output"].toTensor().numel() > 0 &&
         std::ranges::all_of(dilation, [](auto step) { return step == 1; });
}

// How many elements of a dimension each window's mean is of.
std::vector<double> counts_along(const Pooling& pooling, std::size_t i, bool includes_padding) {
  std::vector<double> counts;
  for (std::int64_t place = 0; place < pooling.output[i]; ++place) {
    auto begin = place * pooling.stride[i] - pooling.padding[i];
    auto end = std::min(begin + pooling.kernel[i], pooling.input[i] + pooling.padding[i]);
    if (!includes_padding) {
      begin = std::max<std::int64_t>(begin, 0);
      end = std::min(end, pooling.input[i]);
    }
    counts.push_back(static_cast<double>(end - begin));
  }
  return counts;
}

// What the sums of windows are divided by, in the shape of the output.
Named divisor_of_windows(Call& call, const Pooling& pooling, const Shape& shape) {
  auto& emit = call.emit;
  if (call.has("divisor_override")) return emit.constant(call.number("divisor_override"), shape);
  const auto last = static_cast<std::int64_t>(shape.sizes.size()) - 1;
  const bool includes_padding = call.flag("count_include_pad");
  const auto along = [&](std::size_t i) {
    const auto counts = counts_along(pooling, i, includes_padding);
    const bool is_same = std::ranges::all_of(counts, [&](double count) { return count == counts.front(); });
    if (is_same) return emit.constant(counts.front(), shape);
    const auto numbers = emit.constants(counts, {{pooling.output[i]}, shape.dtype});
    return emit.broadcast_to(numbers, shape.sizes, {last - 1 + static_cast<std::int64_t>(i)});
  };
  return emit.apply("multiply", {along(0), along(1)});
}

std::vector<Named> avg_pool(Call& call) {
  auto& emit = call.emit;
  const auto& self = call.tensor("self");
  const auto pooling = pooling_of(call, self.shape, call.out());
  const auto sums = reduce_windows(emit, "add", self, pooling, call.out());
  return {emit.apply("divide", {sums, divisor_of_windows(call, pooling, call.out())})};
}

// Each element of the gradient is spread over its window: a sum over windows the other way round.
std::vector<Named> avg_pool_backward(Call& call) {
  auto& emit = call.emit;
  const auto& gradient = call.tensor("grad_output");
  const auto& shape = call.out();
  const auto pooling = pooling_of(call, shape, gradient.shape);
  const auto shares = emit.apply("divide", {gradient, divisor_of_windows(call, pooling, gradient.shape)});
  const auto rank = shape.sizes.size();
  std::vector<std::int64_t> low(rank), high(rank), interior(rank);
  Shape spread = gradient.shape;
  Pooling back{.kernel = pooling.kernel,
               .stride = {1, 1},
               .padding = {0, 0},
               .dilation = {1, 1},
               .input = {},
               .output = pooling.input};
  for (std::size_t i = 0; i < 2; ++i) {
    const auto at = rank - 2 + i;
    const auto dilated = (pooling.output[i] - 1) * pooling.stride[i] + 1;
    interior[at] = pooling.stride[i] - 1;
    low[at] = pooling.kernel[i] - 1 - pooling.padding[i];
    high[at] = pooling.input[i] + pooling.kernel[i] - 1 - dilated - low[at];
    spread.sizes[at] = back.input[i] = pooling.input[i] + pooling.kernel[i] - 1;
  }
  const auto padded =
      emit.emit("stablehlo.pad " + shares.name + ", " + emit.constant(0.0, {{}, shape.dtype}).name +
                    ", low = " + list_text(low) + ", high = " + list_text(high) +
                    ", interior = " + list_text(interior) + " : (" + type_text(shares.shape) + ", " +
                    type_text({{}, shape.dtype}) + ") -> " + type_text(spread),
                spread);
  return {reduce_windows(emit, "add", padded, back, shape)};
}

// The matrix [inputs, outputs] that takes the means of the parts of a dimension.
Named matrix_of_means(Emitter& emit, std::int64_t inputs, std::int64_t outputs, at::ScalarType dtype) {
  std::vector<double> shares(static_cast<std::size_t>(inputs * outputs));
  for (std::int64_t j = 0; j < outputs; ++j) {
    const auto begin = j * inputs / outputs, end = ((j + 1) * inputs + outputs - 1) / outputs;
    for (auto i = begin; i < end; ++i)
      shares[static_cast<std::size_t>(i * outputs + j)] = 1.0 / static_cast<double>(end - begin);
  }
  return emit.constants(shares, {{inputs, outputs}, dtype});
}

// Applies matrices to width and height: [..., H, W] becomes [..., H', W'].
Named by_matrices(Emitter& emit, const Named& array, const Named& of_height, const Named& of_width,
                  const Shape& shape) {
  const auto plane = plane_of(array.shape);
  const auto count = array.shape.numel() / (plane[0] * plane[1]);
  const auto width = of_width.shape.sizes[1], height = of_height.shape.sizes[1];
  const auto rows = emit.matmul(emit.reshape(array, {count * plane[0], plane[1]}), of_width);
  const auto turned = emit.transpose(emit.reshape(rows, {count, plane[0], width}), {0, 2, 1});
  const auto both = emit.matmul(emit.reshape(turned, {count * width, plane[0]}), of_height);
  return emit.reshape(emit.transpose(emit.reshape(both, {count, width, height}), {0, 2, 1}), shape.sizes);
}

std::vector<Named> adaptive_avg_pool(Call& call) {
  auto& emit = call.emit;
  const auto& self = call.tensor("self");
  const auto from = plane_of(self.shape), to = plane_of(call.out());
  return {by_matrices(emit, self, matrix_of_means(emit, from[0], to[0], self.shape.dtype),
                      matrix_of_means(emit, from[1], to[1], self.shape.dtype), call.out())};
}

std::vector<Named> adaptive_avg_pool_backward(Call& call) {
  auto& emit = call.emit;
  const auto& gradient = call.tensor("grad_output");
  const auto from = plane_of(call.out()), to = plane_of(gradient.shape);
  const auto turned = [&](std::size_t i) {
    return emit.transpose(matrix_of_means(emit, from[i], to[i], gradient.shape.dtype), {1, 0});
  };
  return {by_matrices(emit, gradient, turned(0), turned(1), call.out())};
}

Shapes adaptive_shapes(const Given& given) {
  auto shape = given.shape("self");
  const auto sizes = given["output_size"].toIntVector();
  shape.sizes[shape.sizes.size() - 2] = sizes.front();
  shape.sizes.back() = sizes.back();
  return {shape};
}

}  // namespace

std::span<const Row> pool_rows() {
  static const std::array rows{
      Row{.name = "aten::max_pool2d_with_indices", .lower = &max_pool, .accepts = &has_a_plane},
      Row{.name = "aten::max_pool2d_with_indices_backward",
          .lower = &max_pool_backward,
          .like = "self",
          .accepts = &has_windows_without_holes},
      Row{.name = "aten::avg_pool2d", .lower = &avg_pool, .accepts = &has_a_plane},
      Row{.name = "aten::avg_pool2d_backward",
          .lower = &avg_pool_backward,
          .like = "self",
          .accepts = &has_a_plane},
      Row{.name = "aten::_adaptive_avg_pool2d",
          .lower = &adaptive_avg_pool,
          .shapes = &adaptive_shapes,
          .accepts = &has_a_plane},
      Row{.name = "aten::_adaptive_avg_pool2d_backward",
          .lower = &adaptive_avg_pool_backward,
          .like = "self",
          .accepts = &has_a_plane},
  };
  return rows;
}

}  // namespace lockstep::xla
