// Views: memory is a flat array in row-major order, of which a tensor reads or writes elements by its
// strides.
#include <algorithm>
#include <numeric>

#include "xla/lowering.h"

namespace lockstep::xla {
namespace {

// Where a view lies in its memory.
struct View {
  std::vector<std::int64_t> sizes, strides;
  std::int64_t offset;

  std::int64_t numel() const { return Shape{sizes}.numel(); }
};

// Dimensions that move in memory, by descending stride.
std::vector<std::int64_t> moving_dimensions(const View& view) {
  std::vector<std::int64_t> order;
  for (std::size_t i = 0; i < view.sizes.size(); ++i)
    if (view.strides[i] != 0 && view.sizes[i] != 1) order.push_back(static_cast<std::int64_t>(i));
  std::ranges::stable_sort(order, [&](auto left, auto right) {
    return view.strides[static_cast<std::size_t>(left)] > view.strides[static_cast<std::size_t>(right)];
  });
  return order;
}

// Whether the elements of those dimensions, in that order, lie one behind the other.
bool is_dense(const View& view, const std::vector<std::int64_t>& order) {
  std::int64_t expected = 1;
  for (auto dimension = order.rbegin(); dimension != order.rend(); ++dimension) {
    const auto i = static_cast<std::size_t>(*dimension);
    if (view.strides[i] != expected) return false;
    expected *= view.sizes[i];
  }
  return true;
}

std::vector<std::int64_t> sizes_in(const View& view, const std::vector<std::int64_t>& order) {
  std::vector<std::int64_t> sizes;
  for (const auto dimension : order) sizes.push_back(view.sizes[static_cast<std::size_t>(dimension)]);
  return sizes;
}

// For each place in ascending order, where it stands in `order`.
std::vector<std::int64_t> ascending(const std::vector<std::int64_t>& order) {
  std::vector<std::int64_t> places(order.size());
  std::iota(places.begin(), places.end(), 0);
  std::ranges::sort(places, [&](auto left, auto right) {
    return order[static_cast<std::size_t>(left)] < order[static_cast<std::size_t>(right)];
  });
  return places;
}

// The place in memory of each element.
Named positions(Emitter& emit, const View& view) {
  const Shape shape{view.sizes, at::kLong};
  auto sum = emit.constant(view.offset, shape);
  for (std::size_t i = 0; i < view.sizes.size(); ++i) {
    if (view.strides[i] == 0 || view.sizes[i] == 1) continue;
    const auto place = emit.iota(static_cast<std::int64_t>(i), shape);
    sum = emit.apply("add", {sum, emit.apply("multiply", {place, emit.constant(view.strides[i], shape)})});
  }
  return sum;
}

Named gather_elements(Emitter& emit, const Named& memory, const View& view) {
  const auto places = positions(emit, view);
  const Shape shape{view.sizes, memory.shape.dtype};
  return emit.emit(
      "\"stablehlo.gather\"(" + memory.name + ", " + places.name +
          ") <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [0], start_index_map = [0], "
          "index_vector_dim = " +
          std::to_string(view.sizes.size()) +
          ">, slice_sizes = array<i64: 1>, indices_are_sorted = false}> : (" + type_text(memory.shape) +
          ", " + type_text(places.shape) + ") -> " + type_text(shape),
      shape);
}

Named scatter_elements(Emitter& emit, const Named& memory, const View& view, const Named& values) {
  const auto places = positions(emit, view);
  const auto one = type_text({{}, memory.shape.dtype});
  return emit.emit("\"stablehlo.scatter\"(" + memory.name + ", " + places.name + ", " + values.name +
                       ") <{scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0], "
                       "scatter_dims_to_operand_dims = [0], index_vector_dim = " +
                       std::to_string(view.sizes.size()) +
                       ">, indices_are_sorted = false, unique_indices = true}> ({\n    ^bb0(%old: " + one +
                       ", %new: " + one + "):\n      stablehlo.return %new : " + one + "\n  }) : (" +
                       type_text(memory.shape) + ", " + type_text(places.shape) + ", " +
                       type_text(values.shape) + ") -> " + type_text(memory.shape),
                   memory.shape);
}

View view_in(const Call& call, const std::vector<std::int64_t>& sizes) {
  return {sizes, call.list(0), call.list(1).front()};
}

// Permuted, broadcast and consecutive elements are read without a gather, which is slow.
std::vector<Named> read_strided(Call& call) {
  auto& emit = call.emit;
  const auto memory = emit.reshape(call.input(0), {call.input(0).shape.numel()});
  const auto view = view_in(call, call.out().sizes);
  const auto order = moving_dimensions(view);
  const auto sizes = sizes_in(view, order);
  const auto count = Shape{sizes}.numel();
  if (!is_dense(view, order)) return {gather_elements(emit, memory, view)};
  const auto part = emit.slice(memory, view.offset, view.offset + count);
  const auto sorted = ascending(order);
  std::vector<std::int64_t> places;
  for (const auto place : sorted) places.push_back(order[static_cast<std::size_t>(place)]);
  const auto permuted = emit.transpose(emit.reshape(part, sizes), sorted);
  if (permuted.shape.numel() == view.numel()) return {emit.reshape(permuted, view.sizes)};
  return {emit.broadcast_to(permuted, view.sizes, places)};
}

std::vector<Named> write_strided(Call& call) {
  const auto& memory = call.input(0);
  if (const auto write = flat_write(call)) return {with_writes(call.emit, memory, {*write})};
  const auto& values = call.input(1);
  return {scatter_elements(call.emit, memory, view_in(call, values.shape.sizes), values)};
}

std::vector<Named> lower_reshape(Call& call) { return {call.emit.reshape(call.input(0), call.out().sizes)}; }

std::vector<Named> lower_convert(Call& call) {
  return {call.emit.broadcast(call.emit.convert(call.input(0), call.out().dtype), call.out().sizes)};
}

std::vector<Named> lower_fill(Call& call) { return {call.emit.constant(0.0, call.out())}; }

}  // namespace

std::optional<FlatWrite> flat_write(Call& call) {
  auto& emit = call.emit;
  const auto& values = call.input(1);
  const auto view = view_in(call, values.shape.sizes);
  const auto order = moving_dimensions(view);
  if (!is_dense(view, order) || Shape{sizes_in(view, order)}.numel() != view.numel()) return std::nullopt;
  // Dimensions of one element go last: they move nothing.
  auto whole_order = order;
  for (std::size_t i = 0; i < view.sizes.size(); ++i)
    if (std::ranges::find(order, static_cast<std::int64_t>(i)) == order.end())
      whole_order.push_back(static_cast<std::int64_t>(i));
  return FlatWrite{view.offset, emit.reshape(emit.transpose(values, whole_order), {view.numel()})};
}

const Row kReshape{.name = "reshape", .lower = &lower_reshape};
const Row kConvert{.name = "convert", .lower = &lower_convert};
const Row kFill{.name = "fill", .lower = &lower_fill};
const Row kReadStrided{.name = "read_strided", .lower = &read_strided};
const Row kWriteStrided{.name = "write_strided", .lower = &write_strided};

}  // namespace lockstep::xla
