#include <lockstep/state/state_tree.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <string_view>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ne.h>
#include <c10/util/StringUtil.h>

#include <lockstep/base/error.h>

#include "state/module_tensors.h"

namespace lockstep::detail {
namespace {

// `name` as one part of a path.
std::string escaped(std::string_view name) {
  std::string text;
  for (const char letter : name) {
    if (letter == '~') {
      text += "~0";
    } else if (letter == '/') {
      text += "~1";
    } else {
      text += letter;
    }
  }
  return text;
}

// The path of `name` below `path`.
std::string below(const std::string& path, std::string_view name) {
  return path.empty() ? escaped(name) : path + '/' + escaped(name);
}

}  // namespace
}  // namespace lockstep::detail

namespace lockstep {
namespace {

using Leaves = std::vector<std::pair<std::string, const StateValue*>>;

void collect(const std::string& path, const StateValue& value, Leaves& leaves) {
  const auto* tree = std::get_if<StateTree>(&value);
  if (tree != nullptr && tree->what_is_unread().empty()) {
    for (const auto& [name, inner] : tree->entries()) collect(detail::below(path, name), inner, leaves);
  } else if (const auto* list = std::get_if<StateList>(&value)) {
    for (std::size_t i = 0; i < list->size(); ++i) {
      collect(detail::below(path, std::to_string(i)), list->values()[i], leaves);
    }
  } else {
    leaves.emplace_back(path, &value);
  }
}

std::string tensor_text(const at::Tensor& tensor) {
  if (!tensor.defined()) return "undefined tensor";
  return detail::tensor_kind(tensor.scalar_type(), tensor.sizes());
}

struct Describe {
  std::string operator()(const at::Tensor& tensor) const { return tensor_text(tensor); }
  std::string operator()(std::int64_t number) const { return "integer " + std::to_string(number); }
  std::string operator()(double number) const { return c10::str("number ", number); }
  std::string operator()(bool flag) const { return flag ? "bool true" : "bool false"; }
  std::string operator()(const std::string& text) const { return "string \"" + text + '"'; }
  std::string operator()(const StateBytes& bytes) const { return std::to_string(bytes.size()) + " bytes"; }
  std::string operator()(const StateTree& tree) const {
    const auto& unread = tree.what_is_unread();
    return unread.empty() ? "tree of " + std::to_string(tree.size()) : unread + ", which is not read";
  }
  std::string operator()(const StateList& list) const { return "list of " + std::to_string(list.size()); }
  std::string operator()(const TensorShard& shard) const {
    return c10::str("shard of ", shard.elements.numel(), " elements from ", shard.begin, " on, of a tensor ",
                    shard.elements.scalar_type(), ' ', shard.shape);
  }
};

}  // namespace

namespace detail {

void refuse_state(const std::string& path, std::string_view kind, const StateValue* found) {
  throw CheckpointError("state", {.what = "state " + path + " does not fit",
                                  .expected = std::string(kind),
                                  .got = found ? found->describe() : "none of that name"});
}

}  // namespace detail

std::string_view StateValue::kind() const {
  static constexpr std::string_view kKinds[] = {"tensor", "integer", "number", "bool", "string",
                                                "bytes",  "tree",    "list",   "shard"};
  return kKinds[index()];
}

std::string StateValue::describe() const { return std::visit(Describe{}, *this); }

void StateValue::move_to(std::string path) {
  if (auto* tree = std::get_if<StateTree>(this)) tree->move_to(std::move(path));
  if (auto* list = std::get_if<StateList>(this)) list->move_to(std::move(path));
}

StateValue StateValue::with_tensors(const TensorChange& change) const {
  const auto changed = [&](const at::Tensor& tensor) { return tensor.defined() ? change(tensor) : tensor; };
  if (const auto* tensor = std::get_if<at::Tensor>(this)) return changed(*tensor);
  if (const auto* tree = std::get_if<StateTree>(this)) return tree->with_tensors(change);
  if (const auto* shard = std::get_if<TensorShard>(this))
    return TensorShard{changed(shard->elements), shard->shape, shard->begin};
  const auto* list = std::get_if<StateList>(this);
  if (list == nullptr) return *this;
  StateList copy;
  for (const auto& value : list->values()) copy.push_back(value.with_tensors(change));
  return copy;
}

void StateList::push_back(StateValue value) {
  value.move_to(path_of(values_.size()));
  values_.push_back(std::move(value));
}

std::size_t StateList::size() const { return values_.size(); }
std::span<const StateValue> StateList::values() const { return values_; }

const StateValue* StateList::find(std::size_t index) const {
  return index < values_.size() ? &values_[index] : nullptr;
}

std::string StateList::path_of(std::size_t index) const {
  return detail::below(path_, std::to_string(index));
}

void StateList::move_to(std::string path) {
  path_ = std::move(path);
  for (std::size_t i = 0; i < values_.size(); ++i) values_[i].move_to(path_of(i));
}

StateTree::StateTree(std::vector<Entry> entries) : entries_(std::move(entries)) {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (!index_.try_emplace(entries_[i].name, i).second)
      throw CheckpointError("state", {.what = "a tree has one name twice", .got = entries_[i].name});
  }
  move_to({});
}

StateTree StateTree::unread(std::string what) {
  StateTree tree;
  tree.unread_ = std::move(what);
  return tree;
}

void StateTree::set(std::string_view name, StateValue value) {
  value.move_to(path_of(name));
  if (const auto found = index_.find(name); found != index_.end()) {
    entries_[found->second].value = std::move(value);
  } else {
    entries_.push_back({std::string(name), std::move(value)});
    index_.emplace(name, entries_.size() - 1);
  }
}

const StateValue* StateTree::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &entries_[found->second].value;
}

void StateTree::copy_to(std::string_view name, const at::Tensor& target) const {
  const auto& tensor = get<at::Tensor>(name);
  const bool fits =
      tensor.defined() && tensor.sizes() == target.sizes() && tensor.scalar_type() == target.scalar_type();
  if (!fits) detail::refuse_state(path_of(name), tensor_text(target), find(name));
  const at::NoGradGuard no_grad;
  target.copy_(tensor);
}

bool StateTree::empty() const { return entries_.empty(); }
std::size_t StateTree::size() const { return entries_.size(); }
std::span<const StateTree::Entry> StateTree::entries() const { return entries_; }

StateTree StateTree::clone() const {
  return with_tensors([](const at::Tensor& tensor) { return tensor.clone(); });
}

StateTree StateTree::with_tensors(const TensorChange& change) const {
  auto copy = unread(unread_);
  for (const auto& [name, value] : entries_) copy.set(name, value.with_tensors(change));
  copy.move_to(path_);
  return copy;
}

Leaves StateTree::flatten() const {
  Leaves leaves;
  for (const auto& [name, value] : entries_) collect(detail::escaped(name), value, leaves);
  return leaves;
}

std::string StateTree::path_of(std::string_view name) const { return detail::below(path_, name); }

void StateTree::move_to(std::string path) {
  path_ = std::move(path);
  for (auto& [name, value] : entries_) value.move_to(path_of(name));
}

bool operator==(const StateTree& a, const StateTree& b) { return differences(a, b).empty(); }

namespace {

using Lines = std::vector<std::string>;

/// How many elements differ: by value, or bit by bit where LibTorch cannot compare values of such a type.
std::int64_t unequal(const at::Tensor& a, const at::Tensor& b) {
  const auto type = a.scalar_type();
  const bool can_compare = type <= at::kBFloat16 && type != at::kComplexHalf;
  if (can_compare) return a.ne(b).sum().item<std::int64_t>();
  const auto bytes = [&](const at::Tensor& tensor) {
    return tensor.flatten().view(at::kByte).view({a.numel(), static_cast<std::int64_t>(a.element_size())});
  };
  return bytes(a).ne(bytes(b)).any(1).sum().item<std::int64_t>();
}

class Comparison {
 public:
  void trees(const std::string& path, const StateTree& expected, const StateTree& got) {
    for (const auto& [name, value] : expected.entries())
      values(detail::below(path, name), &value, got.find(name));
    for (const auto& [name, value] : got.entries()) {
      if (!expected.contains(name)) values(detail::below(path, name), nullptr, &value);
    }
  }

  Lines lines;

 private:
  void report(const std::string& path, const std::string& expected, const std::string& got) {
    lines.push_back(path + ": expected " + expected + ", got " + got);
  }

  void values(const std::string& path, const StateValue* expected, const StateValue* got) {
    if (!expected || !got || expected->index() != got->index()) {
      report(path, expected ? expected->describe() : "nothing", got ? got->describe() : "nothing");
      return;
    }
    std::visit(
        [&](const auto& value) { same_kind(path, value, std::get<std::decay_t<decltype(value)>>(*got)); },
        *expected);
  }

  void same_kind(const std::string& path, const StateTree& expected, const StateTree& got) {
    if (expected.what_is_unread() != got.what_is_unread())
      return report(path, StateValue(expected).describe(), StateValue(got).describe());
    trees(path, expected, got);
  }

  void same_kind(const std::string& path, const StateList& expected, const StateList& got) {
    for (std::size_t i = 0; i < std::max(expected.size(), got.size()); ++i) {
      values(detail::below(path, std::to_string(i)), i < expected.size() ? &expected.values()[i] : nullptr,
             i < got.size() ? &got.values()[i] : nullptr);
    }
  }

  void same_kind(const std::string& path, double expected, double got) {
    if (std::bit_cast<std::uint64_t>(expected) != std::bit_cast<std::uint64_t>(got)) {
      report(path, StateValue(expected).describe(), StateValue(got).describe());
    }
  }

  void same_kind(const std::string& path, const at::Tensor& expected, const at::Tensor& got) {
    const bool alike = expected.defined() == got.defined() &&
                       (!expected.defined() ||
                        (expected.scalar_type() == got.scalar_type() && expected.sizes() == got.sizes()));
    if (!alike) return report(path, StateValue(expected).describe(), StateValue(got).describe());
    if (!expected.defined()) return;
    const at::NoGradGuard no_grad;
    const auto a = expected.cpu().contiguous(), b = got.cpu().contiguous();
    if (a.nbytes() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0) return;
    const auto differing = unequal(a, b);
    lines.push_back(c10::str(path, ": ", StateValue(expected).describe(), " differs in ", differing, " of ",
                             a.numel(), " elements", differing == 0 ? " by value, but not bit by bit" : ""));
  }

  void same_kind(const std::string& path, const TensorShard& expected, const TensorShard& got) {
    const bool alike = expected.shape == got.shape && expected.begin == got.begin;
    if (!alike) return report(path, StateValue(expected).describe(), StateValue(got).describe());
    same_kind(path, expected.elements, got.elements);
  }

  template <class T>
  void same_kind(const std::string& path, const T& expected, const T& got) {
    if (expected != got) report(path, StateValue(expected).describe(), StateValue(got).describe());
  }
};

}  // namespace

std::vector<std::string> differences(const StateTree& expected, const StateTree& got) {
  Comparison comparison;
  comparison.trees({}, expected, got);
  return std::move(comparison.lines);
}

}  // namespace lockstep
