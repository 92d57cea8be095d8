#include <cstring>
#include <optional>
#include <unordered_set>

#include <ATen/ops/_neg_view.h>
#include <ATen/ops/empty.h>

#include <lockstep/base/error.h>
#include <lockstep/state/tensor_bytes.h>

#include "checkpoint/pickle_state.h"
#include "formats/in_quotes.h"

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
  view.set_(place->second.storage(), tensor.offset, tensor.shape, tensor.stride);
  if (tensor.is_conj) view = view.conj();
  if (tensor.is_neg) view = at::_neg_view(view);
  return view.resolve_conj().resolve_neg();
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

/// Why the entries of `dict` cannot be told apart by names, or an empty string.
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
  std::vector<StateTree::Entry> entries;  // StateTree::set() would look through all of them for each
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
