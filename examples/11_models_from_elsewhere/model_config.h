// The config.json of a folder of Hugging Face: what a model's sizes and settings are read from.
#pragma once

#include <lockstep/lockstep.h>

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <string>

namespace elsewhere {

namespace ls = lockstep;

/// Values by key. Errors are ConfigErrors that name file and key.
class ModelConfig {
 public:
  /// @throws IoError, CheckpointError when there is no config.json, or it is no JSON
  explicit ModelConfig(const std::filesystem::path& folder);

  const std::filesystem::path& file() const { return file_; }
  bool has(const std::string& key) const { return values_.contains(key); }

  /// An integer of at least 1; obligatory without `fallback`.
  std::int64_t size(const std::string& key) const;
  std::int64_t size(const std::string& key, std::int64_t fallback) const;
  /// A number, also one that is written as an integer.
  double number(const std::string& key, double fallback) const;
  bool flag(const std::string& key, bool fallback) const;
  std::string text(const std::string& key) const;
  std::string text(const std::string& key, const std::string& fallback) const;
  /// The object under `key`; none: an empty one.
  ModelConfig object(const std::string& key) const;
  /// How many names the object under `key` has; none: `fallback`.
  std::int64_t count(const std::string& key, std::int64_t fallback) const;

  /// The text under `key`, which must be one of `known`. @throws ConfigError
  std::string one_of(const std::string& key, const std::string& fallback,
                     std::initializer_list<const char*> known) const;
  /// Refuses a model that differs from what the modules here compute. @throws ConfigError unless it is so
  void require_flag(const std::string& key, bool wanted) const;
  /// @throws ConfigError unless `key`, a size, is a multiple of `divisor`, the value of `divisor_key`
  void require_multiple(const std::string& key, std::int64_t value, const std::string& divisor_key,
                        std::int64_t divisor) const;

  [[noreturn]] void refuse(const std::string& key, const std::string& expected, const std::string& got) const;

 private:
  ModelConfig(std::filesystem::path file, std::string within, ls::StateTree values);
  [[noreturn]] void refuse_found(const std::string& key, const std::string& expected) const;

  std::filesystem::path file_;
  std::string within_ = {};  // "rope_scaling." within that object
  ls::StateTree values_;
};

}  // namespace elsewhere
