// Conversions between the values of a pickle and StateTrees.
#include "checkpoint/state_formats.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>
#include <unordered_set>

#include <ATen/ops/_neg_view.h>
#include <ATen/ops/empty.h>

#include <lockstep/base/error.h>
#include <lockstep/state/tensor_bytes.h>

#include "formats/file_text.h"

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

/// The first text of `value`, which may be a list of them, that is no UTF-8; or null.
const std::string* text_beyond_utf8(const StateValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return is_utf8(*text) ? nullptr : text;
  if (const auto* list = std::get_if<StateList>(&value))
    for (const auto& item : list->values())
      if (const auto* text = text_beyond_utf8(item)) return text;
  return nullptr;
}

/// Whether PyTorch wants integers as the keys of what `tree` has as `name`.
bool has_integer_keys(const StateTree& tree, const std::string& name) {
  if (name == "state") return tree.contains("param_groups");                             // of an optimizer
  return name == "milestones" && tree.contains("gamma") && tree.contains("last_epoch");  // of MultiStepLR
}

}  // namespace

pickle::Dict PickleOfState::dict(const StateTree& tree, bool has_integers) {
  if (!tree.what_is_unread().empty())
    throw CheckpointError("checkpoint", {.what = "state " + tree.path() + " cannot be written",
                                         .expected = "a value that was read",
                                         .got = tree.what_is_unread(),
                                         .hint = "set it to a value of your own, or leave it out"});
  pickle::Dict dict;
  for (const auto& [name, held] : tree.entries()) {
    if (const auto* text = is_utf8(name) ? text_beyond_utf8(held) : &name)
      throw CheckpointError("checkpoint", {.what = "state " + in_quotes(tree.path() + "/" + name) +
                                                   " cannot be written to a file for Python",
                                           .expected = "names and texts in UTF-8",
                                           .got = in_quotes(*text),
                                           .hint = "store other bytes as StateBytes"});
    const auto number = has_integers ? integer(name) : std::nullopt;
    const auto* state = std::get_if<StateTree>(&held);
    dict.entries.emplace_back(
        number ? pickle::Value(*number) : pickle::Value(name),
        state ? pickle::Value(this->dict(*state, has_integer_keys(tree, name))) : value(held));
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

void StateOfPickle::refuse(const std::string& what, const std::string& got) const {
  throw CheckpointError("checkpoint",
                        {.what = what,
                         .expected = "dicts with texts or integers as keys, and in them tensors, "
                                     "numbers, texts, lists and dicts",
                         .got = got,
                         .where = where_,
                         .hint = "leave it out, or store it as text, when saving in Python"});
}

namespace {

// All of `bytes`, whatever views of them there are: an expanded one has more elements than there are bytes.
at::Tensor resolved(const at::Tensor& bytes, at::ScalarType dtype, bool is_conj, bool is_neg) {
  const auto count = bytes.numel() / static_cast<std::int64_t>(at::elementSize(dtype));
  auto all = at::empty({0}, dtype).set_(bytes.storage(), 0, {count}, {1});
  if (is_conj) all = all.conj();
  if (is_neg) all = at::_neg_view(all);
  return all.resolve_conj().resolve_neg();
}

}  // namespace

at::Tensor StateOfPickle::tensor(const pickle::Tensor& tensor) {
  auto [place, is_new] = storages_.try_emplace(tensor.storage->key);
  if (is_new) {
    const auto bytes = contents_.bytes_of(*tensor.storage);
    place->second = at::empty({static_cast<std::int64_t>(bytes.size())}, at::kByte);
    if (!bytes.empty()) std::memcpy(place->second.mutable_data_ptr(), bytes.data(), bytes.size());
  }
  const auto dtype = scalar_type(tensor.dtype);
  auto bytes = place->second;
  if (tensor.is_conj || tensor.is_neg) {
    auto& kept = resolved_[{tensor.storage->key, dtype, tensor.is_conj, tensor.is_neg}];
    if (!kept.defined()) kept = resolved(bytes, dtype, tensor.is_conj, tensor.is_neg);
    bytes = kept;
  }
  return at::empty({0}, dtype).set_(bytes.storage(), tensor.offset, tensor.shape, tensor.stride);
}

namespace {

std::string kind_in_words(const pickle::Value& value) {
  const auto* foreign = value.as<pickle::Foreign>();
  return foreign == nullptr ? "of kind " + std::string(value.kind()) : foreign->what;
}

std::optional<std::string> name_of(const pickle::Value& key) {
  if (const auto* text = key.as<std::string>()) return *text;
  if (const auto* number = key.as<std::int64_t>()) return std::to_string(*number);
  return std::nullopt;
}

/// Why the keys of `dict` cannot become distinct names, or an empty string.
std::string nameless(const pickle::Dict& dict) {
  std::unordered_set<std::string> names;
  for (const auto& [key, held] : dict.entries) {
    const auto name = name_of(key);
    if (!name) return "a dict with a key that is " + kind_in_words(key);
    if (!names.insert(*name).second) return "a dict with the key " + in_quotes(*name) + " twice";
  }
  return {};
}

}  // namespace

StateTree StateOfPickle::tree(const pickle::Dict& dict) {
  if (auto why = nameless(dict); !why.empty()) refuse("its entries have no names of their own", why);
  return named(dict);
}

StateTree StateOfPickle::named(const pickle::Dict& dict) {
  std::vector<StateTree::Entry> entries;  // StateTree::set() would search all of them
  for (const auto& [key, held] : dict.entries)
    if (held.as<pickle::None>() == nullptr) entries.push_back({*name_of(key), value(held)});
  return StateTree(std::move(entries));
}

template <class Items>
StateList StateOfPickle::list(const Items& items) {
  StateList list;
  for (const auto& item : items) list.push_back(value(item));
  return list;
}

StateValue StateOfPickle::value(const pickle::Value& value) {
  if (const auto* flag = value.as<bool>()) return *flag;
  if (const auto* number = value.as<std::int64_t>()) return *number;
  if (const auto* number = value.as<double>()) return *number;
  if (const auto* text = value.as<std::string>()) return *text;
  if (const auto* bytes = value.as<pickle::Bytes>()) return *bytes;
  if (const auto* name = value.as<pickle::Name>()) return name->text;
  if (const auto* held = value.as<pickle::List>()) return list(*held);
  if (const auto* held = value.as<pickle::Tuple>()) return list(held->items);
  if (const auto* held = value.as<pickle::Dict>()) {
    auto why = nameless(*held);
    return why.empty() ? named(*held) : StateTree::unread(std::move(why));
  }
  if (const auto* held = value.as<pickle::Tensor>()) return tensor(*held);
  if (value.as<pickle::None>() != nullptr) return StateTree();
  if (const auto* held = value.as<pickle::Foreign>()) return StateTree::unread(held->what);
  return StateTree::unread("a " + std::string(value.kind()));
}

}  // namespace lockstep::detail
