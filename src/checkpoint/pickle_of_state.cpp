#include <algorithm>
#include <charconv>
#include <optional>

#include <lockstep/base/error.h>
#include <lockstep/state/tensor_bytes.h>

#include "checkpoint/pickle_state.h"

namespace lockstep::detail {
namespace {

/// The integer that `name` is, if writing it again gives the same text.
std::optional<std::int64_t> integer(const std::string& name) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), value);
  const bool is_integer =
      error == std::errc() && end == name.data() + name.size() && std::to_string(value) == name;
  return is_integer ? std::optional(value) : std::nullopt;
}

}  // namespace

pickle::Dict PickleOfState::dict(const StateTree& tree) {
  if (!tree.what_is_unread().empty())
    throw CheckpointError("checkpoint", {.what = "state " + tree.path() + " cannot be written",
                                         .expected = "a value that was read",
                                         .got = tree.what_is_unread(),
                                         .hint = "set it to a value of your own, or leave it out"});
  pickle::Dict dict;
  const bool is_optimizer = tree.contains("state") && tree.contains("param_groups");
  for (const auto& [name, held] : tree.entries()) {
    const auto* state = std::get_if<StateTree>(&held);
    const bool has_integers = is_optimizer && name == "state" && state != nullptr;
    dict.set(name, has_integers ? pickle::Value(with_integer_keys(*state)) : value(held));
  }
  return dict;
}

pickle::Dict PickleOfState::with_integer_keys(const StateTree& tree) {
  pickle::Dict dict;
  for (const auto& [name, held] : tree.entries()) {
    const auto number = integer(name);
    dict.entries.emplace_back(number ? pickle::Value(*number) : pickle::Value(name), value(held));
  }
  return dict;
}

pickle::Value PickleOfState::value(const StateValue& value) {
  if (const auto* held = std::get_if<at::Tensor>(&value)) return tensor(*held);
  if (const auto* number = std::get_if<std::int64_t>(&value)) return *number;
  if (const auto* number = std::get_if<double>(&value)) return *number;
  if (const auto* flag = std::get_if<bool>(&value)) return *flag;
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* bytes = std::get_if<StateBytes>(&value)) return *bytes;
  if (const auto* tree = std::get_if<StateTree>(&value)) return dict(*tree);
  if (std::holds_alternative<TensorShard>(value))
    throw CheckpointError("checkpoint",
                          {.what = "a shard of a tensor cannot be written to a file for Python",
                           .hint = "write whole tensors: lockstep consolidate makes them of a checkpoint"});
  pickle::List list;
  for (const auto& item : std::get<StateList>(value).values()) list.push_back(this->value(item));
  return list;
}

pickle::Value PickleOfState::tensor(const at::Tensor& tensor) {
  if (!tensor.defined()) return pickle::None{};
  if (tensor.layout() != at::kStrided)
    throw CheckpointError("checkpoint", {.what = "a sparse tensor cannot be written to a file for Python"});
  const Identity identity(tensor.const_data_ptr(), tensor.scalar_type(), tensor.sizes().vec(),
                          tensor.strides().vec(), tensor.is_neg(), tensor.is_conj());
  const auto known = stored_.find(identity);
  if (known != stored_.end() && tensor.numel() > 0) return known->second;
  return stored_.insert_or_assign(identity, store(tensor)).first->second;
}

pickle::Tensor PickleOfState::store(const at::Tensor& tensor) {
  const auto& bytes = contiguous_.emplace_back(stored_form(tensor));
  const auto view = view_of(std::to_string(storages_.size()), bytes);
  storages_.push_back({.key = view.name, .bytes = view.bytes});
  const pickle::Storage storage{.key = view.name, .bytes = view.bytes.size(), .dtype = view.dtype};
  return {.storage = std::make_shared<const pickle::Storage>(storage),
          .dtype = view.dtype,
          .offset = 0,
          .shape = view.shape,
          .stride = bytes.strides().vec()};
}

}  // namespace lockstep::detail
