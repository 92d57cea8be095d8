// Reductions beside sums and means: extremes and where they are, truth, variances, norms and running sums.
#include <array>
#include <cmath>

#include "xla/arithmetic.h"
#include "xla/lowering.h"

namespace lockstep::xla {
namespace {

// Plug-ins for CPUs leave NaN out of maxima: whether there is one is asked by itself.
Named extreme_with_nan(Emitter& emit, std::string_view name, const Named& array,
                       const std::vector<std::int64_t>& dimensions) {
  const auto most = emit.reduce(name, array, dimensions);
  if (!at::isFloatingType(array.shape.dtype)) return most;
  const auto has_nan = emit.reduce("or", emit.compare("NE", array, array), dimensions);
  return emit.select(has_nan, emit.constant(std::nan(""), most.shape), most);
}

Named extreme_over(Call& call, std::string_view name) {
  const auto& self = call.tensor("self");
  const auto dimensions = call.dimensions("dim", self.shape.sizes.size());
  return call.emit.reshape(extreme_with_nan(call.emit, name, self, dimensions), call.out().sizes);
}

// Where the first extreme of each row is; NaN is the most extreme.
Named place_of_extreme(Call& call, std::string_view name, const Named& array, std::int64_t dimension) {
  auto& emit = call.emit;
  std::vector<std::int64_t> kept;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(array.shape.sizes.size()); ++i)
    if (i != dimension) kept.push_back(i);
  const auto most =
      emit.broadcast_to(extreme_with_nan(emit, name, array, {dimension}), array.shape.sizes, kept);
  auto is_most = emit.compare("EQ", array, most);
  if (at::isFloatingType(array.shape.dtype))
    is_most = emit.select(emit.compare("NE", most, most), emit.compare("NE", array, array), is_most);
  const Shape places{array.shape.sizes, at::kLong};
  const auto behind = emit.constant(array.shape.sizes[static_cast<std::size_t>(dimension)], places);
  return emit.reduce("minimum", emit.select(is_most, emit.iota(dimension, places), behind), {dimension});
}

template <const char* Name>
std::vector<Named> extreme_of_each(Call& call) {
  return {extreme_over(call, Name)};
}

template <const char* Name>
std::vector<Named> place(Call& call) {
  const auto& self = call.tensor("self");
  const bool is_flat = !call.has("dim") || self.shape.sizes.empty();
  const auto array = is_flat ? call.emit.reshape(self, {self.shape.numel()}) : self;
  const auto dimension = is_flat ? 0 : call.dimensions("dim", array.shape.sizes.size()).front();
  return {call.emit.reshape(place_of_extreme(call, Name, array, dimension), call.out().sizes)};
}

// max() and min() of all elements, or of a dimension with their places.
template <const char* Name>
std::vector<Named> extreme(Call& call) {
  if (!call.has("dim")) return {extreme_over(call, Name)};
  auto places = place<Name>(call).front();
  return {extreme_over(call, Name), call.emit.reshape(places, call.out(1).sizes)};
}

constexpr char kMost[] = "maximum", kLeast[] = "minimum", kAllOf[] = "and", kAnyOf[] = "or";

Shapes extreme_shapes(const Given& given) {
  if (!given["dim"].isNone()) return {};
  return {Shape{{}, given["self"].toTensor().scalar_type()}};
}

template <const char* Name>
std::vector<Named> truth(Call& call) {
  const auto self = call.emit.convert(call.tensor("self"), at::kBool);
  const auto all = call.emit.reduce(Name, self, call.dimensions("dim", self.shape.sizes.size()));
  return {call.emit.reshape(call.emit.convert(all, call.out().dtype), call.out().sizes)};
}

// A reduction over dimensions, with what it is of.
struct Reduced {
  Named array;
  std::vector<std::int64_t> dimensions, kept;
  double count = 1.0;

  static Reduced of(Call& call, const Named& array) {
    Reduced made{.array = array, .dimensions = call.dimensions("dim", array.shape.sizes.size()), .kept = {}};
    for (std::int64_t i = 0; i < static_cast<std::int64_t>(array.shape.sizes.size()); ++i) {
      if (std::ranges::find(made.dimensions, i) == made.dimensions.end())
        made.kept.push_back(i);
      else
        made.count *= static_cast<double>(array.shape.sizes[static_cast<std::size_t>(i)]);
    }
    return made;
  }
};

// {variance, mean}, in the type of the sums.
std::array<Named, 2> variance_and_mean(Call& call) {
  auto& emit = call.emit;
  const auto reduced = Reduced::of(call, call.tensor("self"));
  const auto sum = emit.reduce("add", reduced.array, reduced.dimensions);
  const Arithmetic one(emit, sum.shape), all(emit, reduced.array.shape);
  const auto mean = one.div(sum, one.number(reduced.count));
  const auto difference = all.sub(reduced.array, all.spread(mean, reduced.kept));
  const double correction = call.has("correction") ? call.number("correction") : 1.0;
  const auto squares = emit.reduce("add", all.mul(difference, difference), reduced.dimensions);
  return {one.div(squares, one.number(std::max(0.0, reduced.count - correction))), mean};
}

template <bool IsRoot, bool HasMean>
std::vector<Named> variance(Call& call) {
  auto [spread, mean] = variance_and_mean(call);
  if (IsRoot) spread = call.emit.apply("sqrt", {spread});
  std::vector<Named> made{call.emit.reshape(spread, call.out().sizes)};
  if (HasMean) made.push_back(call.emit.reshape(mean, call.out(1).sizes));
  return made;
}

// What is left of a tensor whose dimensions are reduced.
Shape reduced_shape(const Given& given) {
  const auto self = given["self"].toTensor();
  std::vector<bool> is_reduced(static_cast<std::size_t>(self.dim()), true);
  if (const auto dim = given["dim"]; dim.isIntList() && !dim.toIntVector().empty()) {
    is_reduced.assign(is_reduced.size(), false);
    for (const auto i : dim.toIntVector())
      is_reduced[static_cast<std::size_t>(i < 0 ? i + self.dim() : i)] = true;
  }
  Shape shape{{}, self.scalar_type()};
  for (std::size_t i = 0; i < is_reduced.size(); ++i) {
    if (!is_reduced[i]) shape.sizes.push_back(self.size(static_cast<std::int64_t>(i)));
    if (is_reduced[i] && given["keepdim"].toBool()) shape.sizes.push_back(1);
  }
  return shape;
}

template <bool HasMean>
Shapes variance_shapes(const Given& given) {
  const auto shape = reduced_shape(given);
  if (HasMean) return {shape, shape};
  return {shape};
}

double order_of(const Call& call) {
  if (call.has("ord")) return call.number("ord");
  return call.has("p") ? call.number("p") : 2.0;
}

// Of any order but 0.
std::vector<Named> vector_norm(Call& call) {
  auto& emit = call.emit;
  const double order = order_of(call);
  const auto dtype = call.out().dtype;
  const bool is_narrow = dtype == at::kHalf || dtype == at::kBFloat16;
  const auto reduced = Reduced::of(call, emit.convert(call.tensor("self"), is_narrow ? at::kFloat : dtype));
  const Arithmetic all(emit, reduced.array.shape);
  const auto sizes = all.abs(reduced.array);
  Named made;
  if (std::isinf(order)) {
    made = emit.reduce(order > 0 ? "maximum" : "minimum", sizes, reduced.dimensions);
  } else if (order == 1.0) {
    made = emit.reduce("add", sizes, reduced.dimensions);
  } else if (order == 2.0) {
    made = emit.apply("sqrt", {emit.reduce("add", all.mul(sizes, sizes), reduced.dimensions)});
  } else {
    const auto sum = emit.reduce("add", all.pow(sizes, all.number(order)), reduced.dimensions);
    made = emit.apply("power", {sum, emit.constant(1.0 / order, sum.shape)});
  }
  return {emit.reshape(emit.convert(made, dtype), call.out().sizes)};
}

bool has_an_order(const Given& given) {
  for (const auto* const name : {"ord", "p"})
    if (!given[name].isNone() && given[name].toScalar().toDouble() == 0.0) return false;
  return given["self"].toTensor().numel() > 0;
}

// As many as kGradNormBlock of optim/grad_norm.h.
constexpr std::int64_t kSquaresTogether = 1024;

}  // namespace

std::int64_t square_sum_blocks(std::int64_t elements) {
  return (elements + kSquaresTogether - 1) / kSquaresTogether;
}

Named block_square_sums(Emitter& emit, const Named& array) {
  const auto elements = array.shape.numel(), blocks = square_sum_blocks(elements);
  const auto flat = emit.reshape(emit.convert(array, at::kDouble), {elements});
  const auto rows =
      emit.reshape(emit.pad(flat, 0, 0, blocks * kSquaresTogether - elements), {blocks, kSquaresTogether});
  return emit.reduce("add", emit.apply("multiply", {rows, rows}), {1});
}

namespace {

std::vector<Named> square_sums(Call& call) {
  std::vector<Named> sums;
  for (const auto& gradient : call.tensors("gradients"))
    sums.push_back(block_square_sums(call.emit, gradient));
  return {call.emit.concatenate(sums, 0)};
}

Shapes square_sums_shapes(const Given& given) {
  std::int64_t blocks = 0;
  for (const at::Tensor& gradient : given["gradients"].toTensorVector())
    blocks += square_sum_blocks(gradient.numel());
  return {Shape{{blocks}, at::kDouble}};
}

bool has_gradients(const Given& given) { return !given["gradients"].toTensorVector().empty(); }

// Neighbours first, as on other devices: the same bits whatever the number of ranks.
std::vector<Named> pairwise_sum_of(Call& call) {
  auto& emit = call.emit;
  auto level = call.tensor("values");
  while (level.shape.numel() > 1) {
    const auto pairs = level.shape.numel() / 2;
    const auto both = emit.reshape(emit.slice(level, 0, 2 * pairs), {pairs, 2});
    auto next = emit.reduce("add", both, {1});
    if (level.shape.numel() % 2 == 1)
      next = emit.concatenate({next, emit.slice(level, 2 * pairs, 2 * pairs + 1)}, 0);
    level = next;
  }
  return {emit.reshape(level, {})};
}

// Each pass adds what lies twice as far back as in the one before.
std::vector<Named> running_sum(Call& call) {
  auto& emit = call.emit;
  const auto& shape = call.out();
  const bool is_narrow = shape.dtype == at::kHalf || shape.dtype == at::kBFloat16;
  auto sum =
      emit.convert(emit.convert(call.tensor("self"), shape.dtype), is_narrow ? at::kFloat : shape.dtype);
  const auto dimension = call.dimensions("dim", shape.sizes.size()).front();
  for (std::int64_t back = 1; back < shape.sizes[static_cast<std::size_t>(dimension)]; back *= 2)
    sum = emit.apply("add", {sum, emit.pad(sum, dimension, back, -back)});
  return {emit.convert(sum, shape.dtype)};
}

bool has_dimensions_and_elements(const Given& given) {
  const auto& self = given["self"].toTensor();
  return self.dim() > 0 && self.numel() > 0;
}

Shapes number_shape(const Given& given) { return {Shape{{}, given["values"].toTensor().scalar_type()}}; }
bool has_values(const Given& given) { return given["values"].toTensor().numel() > 0; }

bool has_some_elements(const Given& given) { return given["self"].toTensor().numel() > 0; }

}  // namespace

std::span<const Row> reduction_rows() {
  static const std::array rows{
      Row{.name = "aten::argmax", .lower = &place<kMost>, .accepts = &has_some_elements},
      Row{.name = "aten::argmin", .lower = &place<kLeast>, .accepts = &has_some_elements},
      Row{.name = "aten::amax", .lower = &extreme_of_each<kMost>, .accepts = &has_some_elements},
      Row{.name = "aten::amin", .lower = &extreme_of_each<kLeast>, .accepts = &has_some_elements},
      Row{.name = "aten::max",
          .lower = &extreme<kMost>,
          .shapes = &extreme_shapes,
          .accepts = &has_some_elements},
      Row{.name = "aten::min",
          .lower = &extreme<kLeast>,
          .shapes = &extreme_shapes,
          .accepts = &has_some_elements},
      Row{.name = "aten::all", .lower = &truth<kAllOf>},
      Row{.name = "aten::any", .lower = &truth<kAnyOf>},
      Row{.name = "aten::var",
          .lower = &variance<false, false>,
          .shapes = &variance_shapes<false>,
          .accepts = &has_some_elements},
      Row{.name = "aten::std",
          .lower = &variance<true, false>,
          .shapes = &variance_shapes<false>,
          .accepts = &has_some_elements},
      Row{.name = "aten::var_mean",
          .lower = &variance<false, true>,
          .shapes = &variance_shapes<true>,
          .accepts = &has_some_elements},
      Row{.name = "aten::std_mean",
          .lower = &variance<true, true>,
          .shapes = &variance_shapes<true>,
          .accepts = &has_some_elements},
      Row{.name = "aten::linalg_vector_norm", .lower = &vector_norm, .accepts = &has_an_order},
      Row{.name = "aten::norm", .lower = &vector_norm, .accepts = &has_an_order},
      Row{.name = "aten::cumsum", .lower = &running_sum, .accepts = &has_dimensions_and_elements},
      Row{.name = "lockstep::square_sums",
          .lower = &square_sums,
          .shapes = &square_sums_shapes,
          .accepts = &has_gradients},
      Row{.name = "lockstep::pairwise_sum",
          .lower = &pairwise_sum_of,
          .shapes = &number_shape,
          .accepts = &has_values},
  };
  return rows;
}

}  // namespace lockstep::xla
