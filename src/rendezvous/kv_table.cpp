#include "rendezvous/kv_table.h"

#include <algorithm>
#include <charconv>

namespace lockstep::rendezvous {

const std::string* KvTable::find(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

Expected<std::int64_t> KvTable::add(const std::string& key, std::int64_t delta) {
  std::int64_t sum = 0;
  if (const auto* value = find(key)) {
    const auto* const end = value->data() + value->size();
    const auto [rest, error] = std::from_chars(value->data(), end, sum);
    if (error != std::errc() || rest != end) return Unexpected{"the value of " + key + " is no number"};
  }
  if (__builtin_add_overflow(sum, delta, &sum)) return Unexpected{"the number of " + key + " is too large"};
  set(key, std::to_string(sum));
  return sum;
}

std::string KvTable::compare_set(const std::string& key, const std::string& expected,
                                 const std::string& desired) {
  const auto* value = find(key);
  const bool matches = value == nullptr ? expected.empty() : *value == expected;
  if (!matches) return value == nullptr ? expected : *value;
  set(key, desired);
  return desired;
}

bool KvTable::has_all(std::span<const std::string> keys) const {
  return std::ranges::all_of(keys, [&](const std::string& key) { return values_.contains(key); });
}

}  // namespace lockstep::rendezvous
