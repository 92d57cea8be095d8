#include <cstring>
#include <unordered_set>

#include <ATen/ops/empty.h>

#include <lockstep/base/error.h>
#include <lockstep/state/tensor_bytes.h>

#include "checkpoint/pickle_state.h"

namespace lockstep::detail {

void StateOfPickle::refuse(const std::string& what, const std::string& got) const {
  throw CheckpointError("checkpoint",
                        {.what = what,
                         .expected = "dicts with texts or integers as keys, and in them tensors, "
                                     "numbers, texts, lists and dicts",
                         .got = got,
                         .where = where_,
                         .hint = "leave it out, or store it as text, when saving in Python"});
}

at::Tensor StateOfPickle::tensor(const pickle::Tensor& tensor) {
  auto [place, is_new] = storages_.try_emplace(tensor.storage->key);
  if (is_new) {
    const auto bytes = contents_.bytes_of(*tensor.storage);
    place->second = at::empty({static_cast<std::int64_t>(bytes.size())}, at::kByte);
    if (!bytes.empty()) std::memcpy(place->second.mutable_data_ptr(), bytes.data(), bytes.size());
  }
  auto view = at::empty({0}, scalar_type(tensor.dtype));
  return view.set_(place->second.storage(), tensor.offset, tensor.shape, tensor.stride);
}

std::string StateOfPickle::name_of(const pickle::Value& key) const {
  if (const auto* text = key.as<std::string>()) return *text;
  if (const auto* number = key.as<std::int64_t>()) return std::to_string(*number);
  refuse("a key of a dict is neither text nor an integer", std::string(key.kind()));
}

StateTree StateOfPickle::tree(const pickle::Dict& dict) {
  std::vector<StateTree::Entry> entries;  // StateTree::set() would look through all of them for each
  std::unordered_set<std::string> names;
  for (const auto& [key, held] : dict.entries) {
    const auto name = name_of(key);
    if (!names.insert(name).second) refuse("a dict has a key twice", name);
    if (held.as<pickle::None>() == nullptr) entries.push_back({name, value(held)});
  }
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
  if (const auto* held = value.as<pickle::Dict>()) return tree(*held);
  if (const auto* held = value.as<pickle::Tensor>()) return tensor(*held);
  if (value.as<pickle::None>() != nullptr) return StateTree();
  refuse("a value is none that a checkpoint can hold", std::string(value.kind()));
}

}  // namespace lockstep::detail
