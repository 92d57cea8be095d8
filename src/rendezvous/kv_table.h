// The table of a key-value store.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>

#include <lockstep/base/expected.h>

namespace lockstep::rendezvous {

/// Byte strings by key. Not thread-safe.
class KvTable {
 public:
  void set(const std::string& key, std::string value) { values_[key] = std::move(value); }
  /// Nothing where it is not set. Valid until the table changes.
  const std::string* find(const std::string& key) const;
  /// Adds to the decimal number under `key`, 0 where it is not set.
  /// @returns the sum, or why there is none
  Expected<std::int64_t> add(const std::string& key, std::int64_t delta);
  /// Sets `key` to `desired` where its value is `expected`, or where it is not set and `expected` is empty.
  /// @returns the value after; of a key that is not set, `expected`. Source: c10d's Store
  std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired);
  bool has_all(std::span<const std::string> keys) const;
  bool erase(const std::string& key) { return values_.erase(key) != 0; }
  std::int64_t size() const { return static_cast<std::int64_t>(values_.size()); }

 private:
  std::unordered_map<std::string, std::string> values_;
};

}  // namespace lockstep::rendezvous
