#include "checkpoint/state_json.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <type_traits>

#include <lockstep/base/error.h>

namespace lockstep::detail {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void refuse(const Json& json, const char* expected) {
  throw CheckpointError("checkpoint", {.what = "a value in manifest.json cannot be read",
                                       .expected = expected,
                                       .got = json.dump().substr(0, 100)});
}

std::string to_hex(const StateBytes& bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const auto byte : bytes) {
    text += kDigits[std::to_integer<int>(byte) >> 4];
    text += kDigits[std::to_integer<int>(byte) & 15];
  }
  return text;
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

struct Writer {
  TensorLeaves& tensors;
  const std::string& path;

  Json write(const StateValue& value, const std::string& at) const {
    return std::visit(Writer{tensors, at}, static_cast<const StateValue::variant&>(value));
  }

  Json operator()(const at::Tensor& tensor) const {
    return add({.run = {.elements = tensor, .shape = tensor.sizes().vec()}, .is_whole = true});
  }
  Json operator()(const TensorShard& shard) const { return add({.run = shard, .is_whole = false}); }
  Json add(TensorLeaf leaf) const {
    if (!tensors.emplace(path, std::move(leaf)).second) {
      throw CheckpointError("checkpoint", {.what = "two tensors of a state have one path", .got = path});
    }
    return {{"tensor", path}};
  }
  Json operator()(double number) const {
    if (std::isfinite(number)) return number;
    return {{"number", std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf"}};
  }
  Json operator()(const StateBytes& bytes) const { return {{"bytes", to_hex(bytes)}}; }
  Json operator()(const StateTree& tree) const {
    Json members = Json::object();
    for (const auto& [name, value] : tree.entries()) members[name] = write(value, path + "/" + name);
    return {{"tree", std::move(members)}};
  }
  Json operator()(const StateList& list) const {
    Json elements = Json::array();
    for (const auto& value : list.values()) {
      elements.push_back(write(value, path + "/" + std::to_string(elements.size())));
    }
    return elements;
  }
  template <class Plain>
  requires(std::is_same_v<Plain, std::int64_t> || std::is_same_v<Plain, bool> ||
           std::is_same_v<Plain, std::string>) Json
  operator()(const Plain& value) const {
    return value;
  }
};

StateTree tree_from(const Json& members, const TensorSource& tensors) {
  StateTree tree;
  for (const auto& [name, value] : members.items()) tree.set(name, from_json(value, tensors));
  return tree;
}

StateList list_from(const Json& elements, const TensorSource& tensors) {
  StateList list;
  for (const auto& value : elements) list.push_back(from_json(value, tensors));
  return list;
}

double number_from(const Json& name) {
  if (name == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (name == "inf") return std::numeric_limits<double>::infinity();
  if (name == "-inf") return -std::numeric_limits<double>::infinity();
  refuse(name, "nan, inf or -inf");
}

}  // namespace

Json to_json(const StateValue& value, const std::string& path, TensorLeaves& tensors) {
  return Writer{tensors, path}.write(value, path);
}

StateValue from_json(const Json& json, const TensorSource& tensors) {
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_integer()) return json.get<std::int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return json.get<std::string>();
  if (json.is_array()) return list_from(json, tensors);
  if (!json.is_object() || json.size() != 1) refuse(json, "an object of one key");
  const auto& kind = json.begin().key();
  const auto& content = json.begin().value();
  if (kind == "tree" && content.is_object()) return tree_from(content, tensors);
  if (kind == "tensor" && content.is_string()) return tensors(content.get<std::string>());
  if (kind == "number" && content.is_string()) return number_from(content);
  if (kind == "bytes" && content.is_string()) return from_hex(content);
  refuse(json, "tree, tensor, number or bytes");
}

}  // namespace lockstep::detail
