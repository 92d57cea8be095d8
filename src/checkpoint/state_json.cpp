// A StateTree as JSON, with its tensors left out and named by their path.
#include "checkpoint/state_formats.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <span>
#include <type_traits>

#include <lockstep/base/error.h>

#include "formats/checkpoint_files.h"
#include "formats/file_text.h"
#include "state/module_tensors.h"

namespace lockstep::detail {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void refuse(const std::string& path, const char* what, const std::string& expected,
                         const std::string& got) {
  throw CheckpointError("checkpoint",
                        {.what = "state " + in_quotes(path) + " " + what, .expected = expected, .got = got});
}

std::string to_hex(std::span<const std::byte> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const auto byte : bytes) {
    text += kDigits[std::to_integer<int>(byte) >> 4];
    text += kDigits[std::to_integer<int>(byte) & 15];
  }
  return text;
}

// Refuses a tensor without memory, or of a type that the files cannot store.
void check_tensor(const std::string& path, const at::Tensor& tensor) {
  if (auto why = unstorable(tensor)) refuse(path, "cannot be stored", why.expected, why.got);
  if (tensor.is_meta())
    refuse(path, "cannot be stored", "a tensor of a device that has its bytes", tensor.toString());
}

class Writer {
 public:
  /// Writes a value that is nested in `depth` objects and arrays of manifest.json.
  Writer(TensorLeaves& tensors, std::string path, std::size_t depth)
      : tensors_(tensors), path_(std::move(path)), depth_(depth) {}

  Json write(const StateValue& value) const {
    return std::visit(*this, static_cast<const StateValue::variant&>(value));
  }

  Json operator()(const at::Tensor& tensor) const {
    check_tensor(path_, tensor);
    return add({.run = {.elements = tensor, .shape = tensor.sizes().vec()}, .is_whole = true});
  }
  Json operator()(const TensorShard& shard) const {
    const bool is_elsewhere = !shard.elements.defined() && c10::multiply_integers(shard.shape) != 0;
    if (!is_elsewhere) check_tensor(path_, shard.elements);
    return add({.run = shard, .is_whole = false});
  }
  Json operator()(std::int64_t number) const { return number; }
  Json operator()(bool flag) const { return flag; }
  Json operator()(double number) const {
    if (std::isfinite(number)) return number;
    return object("number", std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf");
  }
  Json operator()(const std::string& text) const {
    if (is_utf8(text)) return text;
    return object("string", to_hex(std::as_bytes(std::span(text))));
  }
  Json operator()(const StateBytes& bytes) const { return object("bytes", to_hex(bytes)); }
  Json operator()(const StateTree& tree) const {
    if (!tree.what_is_unread().empty())
      refuse(path_, "cannot be stored", "a value that was read", tree.what_is_unread());
    check_depth(2);
    Json members = Json::object();
    for (const auto& [name, value] : tree.entries()) {
      const auto path = path_ + "/" + name;
      if (!is_utf8(name)) refuse(path, "cannot be stored", "a name in UTF-8", "other bytes");
      add_member(members, name, Writer(tensors_, path, depth_ + 2).write(value));
    }
    return object("tree", std::move(members));
  }
  Json operator()(const StateList& list) const {
    check_depth(1);
    Json elements = Json::array();
    for (const auto& value : list.values()) {
      const auto path = path_ + "/" + std::to_string(elements.size());
      elements.push_back(Writer(tensors_, path, depth_ + 1).write(value));
    }
    return elements;
  }

 private:
  Json object(const char* kind, Json content) const {
    check_depth(1);
    Json object = Json::object();
    add_member(object, kind, std::move(content));
    return object;
  }

  Json add(TensorLeaf leaf) const {
    if (!tensors_.emplace(path_, std::move(leaf)).second)
      refuse(path_, "is the path of two tensors", "names that give each one of its own", "");
    return object("tensor", path_);
  }

  void check_depth(std::size_t levels) const {
    if (depth_ + levels > kDeepestJson)
      refuse(path_, "is too deep", "at most 31 trees around a value", "more");
  }

  TensorLeaves& tensors_;
  std::string path_;
  std::size_t depth_;
};

constexpr std::size_t kDepthOfState = 2;  // of "state" and "ranks" in manifest.json

}  // namespace

Json to_json(const StateValue& value, const std::string& path, TensorLeaves& tensors) {
  return Writer(tensors, path, kDepthOfState).write(value);
}

namespace {

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
