#include "xla/lowering.h"

#include <array>
#include <unordered_map>

#include <lockstep/base/error.h>

namespace lockstep::xla {
namespace {

// "aten::add" of "aten::add_", but not of "aten::__and__".
std::string_view without_underscore(std::string_view name) {
  if (name.ends_with('_') && !name.ends_with("__")) name.remove_suffix(1);
  return name;
}

std::unordered_map<std::string_view, const Row*> make_table() {
  std::unordered_map<std::string_view, const Row*> table;
  for (const auto rows : {activation_rows(), convolution_rows(), index_rows(), linear_rows(), loss_rows(),
                          norm_rows(), optimizer_rows(), pointwise_rows(), pool_rows(), random_rows(),
                          reduction_rows(), sort_rows(), subscript_rows()})
    for (const auto& row : rows) table.emplace(row.name, &row);
  return table;
}

}  // namespace

const Row* find_row(std::string_view name) {
  static const auto table = make_table();
  const auto found = table.find(without_underscore(name));
  return found == table.end() ? nullptr : found->second;
}

c10::IValue Given::operator[](std::string_view name) const {
  const auto index = schema.argumentIndexWithName(name);
  return index ? values[static_cast<std::size_t>(*index)] : c10::IValue();
}

bool Given::has(std::string_view name) const {
  const auto value = (*this)[name];
  return value.isTensor() && value.toTensor().defined();
}

Shape Given::shape(std::string_view name) const {
  const auto tensor = (*this)[name].toTensor();
  return {tensor.sizes().vec(), tensor.scalar_type()};
}

Shapes Given::asked_for(Shapes gradients) const {
  const auto mask = (*this)["output_mask"].toBoolList();
  for (std::size_t i = 0; i < gradients.size(); ++i)
    if (!mask.get(i)) gradients[i].reset();
  return gradients;
}

const Argument* Call::find(std::string_view name) const {
  const auto index = node_.schema->argumentIndexWithName(name);
  if (!index) return nullptr;
  const auto& argument = node_.arguments[static_cast<std::size_t>(*index)];
  return argument.first < 0 && argument.value.isNone() ? nullptr : &argument;
}

const Argument& Call::at(std::string_view name) const {
  if (const auto* const found = find(name)) return *found;
  throw Error("xla", {.what = "an operator is lowered without its argument " + std::string(name),
                      .where = node_.schema->name()});
}

bool Call::is_array(std::string_view name) const {
  const auto* const argument = find(name);
  return argument != nullptr && argument->first >= 0;
}

const Named& Call::tensor(std::string_view name) const {
  return inputs_[static_cast<std::size_t>(at(name).first)];
}

std::vector<Named> Call::tensors(std::string_view name) const {
  std::vector<Named> found;
  if (const auto* const argument = find(name))
    for (int i = 0; i < argument->count; ++i)
      found.push_back(inputs_[static_cast<std::size_t>(argument->first + i)]);
  return found;
}

Named Call::operand(std::string_view name, at::ScalarType dtype,
                    const std::vector<std::int64_t>& sizes) const {
  if (!is_array(name)) return emit.constant(number(name), {sizes, dtype});
  return emit.broadcast(emit.convert(tensor(name), dtype), sizes);
}

double Call::number(std::string_view name) const { return at(name).value.toScalar().toDouble(); }
std::int64_t Call::integer(std::string_view name) const { return at(name).value.toScalar().toLong(); }
bool Call::flag(std::string_view name) const { return at(name).value.toBool(); }
std::string Call::text(std::string_view name) const { return std::string(at(name).value.toStringView()); }

std::vector<std::int64_t> Call::dimensions(std::string_view name, std::size_t rank) const {
  std::vector<std::int64_t> found;
  if (const auto* const argument = find(name)) {
    if (argument->value.isInt()) found.push_back(argument->value.toInt());
    if (argument->value.isIntList()) found = argument->value.toIntVector();
  }
  const auto count = static_cast<std::int64_t>(rank);
  if (found.empty())
    for (std::int64_t i = 0; i < count; ++i) found.push_back(i);
  for (auto& dimension : found)
    if (dimension < 0) dimension += count;
  if (rank == 0) found.clear();
  return found;
}

const c10::IValue& Call::value(std::string_view name) const { return at(name).value; }
std::vector<std::int64_t> Call::integers(std::string_view name) const { return value(name).toIntVector(); }

std::vector<Named> Call::asked_for(const std::array<Named, 3>& gradients) const {
  std::vector<Named> made;
  const auto mask = at("output_mask").value.toBoolList();
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (!mask.get(i)) continue;
    const auto& shape = out(made.size());
    made.push_back(emit.reshape(emit.convert(gradients[i], shape.dtype), shape.sizes));
  }
  return made;
}

std::vector<std::int64_t> Call::list(std::size_t number) const {
  return node_.arguments[node_.inputs.size() + number].value.toIntVector();
}

}  // namespace lockstep::xla
