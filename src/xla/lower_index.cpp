// Elements that are found by indices, embeddings, and arrays of positions. Indices out of range are not
// noticed: reading takes the nearest that is there, writing leaves them out.
#include <array>

#include "xla/arithmetic.h"
#include "xla/lowering.h"

namespace lockstep::xla {
namespace {

std::int64_t dimension_in(const Call& call, std::size_t rank) { return call.dimensions("dim", rank).front(); }

std::vector<std::int64_t> others_of(std::int64_t dimension, std::size_t rank) {
  std::vector<std::int64_t> others;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(rank); ++i)
    if (i != dimension) others.push_back(i);
  return others;
}

// Slices of `array` along a dimension, at indices of one dimension.
Slices slices_along(const Named& array, std::int64_t dimension) {
  return {.dimensions = {dimension}, .windows = others_of(dimension, array.shape.sizes.size())};
}

Named as_rows(Emitter& emit, const Named& indices) {
  return emit.reshape(indices, {indices.shape.numel(), 1});
}

Named slices_at(Emitter& emit, const Named& array, const Named& indices, std::int64_t dimension,
                const Shape& shape) {
  return emit.gather(array, as_rows(emit, indices), slices_along(array, dimension), shape);
}

Named add_slices(Emitter& emit, const Named& array, const Named& indices, std::int64_t dimension,
                 const Named& slices) {
  return emit.scatter(array, as_rows(emit, indices), slices_along(array, dimension), slices, /*adds=*/true);
}

// Indices as a flat array of int64; negative ones are not LibTorch's here.
Named flat_indices(Call& call, std::string_view name) {
  const auto indices = call.emit.convert(call.tensor(name), at::kLong);
  return call.emit.reshape(indices, {indices.shape.numel()});
}

std::vector<Named> index_select(Call& call) {
  const auto& self = call.tensor("self");
  return {slices_at(call.emit, self, flat_indices(call, "index"), dimension_in(call, self.shape.sizes.size()),
                    call.out())};
}

Shapes index_select_shapes(const Given& given) {
  auto shape = given.shape("self");
  const auto rank = static_cast<std::int64_t>(shape.sizes.size());
  const auto dimension = given["dim"].toInt();
  shape.sizes[static_cast<std::size_t>(dimension < 0 ? dimension + rank : dimension)] =
      given["index"].toTensor().numel();
  return {shape};
}

std::vector<Named> index_add(Call& call) {
  auto& emit = call.emit;
  const auto& self = call.tensor("self");
  auto source = emit.convert(call.tensor("source"), self.shape.dtype);
  if (call.number("alpha") != 1.0)
    source = emit.apply("multiply", {source, emit.constant(call.number("alpha"), source.shape)});
  return {add_slices(emit, self, flat_indices(call, "index"), dimension_in(call, self.shape.sizes.size()),
                     source)};
}

// Rows of the padding index go nowhere: behind the last.
std::vector<Named> embedding_backward(Call& call) {
  auto& emit = call.emit;
  const auto& shape = call.out();
  auto indices = flat_indices(call, "indices");
  const auto padding = call.integer("padding_idx");
  if (padding >= 0) {
    const auto is_padding = emit.compare("EQ", indices, emit.constant(padding, indices.shape));
    indices = emit.select(is_padding, emit.constant(shape.sizes[0], indices.shape), indices);
  }
  const Shape sums{shape.sizes, shape.dtype == at::kDouble ? at::kDouble : at::kFloat};
  const auto rows = emit.reshape(emit.convert(call.tensor("grad_output"), sums.dtype),
                                 {indices.shape.numel(), shape.sizes[1]});
  return {emit.convert(add_slices(emit, emit.constant(0.0, sums), indices, 0, rows), shape.dtype)};
}

Shapes embedding_shapes(const Given& given) {
  const auto gradient = given.shape("grad_output");
  return {Shape{{given["num_weights"].toInt(), gradient.sizes.back()}, gradient.dtype}};
}

// The place of each element in a flat array of `sizes`, where `indices` say its position along one dimension.
Named places_by_index(Emitter& emit, const Named& indices, std::int64_t dimension,
                      const std::vector<std::int64_t>& sizes) {
  const Shape shape{indices.shape.sizes, at::kLong};
  auto places = emit.constant(std::int64_t{0}, shape);
  std::int64_t step = 1;
  for (auto i = static_cast<std::int64_t>(sizes.size()); i-- > 0;) {
    const auto along = i == dimension ? emit.convert(indices, at::kLong) : emit.iota(i, shape);
    places = emit.apply("add", {places, emit.apply("multiply", {along, emit.constant(step, shape)})});
    step *= sizes[static_cast<std::size_t>(i)];
  }
  return emit.reshape(places, {shape.numel()});
}

std::vector<Named> gather_by_index(Call& call) {
  auto& emit = call.emit;
  const auto &self = call.tensor("self"), &indices = call.tensor("index");
  const auto places =
      places_by_index(emit, indices, dimension_in(call, self.shape.sizes.size()), self.shape.sizes);
  const Shape flat{{indices.shape.numel()}, self.shape.dtype};
  const auto found = slices_at(emit, emit.reshape(self, {self.shape.numel()}), places, 0, flat);
  return {emit.reshape(found, call.out().sizes)};
}

std::vector<Named> scatter_add(Call& call) {
  auto& emit = call.emit;
  const auto &self = call.tensor("self"), &indices = call.tensor("index");
  const auto places =
      places_by_index(emit, indices, dimension_in(call, self.shape.sizes.size()), self.shape.sizes);
  const auto flat = emit.reshape(self, {self.shape.numel()});
  const auto source =
      emit.reshape(emit.convert(call.tensor("src"), self.shape.dtype), {indices.shape.numel()});
  return {emit.reshape(add_slices(emit, flat, places, 0, source), call.out().sizes)};
}

// Of several elements for one place the last in memory stays.
std::vector<Named> scatter_by_index(Call& call) {
  auto& emit = call.emit;
  const auto &self = call.tensor("self"), &indices = call.tensor("index");
  const auto places =
      places_by_index(emit, indices, dimension_in(call, self.shape.sizes.size()), self.shape.sizes);
  const auto* const source = call.has("src") ? "src" : "value";
  const auto values =
      emit.reshape(call.operand(source, self.shape.dtype, indices.shape.sizes), {indices.shape.numel()});
  const auto flat = emit.reshape(self, {self.shape.numel()});
  const auto rows = as_rows(emit, places);
  return {emit.reshape(emit.scatter(flat, rows, slices_along(flat, 0), values, /*adds=*/false),
                       call.out().sizes)};
}

// Indices of the source's shape: LibTorch takes smaller ones, too.
bool has_all_of_source(const Given& given) {
  return given["self"].toTensor().dim() > 0 &&
         given["index"].toTensor().sizes() == given["src"].toTensor().sizes();
}

bool puts_all_of_source(const Given& given) {
  if (!given["reduce"].isNone() || given["self"].toTensor().dim() == 0) return false;
  return given["index"].toTensor().numel() > 0 && (!given.has("src") || has_all_of_source(given));
}

template <const char* Direction>
std::vector<Named> triangle(Call& call) {
  auto& emit = call.emit;
  const auto& shape = call.out();
  const auto last = static_cast<std::int64_t>(shape.sizes.size()) - 1;
  const Shape places{shape.sizes, at::kLong};
  const auto diagonal =
      emit.apply("add", {emit.iota(last - 1, places), emit.constant(call.integer("diagonal"), places)});
  const auto is_kept = emit.compare(Direction, emit.iota(last, places), diagonal);
  return {emit.select(is_kept, call.tensor("self"), emit.constant(0.0, shape))};
}

constexpr char kBelow[] = "LE", kAbove[] = "GE";

// Of integers exactly.
std::vector<Named> arange(Call& call) {
  auto& emit = call.emit;
  const auto& shape = call.out();
  const auto count = emit.iota(0, shape);
  const auto start = call.has("start") ? call.number("start") : 0.0;
  const auto step = call.has("step") ? call.number("step") : 1.0;
  if (start == 0.0 && step == 1.0) return {count};
  const auto scaled = emit.apply("multiply", {count, emit.constant(step, shape)});
  return {emit.apply("add", {scaled, emit.constant(start, shape)})};
}

bool is_of_whole_numbers(const Given& given) {
  for (const auto* const name : {"start", "end", "step"})
    if (!given[name].isNone() && given[name].toScalar().isFloatingPoint()) return false;
  return given["out"].toTensor().scalar_type() != at::kBool;
}

std::vector<Named> flip(Call& call) {
  const auto& self = call.tensor("self");
  return {call.emit.emit("stablehlo.reverse " + self.name +
                             ", dims = " + list_text(call.dimensions("dims", self.shape.sizes.size())) +
                             " : " + type_text(self.shape),
                         self.shape)};
}

bool has_a_dimension(const Given& given) { return given["self"].toTensor().dim() > 0; }
bool names_dimensions(const Given& given) {
  return has_a_dimension(given) && !given["dims"].toIntVector().empty();
}
bool counts_all_alike(const Given& given) { return !given["scale_grad_by_freq"].toBool(); }

}  // namespace

std::span<const Row> index_rows() {
  static const std::array rows{
      Row{.name = "aten::index_select",
          .lower = &index_select,
          .shapes = &index_select_shapes,
          .accepts = &has_a_dimension},
      Row{.name = "aten::index_add", .lower = &index_add, .like = "self", .accepts = &has_a_dimension},
      Row{.name = "aten::embedding_dense_backward",
          .lower = &embedding_backward,
          .shapes = &embedding_shapes,
          .accepts = &counts_all_alike},
      Row{.name = "aten::gather", .lower = &gather_by_index, .accepts = &has_a_dimension},
      Row{.name = "aten::scatter_add", .lower = &scatter_add, .like = "self", .accepts = &has_all_of_source},
      Row{.name = "aten::scatter",
          .lower = &scatter_by_index,
          .like = "self",
          .accepts = &puts_all_of_source},
      Row{.name = "aten::tril", .lower = &triangle<kBelow>, .like = "self"},
      Row{.name = "aten::triu", .lower = &triangle<kAbove>, .like = "self"},
      Row{.name = "aten::arange", .lower = &arange, .accepts = &is_of_whole_numbers},
      Row{.name = "aten::flip", .lower = &flip, .like = "self", .accepts = &names_dimensions},
  };
  return rows;
}

}  // namespace lockstep::xla
