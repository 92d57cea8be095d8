// Arrays in the order of their elements.
#include <array>

#include "xla/lowering.h"

namespace lockstep::xla {
namespace {

// Whether `left` comes before `right`. NaNs are larger than all numbers, as LibTorch takes them.
std::string comparison(const char* direction, at::ScalarType dtype) {
  const auto type = type_text({{}, dtype}), truth = type_text({{}, at::kBool});
  const auto compare = [&](const std::string& name, const std::string& how, const std::string& left,
                           const std::string& right) {
    return "      " + name + " = stablehlo.compare " + how + ", " + left + ", " + right + " : (" + type +
           ", " + type + ") -> " + truth + "\n";
  };
  auto text = compare("%before", direction, "%left", "%right");
  if (!at::isFloatingType(dtype)) return text + "      stablehlo.return %before : " + truth + "\n";
  const bool is_ascending = std::string_view(direction) == "LT";
  const std::string first = is_ascending ? "%left" : "%right", last = is_ascending ? "%right" : "%left";
  text += compare("%number", "EQ", first, first) + compare("%nan", "NE", last, last);
  text += "      %only = stablehlo.and %number, %nan : " + truth + "\n";
  text += "      %result = stablehlo.or %before, %only : " + truth + "\n";
  return text + "      stablehlo.return %result : " + truth + "\n";
}

// {elements, their positions before}; equal ones stay in their order.
std::vector<Named> sorted(Emitter& emit, const Named& array, std::int64_t dimension, bool is_descending) {
  const auto places = emit.iota(dimension, {array.shape.sizes, at::kLong});
  const auto types = type_text(array.shape) + ", " + type_text(places.shape);
  const auto one = type_text({{}, array.shape.dtype}), place = type_text({{}, at::kLong});
  return emit.emit_several("\"stablehlo.sort\"(" + array.name + ", " + places.name +
                               ") <{dimension = " + std::to_string(dimension) +
                               " : i64, is_stable = true}> ({\n    ^bb0(%left: " + one + ", %right: " + one +
                               ", %left_place: " + place + ", %right_place: " + place + "):\n" +
                               comparison(is_descending ? "GT" : "LT", array.shape.dtype) + "  }) : (" +
                               types + ") -> (" + types + ")",
                           {array.shape, places.shape});
}

std::vector<Named> sort(Call& call) {
  const auto& self = call.tensor("self");
  const auto dimension = call.dimensions("dim", self.shape.sizes.size()).front();
  return sorted(call.emit, self, dimension, call.flag("descending"));
}

std::vector<Named> topk(Call& call) {
  const auto& self = call.tensor("self");
  const auto dimension = call.dimensions("dim", self.shape.sizes.size()).front();
  auto made = sorted(call.emit, self, dimension, call.flag("largest"));
  const auto left_out = self.shape.sizes[static_cast<std::size_t>(dimension)] - call.integer("k");
  for (auto& array : made)
    if (left_out > 0) array = call.emit.pad(array, dimension, 0, -left_out);
  return made;
}

bool has_elements_in_dimensions(const Given& given) {
  const auto self = given["self"].toTensor();
  return self.dim() > 0 && self.numel() > 0;
}

}  // namespace

std::span<const Row> sort_rows() {
  static const std::array rows{
      Row{.name = "aten::sort", .lower = &sort, .accepts = &has_elements_in_dimensions},
      Row{.name = "aten::topk", .lower = &topk, .accepts = &has_elements_in_dimensions},
  };
  return rows;
}

}  // namespace lockstep::xla
