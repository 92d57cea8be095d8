// What tensors of indices find or write, as x[i, j] does: one of them for each of some dimensions, in whose
// place their shape comes. Indices out of range are not noticed, as in lower_index.cpp.
#include <algorithm>
#include <array>

#include <ATen/ExpandUtils.h>

#include "xla/lowering.h"

namespace lockstep::xla {
namespace {

using Sizes = std::vector<std::int64_t>;

// The dimensions that are indexed are next to each other, or else the shape of the indices comes first.
std::int64_t place_of_indices(const Sizes& dimensions) {
  const auto count = static_cast<std::int64_t>(dimensions.size());
  const bool is_one_block = dimensions.back() - dimensions.front() + 1 == count;
  return is_one_block ? dimensions.front() : 0;
}

Sizes shape_together(const std::vector<Named>& indices) {
  Sizes sizes;
  for (const auto& index : indices) sizes = at::infer_size(sizes, index.shape.sizes);
  return sizes;
}

// What an operator's `indices` mean in `array`.
struct Subscript {
  Named rows = {};  ///< one position for each dimension that is indexed
  Slices slices = {};
  Sizes sizes = {};  ///< of what is found
};

// Negative ones count from the end.
Named column(Emitter& emit, const Named& given, std::int64_t size, Sizes sizes) {
  const auto index = emit.convert(given, at::kLong);
  const auto from_end = emit.apply("add", {index, emit.constant(size, index.shape)});
  const auto is_negative = emit.compare("LT", index, emit.constant(std::int64_t{0}, index.shape));
  const auto spread = emit.broadcast(emit.select(is_negative, from_end, index), sizes);
  sizes.push_back(1);
  return emit.reshape(spread, sizes);
}

Subscript subscript_of(Call& call, const Sizes& array) {
  const auto indices = call.tensors("indices");
  const auto dimensions = call.integers("indices");
  const auto found = shape_together(indices);
  std::vector<Named> columns;
  for (std::size_t i = 0; i < indices.size(); ++i)
    columns.push_back(column(call.emit, indices[i], array[static_cast<std::size_t>(dimensions[i])], found));
  Subscript made{.rows = call.emit.concatenate(columns, static_cast<std::int64_t>(found.size()))};
  made.slices.dimensions = dimensions;
  for (std::size_t i = 0; i < array.size(); ++i)
    if (std::ranges::find(dimensions, static_cast<std::int64_t>(i)) == dimensions.end())
      made.sizes.push_back(array[i]);
  const auto place = place_of_indices(dimensions);
  made.sizes.insert(made.sizes.begin() + place, found.begin(), found.end());
  const auto end = place + static_cast<std::int64_t>(found.size());
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(made.sizes.size()); ++i)
    if (i < place || i >= end) made.slices.windows.push_back(i);
  return made;
}

std::vector<Named> elements_at(Call& call) {
  const auto& self = call.tensor("self");
  const auto subscript = subscript_of(call, self.shape.sizes);
  return {call.emit.gather(self, subscript.rows, subscript.slices, call.out())};
}

// Values for each element of a mask, or for all of them, in the dimensions of the array: in place of the one
// along what is found there are those of the mask.
Named spread_values(Call& call, const Named& mask, std::int64_t place, const Shape& shape) {
  auto& emit = call.emit;
  if (!call.is_array("values")) return call.operand("values", shape.dtype, shape.sizes);
  const auto values = emit.convert(call.tensor("values"), shape.dtype);
  const auto rank = static_cast<std::int64_t>(mask.shape.sizes.size());
  const auto behind = static_cast<std::int64_t>(shape.sizes.size()) - place - rank;
  auto sizes = values.shape.sizes;
  const auto found = static_cast<std::int64_t>(sizes.size()) - behind - 1;
  if (found >= 0) sizes.insert(sizes.begin() + found, static_cast<std::size_t>(rank - 1), 1);
  return emit.broadcast(emit.reshape(values, sizes), shape.sizes);
}

std::vector<Named> put_where(Call& call) {
  auto& emit = call.emit;
  const auto& shape = call.out();
  const auto mask = call.tensors("indices").front();
  const auto place = call.integers("indices").front();
  std::vector<std::int64_t> dimensions;
  for (std::size_t i = 0; i < mask.shape.sizes.size(); ++i)
    dimensions.push_back(place + static_cast<std::int64_t>(i));
  const auto& self = call.tensor("self");
  auto values = spread_values(call, mask, place, shape);
  if (call.flag("accumulate")) values = emit.apply("add", {self, values});
  return {emit.select(emit.broadcast_to(mask, shape.sizes, dimensions), values, self)};
}

// Sums of 16 bits are taken in float32. Of several values for one element the last in memory stays.
std::vector<Named> index_put(Call& call) {
  auto& emit = call.emit;
  if (call.tensors("indices").front().shape.dtype == at::kBool) return put_where(call);
  const bool adds = call.flag("accumulate");
  const auto& shape = call.out();
  const bool is_narrow = shape.dtype == at::kHalf || shape.dtype == at::kBFloat16;
  const auto dtype = adds && is_narrow ? at::kFloat : shape.dtype;
  const auto subscript = subscript_of(call, shape.sizes);
  const auto values = call.operand("values", dtype, subscript.sizes);
  const auto self = emit.convert(call.tensor("self"), dtype);
  return {emit.convert(emit.scatter(self, subscript.rows, subscript.slices, values, adds), shape.dtype)};
}

// Masks find as many elements as they say, which nobody knows before they are computed.
bool is_of_positions(const Given& given) {
  const auto& self = given["self"].toTensor();
  bool is_there = false;
  for (const auto& index : given["indices"].toListRef()) {
    if (!index.isTensor() || !index.toTensor().defined()) continue;
    const auto& tensor = index.toTensor();
    const bool is_position = tensor.scalar_type() == at::kLong || tensor.scalar_type() == at::kInt;
    if (!is_position || tensor.device() != self.device() || tensor.numel() == 0) return false;
    is_there = true;
  }
  return is_there && self.numel() > 0;
}

// By one mask, the same values for all that it finds: which of several goes where depends on the mask.
bool is_of_mask(const Given& given) {
  const auto& self = given["self"].toTensor();
  std::vector<at::Tensor> masks;
  std::int64_t place = 0;
  for (const auto& index : given["indices"].toListRef()) {
    if (index.isTensor() && index.toTensor().defined()) masks.push_back(index.toTensor());
    if (masks.empty()) ++place;
  }
  if (masks.size() != 1 || masks.front().scalar_type() != at::kBool || masks.front().dim() == 0) return false;
  if (masks.front().device() != self.device() || self.numel() == 0) return false;
  const auto values = given["values"].toTensor();
  const auto found = values.dim() - (self.dim() - place - masks.front().dim()) - 1;
  return found < 0 || values.size(found) == 1;
}

bool adds_or_moves(const Given& given) {
  return (is_of_positions(given) || is_of_mask(given)) &&
         (!given["accumulate"].toBool() || given["self"].toTensor().scalar_type() != at::kBool);
}

}  // namespace

std::span<const Row> subscript_rows() {
  static const std::array rows{
      Row{.name = "aten::index", .lower = &elements_at, .accepts = &is_of_positions},
      Row{.name = "aten::_index_put_impl", .lower = &index_put, .accepts = &adds_or_moves},
  };
  return rows;
}

}  // namespace lockstep::xla
