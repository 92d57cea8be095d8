#include "model_config.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace elsewhere {

ModelConfig::ModelConfig(const std::filesystem::path& folder)
    : file_(folder / "config.json"), values_(ls::read_json(file_)) {}

ModelConfig::ModelConfig(std::filesystem::path file, std::string within, ls::StateTree values)
    : file_(std::move(file)), within_(std::move(within)), values_(std::move(values)) {}

std::int64_t ModelConfig::size(const std::string& key) const {
  const auto* value = values_.find(key);
  const auto* number = value == nullptr ? nullptr : std::get_if<std::int64_t>(value);
  if (number == nullptr || *number < 1) refuse_found(key, "an integer of at least 1");
  return *number;
}

std::int64_t ModelConfig::size(const std::string& key, std::int64_t fallback) const {
  return has(key) ? size(key) : fallback;
}

double ModelConfig::number(const std::string& key, double fallback) const {
  const auto* value = values_.find(key);
  if (value == nullptr) return fallback;
  if (const auto* integer = std::get_if<std::int64_t>(value)) return static_cast<double>(*integer);
  if (const auto* number = std::get_if<double>(value)) return *number;
  refuse_found(key, "a number");
}

bool ModelConfig::flag(const std::string& key, bool fallback) const {
  const auto* value = values_.find(key);
  if (value == nullptr) return fallback;
  if (const auto* flag = std::get_if<bool>(value)) return *flag;
  refuse_found(key, "true or false");
}

std::string ModelConfig::text(const std::string& key) const {
  const auto* value = values_.find(key);
  const auto* text = value == nullptr ? nullptr : std::get_if<std::string>(value);
  if (text == nullptr) refuse_found(key, "a text");
  return *text;
}

std::string ModelConfig::text(const std::string& key, const std::string& fallback) const {
  return has(key) ? text(key) : fallback;
}

ModelConfig ModelConfig::object(const std::string& key) const {
  const auto* value = values_.find(key);
  const ls::StateTree none;
  const auto* tree = value == nullptr ? &none : std::get_if<ls::StateTree>(value);
  if (tree == nullptr) refuse_found(key, "an object");
  return {file_, within_ + key + ".", *tree};
}

std::int64_t ModelConfig::count(const std::string& key, std::int64_t fallback) const {
  return has(key) ? static_cast<std::int64_t>(object(key).values_.size()) : fallback;
}

std::string ModelConfig::one_of(const std::string& key, const std::string& fallback,
                                std::initializer_list<const char*> known) const {
  auto found = text(key, fallback);
  if (std::ranges::find(known, found) != known.end()) return found;
  std::string expected;
  for (const auto* name : known) expected += (expected.empty() ? "" : ", ") + std::string(name);
  refuse(key, expected, found);
}

void ModelConfig::require_flag(const std::string& key, bool wanted) const {
  if (flag(key, wanted) != wanted) refuse(key, wanted ? "true" : "false", wanted ? "false" : "true");
}

void ModelConfig::require_multiple(const std::string& key, std::int64_t value, const std::string& divisor_key,
                                   std::int64_t divisor) const {
  if (value % divisor != 0)
    refuse(key, "a multiple of " + divisor_key + " = " + std::to_string(divisor), std::to_string(value));
}

void ModelConfig::refuse(const std::string& key, const std::string& expected, const std::string& got) const {
  throw ls::ConfigError(
      "model", {.what = "'" + file_.string() + "': " + within_ + key, .expected = expected, .got = got});
}

void ModelConfig::refuse_found(const std::string& key, const std::string& expected) const {
  const auto* value = values_.find(key);
  refuse(key, expected, value == nullptr ? "nothing" : value->describe());
}

}  // namespace elsewhere
