// Normalization over batches, layers and groups, with running statistics and derivatives.
#include <algorithm>
#include <array>

#include "xla/arithmetic.h"
#include "xla/lowering.h"

namespace lockstep::xla {
namespace {

// Sums of 16 bits are taken in float32.
at::ScalarType sum_type(at::ScalarType dtype) {
  return dtype == at::kHalf || dtype == at::kBFloat16 ? at::kFloat : dtype;
}

std::vector<std::int64_t> all_but(std::int64_t dimension, std::size_t rank) {
  std::vector<std::int64_t> others;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(rank); ++i)
    if (i != dimension) others.push_back(i);
  return others;
}

Named mean_over(Emitter& emit, const Named& array, const std::vector<std::int64_t>& dimensions) {
  const auto sum = emit.reduce("add", array, dimensions);
  const double count = static_cast<double>(array.shape.numel()) / static_cast<double>(sum.shape.numel());
  return Arithmetic(emit, sum.shape).mul(sum, 1.0 / count);
}

// An array [rows, columns], of which each row is normalized.
struct Rows {
  Rows(Emitter& emit, const Named& array, std::int64_t count)
      : values(emit.convert(emit.reshape(array, {count, array.shape.numel() / count}),
                            sum_type(array.shape.dtype))),
        all(emit, values.shape),
        one(emit, {{count}, values.shape.dtype}),
        emit_(emit) {}

  Named mean(const Named& array) const { return mean_over(emit_, array, {1}); }
  Named spread(const Named& of_rows) const {
    return all.spread(emit_.reshape(of_rows, one.shape().sizes), {0});
  }

  Named values;
  Arithmetic all, one;

 private:
  Emitter& emit_;
};

// What normalizes: the mean and one over the deviation.
struct Statistics {
  Named mean, inverse;
};

Statistics statistics_of(const Rows& rows, double eps) {
  const auto mean = rows.mean(rows.values);
  const auto difference = rows.all.sub(rows.values, rows.spread(mean));
  const auto variance = rows.mean(rows.all.mul(difference, difference));
  return {mean, rows.one.rsqrt(rows.one.add(variance, rows.one.number(eps)))};
}

Named normalized(const Rows& rows, const Statistics& by) {
  return rows.all.mul(rows.all.sub(rows.values, rows.spread(by.mean)), rows.spread(by.inverse));
}

// A weight or a bias, spread over the input along `dimensions`.
Named affine(const Call& call, const Arithmetic& input, std::string_view name,
             const std::vector<std::int64_t>& dimensions) {
  return input.spread(call.tensor(name), dimensions);
}

Named with_weight_and_bias(Call& call, const Named& normal, const std::vector<std::int64_t>& dimensions) {
  const Arithmetic all(call.emit, normal.shape);
  auto made = normal;
  if (call.is_array("weight")) made = all.mul(made, affine(call, all, "weight", dimensions));
  if (call.is_array("bias")) made = all.add(made, affine(call, all, "bias", dimensions));
  return call.emit.convert(made, call.out().dtype);
}

// The dimensions of the input that a layer's weight has.
std::vector<std::int64_t> last_dimensions(std::size_t rank, std::size_t count) {
  std::vector<std::int64_t> dimensions;
  for (auto i = rank - count; i < rank; ++i) dimensions.push_back(static_cast<std::int64_t>(i));
  return dimensions;
}

std::vector<std::int64_t> layer_dimensions(const Call& call) {
  return last_dimensions(call.tensor("input").shape.sizes.size(), call.integers("normalized_shape").size());
}

// How many rows are normalized by themselves.
std::int64_t layer_count(const Call& call) {
  const auto& sizes = call.tensor("input").shape.sizes;
  std::int64_t count = 1;
  for (std::size_t i = 0; i + call.integers("normalized_shape").size() < sizes.size(); ++i) count *= sizes[i];
  return count;
}

std::int64_t group_count(const Call& call) { return call.integer("N") * call.integer("group"); }

std::vector<Named> norm_of_rows(Call& call, std::int64_t count, const std::vector<std::int64_t>& dimensions) {
  const Rows rows(call.emit, call.tensor("input"), count);
  const auto by = statistics_of(rows, call.number("eps"));
  const auto normal = call.emit.reshape(normalized(rows, by), call.out().sizes);
  const auto given_back = [&](const Named& array, std::size_t number) {
    return call.emit.reshape(call.emit.convert(array, call.out(number).dtype), call.out(number).sizes);
  };
  return {with_weight_and_bias(call, normal, dimensions), given_back(by.mean, 1), given_back(by.inverse, 2)};
}

std::vector<Named> layer_norm(Call& call) {
  return norm_of_rows(call, layer_count(call), layer_dimensions(call));
}
std::vector<Named> group_norm(Call& call) { return norm_of_rows(call, group_count(call), {1}); }

// With x the normalized input and g the gradient behind weight: (g - mean(g) - x mean(g x)) / deviation.
std::vector<Named> norm_of_rows_backward(Call& call, std::int64_t count,
                                         const std::vector<std::int64_t>& dimensions) {
  auto& emit = call.emit;
  const auto& sizes = call.tensor("input").shape.sizes;
  const Rows rows(emit, call.tensor("input"), count);
  const auto type = rows.values.shape.dtype;
  const Arithmetic input(emit, {sizes, type});
  const Statistics by{emit.convert(call.tensor("mean"), type), emit.convert(call.tensor("rstd"), type)};
  const auto normal = normalized(rows, by);
  const auto gradient = emit.convert(emit.reshape(call.tensor("grad_out"), sizes), type);
  auto behind = gradient;
  if (call.is_array("weight")) behind = input.mul(gradient, affine(call, input, "weight", dimensions));
  const auto g = emit.reshape(behind, rows.values.shape.sizes);
  const auto along = rows.all.mul(normal, rows.spread(rows.mean(rows.all.mul(g, normal))));
  const auto rest = rows.all.sub(rows.all.sub(g, rows.spread(rows.mean(g))), along);
  std::vector<std::int64_t> others;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(sizes.size()); ++i)
    if (std::ranges::find(dimensions, i) == dimensions.end()) others.push_back(i);
  const auto of_weight = input.mul(gradient, emit.reshape(normal, sizes));
  return call.asked_for({rows.all.mul(rest, rows.spread(by.inverse)), emit.reduce("add", of_weight, others),
                         emit.reduce("add", gradient, others)});
}

std::vector<Named> layer_norm_backward(Call& call) {
  return norm_of_rows_backward(call, layer_count(call), layer_dimensions(call));
}
std::vector<Named> group_norm_backward(Call& call) {
  return norm_of_rows_backward(call, group_count(call), {1});
}

// Batches: [N, C, ...], of which each channel is normalized.
struct Channels {
  Channels(Call& call, std::string_view input)
      : values(call.emit.convert(call.tensor(input), sum_type(call.tensor(input).shape.dtype))),
        all(call.emit, values.shape),
        one(call.emit, {{values.shape.sizes[1]}, values.shape.dtype}),
        others(all_but(1, values.shape.sizes.size())) {}

  Named spread(const Named& of_channels) const { return all.spread(of_channels, {1}); }
  double count() const {
    return static_cast<double>(values.shape.numel()) / static_cast<double>(values.shape.sizes[1]);
  }

  Named values;
  Arithmetic all, one;
  std::vector<std::int64_t> others;
};

// What `momentum` lets of the new value in.
Named running(Call& call, std::string_view name, const Channels& channels, const Named& now) {
  const auto& one = channels.one;
  const auto before = one.spread(call.tensor(name));
  const double momentum = call.number("momentum");
  return call.emit.convert(one.add(one.mul(before, 1.0 - momentum), one.mul(now, momentum)),
                           call.tensor(name).shape.dtype);
}

std::vector<Named> batch_norm(Call& call) {
  auto& emit = call.emit;
  const Channels channels(call, "input");
  const auto& one = channels.one;
  const auto& all = channels.all;
  const bool is_training = call.flag("training");
  Named mean, variance;
  std::vector<Named> made;
  if (is_training) {
    mean = mean_over(emit, channels.values, channels.others);
    const auto difference = all.sub(channels.values, channels.spread(mean));
    variance = mean_over(emit, all.mul(difference, difference), channels.others);
    if (call.is_array("running_mean")) {
      const double unbiased = channels.count() / (channels.count() - 1.0);
      made = {running(call, "running_mean", channels, mean),
              running(call, "running_var", channels, one.mul(variance, unbiased))};
    }
  } else {
    mean = one.spread(call.tensor("running_mean"));
    variance = one.spread(call.tensor("running_var"));
  }
  const auto inverse = one.rsqrt(one.add(variance, one.number(call.number("eps"))));
  const auto first = made.size();
  // Weight and bias are put together for each channel: two operations for each element.
  const auto factor = call.is_array("weight") ? one.mul(inverse, one.spread(call.tensor("weight"))) : inverse;
  auto normal = all.mul(all.sub(channels.values, channels.spread(mean)), channels.spread(factor));
  if (call.is_array("bias")) normal = all.add(normal, channels.spread(call.tensor("bias")));
  made.push_back(emit.convert(normal, call.out(first).dtype));
  for (const auto& saved : {mean, inverse})
    made.push_back(is_training ? saved : emit.constant(0.0, call.out(made.size())));
  return made;
}

std::vector<Named> batch_norm_backward(Call& call) {
  auto& emit = call.emit;
  const Channels channels(call, "input");
  const auto& one = channels.one;
  const auto& all = channels.all;
  const bool is_training = call.flag("train");
  const auto mean = one.spread(call.tensor(is_training ? "save_mean" : "running_mean"));
  const auto inverse =
      is_training
          ? one.spread(call.tensor("save_invstd"))
          : one.rsqrt(one.add(one.spread(call.tensor("running_var")), one.number(call.number("eps"))));
  const auto gradient = emit.convert(call.tensor("grad_out"), channels.values.shape.dtype);
  const auto normal = all.mul(all.sub(channels.values, channels.spread(mean)), channels.spread(inverse));
  const auto of_bias = emit.reduce("add", gradient, channels.others);
  const auto of_weight = emit.reduce("add", all.mul(gradient, normal), channels.others);
  auto rest = gradient;
  if (is_training) {
    const double share = 1.0 / channels.count();
    rest = all.sub(all.sub(gradient, channels.spread(one.mul(of_bias, share))),
                   all.mul(normal, channels.spread(one.mul(of_weight, share))));
  }
  const auto factor = call.is_array("weight") ? one.mul(inverse, one.spread(call.tensor("weight"))) : inverse;
  return call.asked_for({all.mul(rest, channels.spread(factor)), of_weight, of_bias});
}

Shapes batch_norm_shapes(const Given& given) {
  const auto input = given.shape("input");
  const auto channels = given["training"].toBool() ? input.sizes[1] : std::int64_t{0};
  const Shape saved{{channels}, sum_type(input.dtype)};
  return {input, saved, saved};
}

Shape weight_shape(const Given& given, std::vector<std::int64_t> sizes) {
  if (given.has("weight")) return given.shape("weight");
  return {std::move(sizes), given.shape("input").dtype};
}

Shapes shapes_of_gradients(const Given& given, const Shape& weight) {
  return given.asked_for({given.shape("input"), weight, weight});
}

Shapes batch_norm_gradient_shapes(const Given& given) {
  return shapes_of_gradients(given, weight_shape(given, {given.shape("input").sizes[1]}));
}

Shapes layer_norm_shapes(const Given& given) {
  const auto input = given.shape("input");
  Shape saved{input.sizes, sum_type(input.dtype)};
  const auto normalized_sizes = given["normalized_shape"].toIntVector().size();
  std::fill(saved.sizes.end() - static_cast<std::ptrdiff_t>(normalized_sizes), saved.sizes.end(), 1);
  return {input, saved, saved};
}

Shapes layer_norm_gradient_shapes(const Given& given) {
  return shapes_of_gradients(given, weight_shape(given, given["normalized_shape"].toIntVector()));
}

Shapes group_norm_shapes(const Given& given) {
  const auto input = given.shape("input");
  const Shape saved{{given["N"].toInt(), given["group"].toInt()}, sum_type(input.dtype)};
  return {input, saved, saved};
}

Shapes group_norm_gradient_shapes(const Given& given) {
  return shapes_of_gradients(given, weight_shape(given, {given["C"].toInt()}));
}

bool has_input(const Given& given) { return given["input"].toTensor().numel() > 0; }

// LibTorch refuses one value for each channel; statistics come both or not at all.
bool is_batch(const Given& given) {
  const auto input = given["input"].toTensor();
  return input.numel() > 0 && input.dim() >= 2 && given.has("running_mean") == given.has("running_var");
}

bool updates_statistics(const Given& given) {
  return given["training"].toBool() && given.has("running_mean");
}

}  // namespace

std::span<const Row> norm_rows() {
  static const std::array rows{
      Row{.name = "aten::native_batch_norm",
          .lower = &batch_norm,
          .shapes = &batch_norm_shapes,
          .accepts = &is_batch,
          .written = {"running_mean", "running_var"},
          .writes = &updates_statistics},
      Row{.name = "aten::native_batch_norm_backward",
          .lower = &batch_norm_backward,
          .shapes = &batch_norm_gradient_shapes,
          .accepts = &is_batch},
      Row{.name = "aten::native_layer_norm",
          .lower = &layer_norm,
          .shapes = &layer_norm_shapes,
          .accepts = &has_input},
      Row{.name = "aten::native_layer_norm_backward",
          .lower = &layer_norm_backward,
          .shapes = &layer_norm_gradient_shapes,
          .accepts = &has_input},
      Row{.name = "aten::native_group_norm",
          .lower = &group_norm,
          .shapes = &group_norm_shapes,
          .accepts = &has_input},
      Row{.name = "aten::native_group_norm_backward",
          .lower = &group_norm_backward,
          .shapes = &group_norm_gradient_shapes,
          .accepts = &has_input},
  };
  return rows;
}

}  // namespace lockstep::xla
