#include "checkpoint/weight_names.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/base/error.h>

#include "formats/file_text.h"

namespace lockstep {

WeightNames below(std::string_view submodule, WeightNames names) {
  for (auto& row : names) {
    if (!row.ours.empty()) row.ours = std::string(submodule) + "." + row.ours;
  }
  return names;
}

}  // namespace lockstep

namespace lockstep::detail {
namespace {

/// The part of a dotted name before its first dot, which is taken off, with the dot.
std::string_view next_part(std::string_view& name) {
  const auto part = name.substr(0, name.find('.'));
  name.remove_prefix(std::min(name.size(), part.size() + 1));
  return part;
}

std::ptrdiff_t parts_of(std::string_view name) { return 1 + std::ranges::count(name, '.'); }

std::ptrdiff_t stars_of(std::string_view pattern) {
  std::ptrdiff_t stars = 0;
  while (!pattern.empty()) stars += next_part(pattern) == "*";
  return stars;
}

/// What the stars of `pattern` stand for in `name`; nothing when it does not fit.
std::optional<std::vector<std::string_view>> match_parts(std::string_view pattern, std::string_view name) {
  if (parts_of(pattern) != parts_of(name)) return std::nullopt;
  std::vector<std::string_view> held;
  while (!pattern.empty()) {
    const auto wanted = next_part(pattern), part = next_part(name);
    if (wanted == "*")
      held.push_back(part);
    else if (wanted != part)
      return std::nullopt;
  }
  return held;
}

std::string filled(std::string_view pattern, const std::vector<std::string_view>& held) {
  std::string name;
  auto next = held.begin();
  while (!pattern.empty()) {
    const auto part = next_part(pattern);
    if (!name.empty()) name += '.';
    name += part == "*" && next != held.end() ? *next++ : part;
  }
  return name;
}

TranslatedName translated(const WeightNames& names, const std::string& name, std::string WeightName::*from,
                          std::string WeightName::*to) {
  for (const auto& row : names) {
    if ((row.*from).empty()) continue;
    if (const auto held = match_parts(row.*from, name))
      return {.name = filled(row.*to, *held), .transpose = row.transpose};
  }
  return {.name = name};
}

}  // namespace

void check_rows(const WeightNames& names) {
  for (const auto& row : names) {
    const bool fits = row.ours.empty() || stars_of(row.theirs) == stars_of(row.ours);
    if (fits && !row.theirs.empty()) continue;
    throw ConfigError("checkpoint", {.what = "a row of a table of names",
                                     .expected = "two names with as many parts that are *",
                                     .got = in_quotes(row.theirs) + " and " + in_quotes(row.ours)});
  }
}

TranslatedName to_ours(const WeightNames& names, const std::string& theirs) {
  return translated(names, theirs, &WeightName::theirs, &WeightName::ours);
}

TranslatedName to_theirs(const WeightNames& names, const std::string& ours) {
  return translated(names, ours, &WeightName::ours, &WeightName::theirs);
}

StoredTensor transposed(const std::string& what, StoredTensor tensor) {
  if (tensor.shape.size() != 2)
    throw CheckpointError("checkpoint", {.what = what + " is to be transposed",
                                         .expected = "2 dimensions",
                                         .got = std::to_string(tensor.shape.size()) + " dimensions"});
  std::swap(tensor.shape[0], tensor.shape[1]);
  tensor.read = [read = std::move(tensor.read)] { return read().t().contiguous(); };
  return tensor;
}

RenamedWeights renamed(const StoredWeights& weights, const WeightNames& names, const std::string& where) {
  RenamedWeights all;
  for (const auto& [theirs, stored] : weights) {
    const auto [ours, transpose] = to_ours(names, theirs);
    if (ours.empty()) continue;
    auto tensor = transpose ? transposed(where + ", tensor '" + theirs + "'", stored) : stored;
    const auto [place, is_new] = all.try_emplace(ours, RenamedTensor{theirs, std::move(tensor)});
    if (is_new) continue;
    throw CheckpointError("checkpoint",
                          {.what = where + ": two tensors get the name '" + ours + "' in the module",
                           .got = "'" + place->second.theirs + "' and '" + theirs + "'"});
  }
  return all;
}

}  // namespace lockstep::detail
