// StateTree: the state of any part of a run, for checkpoints.
//
// A tree of names, in order. Its leaves are tensors, shards of tensors, numbers, strings and bytes; its
// branches are trees and lists. A tree taken from a part aliases that part's tensors: taking it costs no
// copy, and clone() makes it a snapshot.
//
//   StateTree state;                                    // give
//   state.set("best", best_);
//   state.set("average", average_tensor_);
//   best_ = state.get<double>("best");                  // take
//   state.copy_to("average", average_tensor_);          // in place
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>

namespace lockstep {

struct StateValue;

/// Makes another tensor of one.
using TensorChange = std::function<at::Tensor(const at::Tensor&)>;

/// Bytes of a binary format that StateTree does not interpret.
using StateBytes = std::vector<std::byte>;

/// This rank's part of a tensor that is spread over ranks: a run of its elements, in row-major order.
struct TensorShard {
  at::Tensor elements;              ///< of one dimension; none where this rank has no part
  std::vector<std::int64_t> shape;  ///< of the whole tensor
  std::int64_t begin = 0;           ///< where the run begins in the whole
};

namespace detail {
/// Throws the error that `path` has no value of `kind`, but `found`, or nothing.
[[noreturn]] LOCKSTEP_API void refuse_state(const std::string& path, std::string_view kind,
                                            const StateValue* found);
}  // namespace detail

/// Values by number. A value itself; copies share tensors.
class LOCKSTEP_API StateList {
 public:
  StateList() = default;
  /// Of anything that a StateValue can be made of.
  template <class Range>
  explicit StateList(const Range& values);

  /// Adds a value at the end.
  void push_back(StateValue value);
  /// How many values there are.
  std::size_t size() const;
  /// The values, in order.
  std::span<const StateValue> values() const;

  /// The value number `index`, as StateTree::get.
  template <class T>
  const T& get(std::size_t index) const;

 private:
  friend StateValue;
  friend class StateTree;
  const StateValue* find(std::size_t index) const;
  std::string path_of(std::size_t index) const;
  void move_to(std::string path);

  std::string path_;  // from the root of the tree that holds it: for errors
  std::vector<StateValue> values_;
};

/// Values by name. A value itself; copies share tensors.
class LOCKSTEP_API StateTree {
 public:
  struct Entry;

  StateTree() = default;
  /// Of entries whose names differ. @throws CheckpointError when two are equal
  explicit StateTree(std::vector<Entry> entries);

  /// A placeholder for a value of a file that cannot be read, such as an object of a Python class. It is
  /// empty; reading it as a value throws an error with `what` it is, and writing it is refused.
  static StateTree unread(std::string what);
  /// The argument of unread(); empty for a real tree.
  const std::string& what_is_unread() const { return unread_; }

  /// Sets the value under `name`: replaces an existing one, or adds it at the end.
  void set(std::string_view name, StateValue value);

  /// The value under `name`: T is at::Tensor, std::int64_t, double, bool, std::string, StateBytes,
  /// StateTree, StateList or TensorShard. Valid until the tree changes.
  /// @throws CheckpointError naming the path from the root, the kind expected and what is there
  template <class T>
  const T& get(std::string_view name) const;

  /// The list under `name`, each value a T. @throws CheckpointError as get
  template <class T>
  std::vector<T> get_all(std::string_view name) const;

  /// Copies the tensor under `name` into the memory of `target`.
  /// @throws CheckpointError as get, and when shape or element type differ; nothing is copied then
  void copy_to(std::string_view name, const at::Tensor& target) const;

  /// The value under `name`, or null.
  const StateValue* find(std::string_view name) const;
  /// Whether there is an entry of that name.
  bool contains(std::string_view name) const { return find(name) != nullptr; }

  /// Whether there is no entry.
  bool empty() const;
  /// How many entries there are.
  std::size_t size() const;
  /// Names and values, in order.
  std::span<const Entry> entries() const;
  /// The path of this tree within the one that it was put into: `optimizer/groups`. Empty at the root.
  const std::string& path() const { return path_; }

  /// The same tree with tensors of its own.
  StateTree clone() const;
  /// The same tree with what `change` makes of each tensor, those of shards included, in order.
  StateTree with_tensors(const TensorChange& change) const;

  /// Every leaf by its path: names and, in lists, numbers, with `/` between them (a `/` in a name is
  /// written `~1`, a `~` is `~0`, as in JSON pointers). Empty trees and lists have no leaves; unread() is
  /// one.
  std::vector<std::pair<std::string, const StateValue*>> flatten() const;

  /// Whether both have the same names and kinds, in any order, with the same bits.
  LOCKSTEP_API friend bool operator==(const StateTree& a, const StateTree& b);

 private:
  friend StateValue;
  friend class StateList;
  std::string path_of(std::string_view name) const;
  void move_to(std::string path);

  std::string path_;  // of no account in comparisons
  std::string unread_;
  std::vector<Entry> entries_;
  std::map<std::string, std::size_t, std::less<>> index_;  // their numbers, by name
};

/// One value.
struct LOCKSTEP_API StateValue : std::variant<at::Tensor, std::int64_t, double, bool, std::string, StateBytes,
                                              StateTree, StateList, TensorShard> {
  using variant::variant;

  /// "tensor", "integer", "number", "bool", "string", "bytes", "tree", "list" or "shard".
  std::string_view kind() const;
  /// What errors call a value of this type.
  template <class T>
  static std::string_view kind_of();

  /// In words, for errors: `tensor Float [2, 3]`, `integer 7`, `tree of 3`.
  std::string describe() const;

  void move_to(std::string path);  ///< sets the path, also of branches
  /// The value with each tensor in it replaced by what `change` makes of it.
  StateValue with_tensors(const TensorChange& change) const;
};

/// One entry of a StateTree.
struct StateTree::Entry {
  std::string name;  ///< of the entry
  StateValue value;  ///< what it holds
};

/// How `got` differs from `expected`, a line for each path: `epoch: expected integer 3, got integer 4`.
/// Empty when they are equal.
LOCKSTEP_API std::vector<std::string> differences(const StateTree& expected, const StateTree& got);

template <class T>
std::string_view StateValue::kind_of() {
  static const StateValue sample{T{}};
  return sample.kind();
}

template <class Range>
StateList::StateList(const Range& values) {
  for (const auto& value : values) push_back(StateValue(value));
}

namespace detail {
/// `value` as a T, if it is one that can be read.
template <class T>
const T* held_in(const StateValue* value) {
  const auto* held = value ? std::get_if<T>(value) : nullptr;
  if constexpr (std::is_same_v<T, StateTree>)
    if (held && !held->what_is_unread().empty()) return nullptr;
  return held;
}
}  // namespace detail

template <class T>
const T& StateList::get(std::size_t index) const {
  const auto* value = find(index);
  if (const auto* held = detail::held_in<T>(value)) return *held;
  detail::refuse_state(path_of(index), StateValue::kind_of<T>(), value);
}

template <class T>
const T& StateTree::get(std::string_view name) const {
  const auto* value = find(name);
  if (const auto* held = detail::held_in<T>(value)) return *held;
  detail::refuse_state(path_of(name), StateValue::kind_of<T>(), value);
}

template <class T>
std::vector<T> StateTree::get_all(std::string_view name) const {
  const auto& list = get<StateList>(name);
  std::vector<T> values;
  for (std::size_t i = 0; i < list.size(); ++i) values.push_back(list.get<T>(i));
  return values;
}

}  // namespace lockstep
