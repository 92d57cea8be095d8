#include "xla/emitter.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "base/number_locale.h"

namespace lockstep::xla {
namespace {

bool is_half(at::ScalarType dtype) { return dtype == at::kHalf || dtype == at::kBFloat16; }

std::string hexadecimal(std::uint64_t bits, int digits) {
  std::array<char, 24> text{};
  std::snprintf(text.data(), text.size(), "0x%0*llX", digits, static_cast<unsigned long long>(bits));
  return text.data();
}

// Infinities and NaN have no decimal form.
std::string bits_text(double value, at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble:
      return hexadecimal(std::bit_cast<std::uint64_t>(value), 16);
    case at::kHalf:
      return hexadecimal(c10::Half(static_cast<float>(value)).x, 4);
    case at::kBFloat16:
      return hexadecimal(c10::BFloat16(static_cast<float>(value)).x, 4);
    default:
      return hexadecimal(std::bit_cast<std::uint32_t>(static_cast<float>(value)), 8);
  }
}

std::int64_t largest(at::ScalarType dtype) {
  const auto bits = 8 * static_cast<int>(c10::elementSize(dtype)) - (dtype == at::kByte ? 0 : 1);
  return static_cast<std::int64_t>((std::uint64_t{1} << bits) - 1);
}

}  // namespace

std::string literal(double value, at::ScalarType dtype) {
  if (dtype == at::kBool) return value != 0.0 ? "true" : "false";
  const lockstep::detail::NumbersWithPoint scope;
  std::array<char, 48> text{};
  if (!at::isFloatingType(dtype)) {
    std::snprintf(text.data(), text.size(), "%lld", static_cast<long long>(value));
  } else if (std::isfinite(value)) {
    std::snprintf(text.data(), text.size(), "%.17e", value);
  } else {
    return bits_text(value, dtype);
  }
  return text.data();
}

std::string list_text(const std::vector<std::int64_t>& numbers) {
  std::string text = "[";
  for (std::size_t i = 0; i < numbers.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(numbers[i]);
  return text + "]";
}

Named Emitter::emit(const std::string& right_hand_side, Shape shape) {
  auto name = "%" + std::to_string(names_++);
  text_ << "  " << name << " = " << right_hand_side << "\n";
  return {std::move(name), std::move(shape)};
}

std::vector<Named> Emitter::emit_several(const std::string& right_hand_side, std::vector<Shape> shapes) {
  const auto name = "%" + std::to_string(names_++);
  text_ << "  " << name << ":" << shapes.size() << " = " << right_hand_side << "\n";
  std::vector<Named> made;
  for (auto& shape : shapes) made.push_back({name + "#" + std::to_string(made.size()), std::move(shape)});
  return made;
}

Named Emitter::constants(const std::vector<double>& values, const Shape& shape) {
  const Shape flat{{static_cast<std::int64_t>(values.size())}, shape.dtype};
  std::string text;
  for (const double value : values) text += (text.empty() ? "" : ", ") + literal(value, shape.dtype);
  return reshape(emit("stablehlo.constant dense<[" + text + "]> : " + type_text(flat), flat), shape.sizes);
}

Named Emitter::constant(double value, const Shape& shape) {
  return emit("stablehlo.constant dense<" + literal(value, shape.dtype) + "> : " + type_text(shape), shape);
}

Named Emitter::constant(std::int64_t value, const Shape& shape) {
  if (at::isFloatingType(shape.dtype) || shape.dtype == at::kBool)
    return constant(static_cast<double>(value), shape);
  return emit("stablehlo.constant dense<" + std::to_string(value) + "> : " + type_text(shape), shape);
}

Named Emitter::iota(std::int64_t dimension, const Shape& shape) {
  return emit("stablehlo.iota dim = " + std::to_string(dimension) + " : " + type_text(shape), shape);
}

Named Emitter::convert(const Named& array, at::ScalarType dtype) {
  if (array.shape.dtype == dtype) return array;
  Shape shape{array.shape.sizes, dtype};
  // LibTorch's bool is whether a number is not zero.
  if (dtype == at::kBool) return compare("NE", array, constant(0.0, array.shape));
  return emit(
      "stablehlo.convert " + array.name + " : (" + type_text(array.shape) + ") -> " + type_text(shape),
      shape);
}

Named Emitter::reshape(const Named& array, const std::vector<std::int64_t>& sizes) {
  if (array.shape.sizes == sizes) return array;
  Shape shape{sizes, array.shape.dtype};
  auto made = array;
  made.name =
      emit("stablehlo.reshape " + array.name + " : (" + type_text(array.shape) + ") -> " + type_text(shape),
           shape)
          .name;
  made.shape = shape;
  return made;
}

Named Emitter::broadcast(const Named& array, const std::vector<std::int64_t>& sizes) {
  if (array.shape.sizes == sizes) return array;
  // Dimensions of one element are dropped first, for StableHLO to take what is left as it is.
  const auto offset =
      static_cast<std::int64_t>(sizes.size()) - static_cast<std::int64_t>(array.shape.sizes.size());
  std::vector<std::int64_t> dimensions(array.shape.sizes.size());
  std::iota(dimensions.begin(), dimensions.end(), offset);
  return broadcast_to(array, sizes, dimensions);
}

Named Emitter::broadcast_to(const Named& array, const std::vector<std::int64_t>& sizes,
                            const std::vector<std::int64_t>& dimensions) {
  Shape shape{sizes, array.shape.dtype};
  return emit("stablehlo.broadcast_in_dim " + array.name + ", dims = " + list_text(dimensions) + " : (" +
                  type_text(array.shape) + ") -> " + type_text(shape),
              shape);
}

Named Emitter::transpose(const Named& array, const std::vector<std::int64_t>& permutation) {
  if (std::ranges::is_sorted(permutation)) return array;
  Shape shape{{}, array.shape.dtype};
  for (const auto dimension : permutation)
    shape.sizes.push_back(array.shape.sizes[static_cast<std::size_t>(dimension)]);
  return emit("stablehlo.transpose " + array.name + ", dims = " + list_text(permutation) + " : (" +
                  type_text(array.shape) + ") -> " + type_text(shape),
              shape);
}

Named Emitter::slice(const Named& array, std::int64_t begin, std::int64_t end) {
  const auto size = array.shape.numel();
  auto made = begin == 0 && end == size ? array : slice(array, begin, end, 1);
  made.whole = array.name;
  made.whole_size = size;
  made.begin = begin;
  return made;
}

Named Emitter::slice(const Named& array, std::int64_t begin, std::int64_t end, std::int64_t step) {
  const Shape shape{{(end - begin + step - 1) / step}, array.shape.dtype};
  const auto last = step == 1 ? "" : ":" + std::to_string(step);
  return emit("stablehlo.slice " + array.name + " [" + std::to_string(begin) + ":" + std::to_string(end) +
                  last + "] : (" + type_text(array.shape) + ") -> " + type_text(shape),
              shape);
}

Named Emitter::concatenate(const std::vector<Named>& arrays, std::int64_t dimension) {
  if (arrays.size() == 1) return arrays.front();
  auto shape = arrays.front().shape;
  auto& size = shape.sizes[static_cast<std::size_t>(dimension)];
  size = 0;
  std::string names, types;
  for (const auto& array : arrays) {
    size += array.shape.sizes[static_cast<std::size_t>(dimension)];
    names += (names.empty() ? "" : ", ") + array.name;
    types += (types.empty() ? "" : ", ") + type_text(array.shape);
  }
  return emit("stablehlo.concatenate " + names + ", dim = " + std::to_string(dimension) + " : (" + types +
                  ") -> " + type_text(shape),
              shape);
}

Named Emitter::pad(const Named& array, std::int64_t dimension, std::int64_t before, std::int64_t behind) {
  const auto place = static_cast<std::size_t>(dimension);
  std::vector<std::int64_t> low(array.shape.sizes.size()), high = low, between = low;
  low[place] = before;
  high[place] = behind;
  auto shape = array.shape;
  shape.sizes[place] += before + behind;
  const auto zero = constant(0.0, {{}, shape.dtype});
  return emit("stablehlo.pad " + array.name + ", " + zero.name + ", low = " + list_text(low) +
                  ", high = " + list_text(high) + ", interior = " + list_text(between) + " : (" +
                  type_text(array.shape) + ", " + type_text(zero.shape) + ") -> " + type_text(shape),
              shape);
}

Named Emitter::apply(std::string_view name, const std::vector<Named>& arrays) {
  std::string text = "stablehlo." + std::string(name) + " ";
  for (std::size_t i = 0; i < arrays.size(); ++i) text += (i > 0 ? ", " : "") + arrays[i].name;
  return emit(text + " : " + type_text(arrays.front().shape), arrays.front().shape);
}

Named Emitter::compare(std::string_view direction, const Named& left, const Named& right) {
  Shape shape{left.shape.sizes, at::kBool};
  const auto type = type_text(left.shape);
  return emit("stablehlo.compare " + std::string(direction) + ", " + left.name + ", " + right.name + " : (" +
                  type + ", " + type + ") -> " + type_text(shape),
              shape);
}

Named Emitter::select(const Named& condition, const Named& yes, const Named& no) {
  return emit("stablehlo.select " + condition.name + ", " + yes.name + ", " + no.name + " : " +
                  type_text(condition.shape) + ", " + type_text(yes.shape),
              yes.shape);
}

// What does not change a reduction.
Named Emitter::neutral(std::string_view name, const Shape& shape) {
  if (name == "and") return constant(1.0, shape);
  if (name != "maximum" && name != "minimum") return constant(0.0, shape);
  const bool is_maximum = name == "maximum";
  if (at::isFloatingType(shape.dtype)) return constant(is_maximum ? -INFINITY : INFINITY, shape);
  if (shape.dtype == at::kBool) return constant(is_maximum ? 0.0 : 1.0, shape);
  const auto most = largest(shape.dtype);
  return constant(!is_maximum ? most : shape.dtype == at::kByte ? 0 : -most - 1, shape);
}

Named Emitter::reduce(std::string_view name, const Named& array, std::vector<std::int64_t> dimensions) {
  if (dimensions.empty()) return array;
  if (is_half(array.shape.dtype))
    return convert(reduce(name, convert(array, at::kFloat), std::move(dimensions)), array.shape.dtype);
  std::ranges::sort(dimensions);
  Shape shape{{}, array.shape.dtype};
  for (std::size_t i = 0; i < array.shape.sizes.size(); ++i)
    if (std::ranges::find(dimensions, static_cast<std::int64_t>(i)) == dimensions.end())
      shape.sizes.push_back(array.shape.sizes[i]);
  const Shape one{{}, array.shape.dtype};
  const auto start = neutral(name, one);
  return emit("stablehlo.reduce(" + array.name + " init: " + start.name + ") applies stablehlo." +
                  std::string(name) + " across dimensions = " + list_text(dimensions) + " : (" +
                  type_text(array.shape) + ", " + type_text(one) + ") -> " + type_text(shape),
              shape);
}

Named Emitter::product(const Named& left, const Named& right) {
  const auto rank = left.shape.sizes.size();
  const auto last = static_cast<std::int64_t>(rank) - 1;
  const bool is_narrow = is_half(left.shape.dtype);
  Shape shape{left.shape.sizes, is_narrow ? at::kFloat : left.shape.dtype};
  shape.sizes.back() = right.shape.sizes.back();
  std::string batch;
  if (rank > 2) {
    std::vector<std::int64_t> leading(rank - 2);
    std::iota(leading.begin(), leading.end(), 0);
    batch = "batching_dims = " + list_text(leading) + " x " + list_text(leading) + ", ";
  }
  return emit("stablehlo.dot_general " + left.name + ", " + right.name + ", " + batch +
                  "contracting_dims = [" + std::to_string(last) + "] x [" + std::to_string(last - 1) +
                  "] : (" + type_text(left.shape) + ", " + type_text(right.shape) + ") -> " +
                  type_text(shape),
              shape);
}

namespace {

std::string last_dimension(const Named& indices) { return std::to_string(indices.shape.sizes.size() - 1); }

std::string sizes_text(const std::vector<std::int64_t>& sizes) {
  auto text = list_text(sizes);
  text.front() = ' ';
  text.back() = '>';
  return "array<i64:" + text;
}

}  // namespace

Named Emitter::gather(const Named& array, const Named& indices, const Slices& slices, const Shape& shape) {
  auto slice = array.shape.sizes;
  for (const auto dimension : slices.dimensions) slice[static_cast<std::size_t>(dimension)] = 1;
  const auto dimensions = list_text(slices.dimensions);
  return emit("\"stablehlo.gather\"(" + array.name + ", " + indices.name +
                  ") <{dimension_numbers = #stablehlo.gather<offset_dims = " + list_text(slices.windows) +
                  ", collapsed_slice_dims = " + dimensions + ", start_index_map = " + dimensions +
                  ", index_vector_dim = " + last_dimension(indices) +
                  ">, slice_sizes = " + sizes_text(slice) + ", indices_are_sorted = false}> : (" +
                  type_text(array.shape) + ", " + type_text(indices.shape) + ") -> " + type_text(shape),
              shape);
}

Named Emitter::scatter(const Named& array, const Named& indices, const Slices& slices, const Named& updates,
                       bool adds) {
  const auto type = type_text({{}, array.shape.dtype});
  const auto dimensions = list_text(slices.dimensions);
  const std::string sum = adds ? "      %both = stablehlo.add %old, %new : " + type + "\n" : "";
  return emit("\"stablehlo.scatter\"(" + array.name + ", " + indices.name + ", " + updates.name +
                  ") <{scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = " +
                  list_text(slices.windows) + ", inserted_window_dims = " + dimensions +
                  ", scatter_dims_to_operand_dims = " + dimensions +
                  ", index_vector_dim = " + last_dimension(indices) +
                  ">, indices_are_sorted = false, unique_indices = false}> ({\n    ^bb0(%old: " + type +
                  ", %new: " + type + "):\n" + sum + "      stablehlo.return " + (adds ? "%both" : "%new") +
                  " : " + type + "\n  }) : (" + type_text(array.shape) + ", " + type_text(indices.shape) +
                  ", " + type_text(updates.shape) + ") -> " + type_text(array.shape),
              array.shape);
}

}  // namespace lockstep::xla
