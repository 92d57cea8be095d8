#include <cmath>
#include <span>
#include <type_traits>

#include <lockstep/base/error.h>

#include "checkpoint/state_json.h"
#include "formats/in_quotes.h"
#include "formats/strict_json.h"
#include "formats/utf8.h"
#include "state/storable.h"

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

// Whether its elements lie somewhere, as numbers that the files know.
void check_tensor(const std::string& path, const at::Tensor& tensor) {
  if (auto why = unstorable(tensor)) refuse(path, "cannot be stored", why.expected, why.got);
  if (tensor.is_meta())
    refuse(path, "cannot be stored", "a tensor of a device that has its bytes", tensor.toString());
}

class Writer {
 public:
  /// Of what is `depth` objects and arrays deep in manifest.json.
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

}  // namespace lockstep::detail
