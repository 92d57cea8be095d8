#include <algorithm>
#include <iterator>
#include <ranges>

#include <lockstep/formats/pickle.h>

namespace lockstep::pickle {

const Value* Dict::find(std::string_view key) const {
  const auto is_key = [&](const auto& entry) {
    const auto* text = entry.first.template as<std::string>();
    return text != nullptr && *text == key;
  };
  const auto found = std::find_if(entries.rbegin(), entries.rend(), is_key);
  return found == entries.rend() ? nullptr : &found->second;
}

void Dict::set(std::string_view key, Value value) {
  entries.emplace_back(std::string(key), std::move(value));
}

bool operator==(const Tensor& a, const Tensor& b) {
  return *a.storage == *b.storage && a.dtype == b.dtype && a.offset == b.offset && a.shape == b.shape &&
         a.stride == b.stride && a.is_conj == b.is_conj && a.is_neg == b.is_neg;
}

std::string_view Value::kind() const {
  static constexpr std::string_view kKinds[] = {"None",  "bool", "int",  "float",   "str",    "bytes",  "list",
                                                "tuple", "dict", "name", "storage", "tensor", "foreign"};
  return kKinds[held_.index()];
}

bool operator==(const Value& a, const Value& b) {
  const auto same = [&]<class T>(const T& held) {
    const T& other = std::get<T>(b.held_);
    if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, None>) {
      return held == other;
    } else {
      return held == other || *held == *other;
    }
  };
  return a.held_.index() == b.held_.index() && std::visit(same, a.held_);
}

}  // namespace lockstep::pickle
