#include "checkpoint/state_json.h"

#include <charconv>
#include <limits>

#include <lockstep/base/error.h>

namespace lockstep::detail {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void refuse(const Json& json, const char* expected) {
  throw CheckpointError("checkpoint", {.what = "a value in manifest.json cannot be read",
                                       .expected = expected,
                                       .got = json.dump().substr(0, 100)});
}

StateBytes from_hex(const Json& json) {
  const auto text = json.get<std::string>();
  if (text.size() % 2 != 0) refuse(json, "two hexadecimal digits for each byte");
  StateBytes bytes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    unsigned value = 0;
    const auto* const end = text.data() + i + 2;
    if (std::from_chars(text.data() + i, end, value, 16).ptr != end) refuse(json, "hexadecimal digits");
    bytes.push_back(static_cast<std::byte>(value));
  }
  return bytes;
}

StateTree tree_from(const Json& members, const StateValue* wanted, const TensorSource& tensors) {
  const auto* along = wanted ? std::get_if<StateTree>(wanted) : nullptr;
  StateTree tree;
  for (const auto& [name, value] : members.items())
    tree.set(name, from_json(value, along ? along->find(name) : nullptr, tensors));
  return tree;
}

StateList list_from(const Json& elements, const StateValue* wanted, const TensorSource& tensors) {
  const auto* along = wanted ? std::get_if<StateList>(wanted) : nullptr;
  StateList list;
  for (const auto& value : elements) {
    const bool has_one = along && list.size() < along->size();
    list.push_back(from_json(value, has_one ? &along->values()[list.size()] : nullptr, tensors));
  }
  return list;
}

std::int64_t integer_from(const Json& json) {
  constexpr std::uint64_t kLargest = std::numeric_limits<std::int64_t>::max();
  if (json.is_number_unsigned() && json.get<std::uint64_t>() > kLargest)
    refuse(json, "an integer of 64 bits");
  return json.get<std::int64_t>();
}

std::string string_from(const Json& hex) {
  const auto bytes = from_hex(hex);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

double number_from(const Json& name) {
  if (name == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (name == "inf") return std::numeric_limits<double>::infinity();
  if (name == "-inf") return -std::numeric_limits<double>::infinity();
  refuse(name, "nan, inf or -inf");
}

}  // namespace

StateValue from_json(const Json& json, const StateValue* wanted, const TensorSource& tensors) {
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_integer()) return integer_from(json);
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  if (json.is_array()) return list_from(json, wanted, tensors);
  if (!json.is_object() || json.size() != 1) refuse(json, "an object of one key");
  const auto& kind = json.begin().key();
  const auto& content = json.begin().value();
  if (kind == "tree" && content.is_object()) return tree_from(content, wanted, tensors);
  if (kind == "tensor" && content.is_string()) return tensors(content.get<std::string>(), wanted);
  if (kind == "number" && content.is_string()) return number_from(content);
  if (kind == "bytes" && content.is_string()) return from_hex(content);
  if (kind == "string" && content.is_string()) return string_from(content);
  refuse(json, "tree, tensor, number, bytes or string");
}

}  // namespace lockstep::detail
