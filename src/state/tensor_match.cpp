#include "state/tensor_match.h"

#include <c10/util/StringUtil.h>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>

namespace lockstep {
namespace {

constexpr std::string_view kNone = "none";

void add_clause(std::string& text, const std::string& name, std::string_view expected, std::string_view got) {
  text.append(text.empty() ? "" : "; ").append(name);
  text.append(": expected ").append(expected).append(", got ").append(got);
}

std::string in_a_row(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) text.append(text.empty() ? "" : ", ").append(name);
  return text;
}

// "tensor Float [3]" and "tensor BFloat16 [3]": copying casts, as in PyTorch. What trains in 16 bits may have
// been saved from wider shards.
bool fits(const std::string& own, const std::string& offered) {
  if (own == offered) return true;
  const auto shape_of = [](const std::string& kind) -> std::string {
    for (const std::string_view type : {"tensor Float ", "tensor BFloat16 ", "tensor Half "}) {
      if (kind.starts_with(type)) return kind.substr(type.size());
    }
    return {};
  };
  const auto shape = shape_of(own);
  return !shape.empty() && shape == shape_of(offered);
}

}  // namespace

void warn_of(const IncompatibleKeys& keys, const std::string& source) {
  const auto say = [](const std::string& who, const std::vector<std::string>& names) {
    if (!names.empty()) log_warning("found keys that are " + who + ": " + in_a_row(names));
  };
  say("in the model but not in " + source, keys.missing_keys);
  say("not in the model but in " + source, keys.unexpected_keys);
}

namespace detail {

std::string tensor_kind(at::ScalarType type, at::IntArrayRef shape) {
  return c10::str("tensor ", type, ' ', shape);
}

IncompatibleKeys match_tensors(const TensorKinds& own, const TensorKinds& offered, bool strict,
                               std::string_view what, std::string_view where) {
  IncompatibleKeys keys;
  std::string misfits;
  for (const auto& [name, kind] : own) {
    const auto found = offered.find(name);
    if (found == offered.end()) keys.missing_keys.push_back(name);
    if (found != offered.end() && !fits(kind, found->second)) add_clause(misfits, name, kind, found->second);
  }
  for (const auto& [name, kind] : offered) {
    if (!own.contains(name)) keys.unexpected_keys.push_back(name);
  }
  if (strict) {
    for (const auto& name : keys.missing_keys) add_clause(misfits, name, own.at(name), kNone);
    for (const auto& name : keys.unexpected_keys) add_clause(misfits, name, kNone, offered.at(name));
  }
  if (misfits.empty()) return keys;
  throw CheckpointError("state", {.what = std::string(what) + " does not fit the module: " + misfits,
                                  .where = std::string(where),
                                  .hint = "load what was saved for the same module"});
}

}  // namespace detail
}  // namespace lockstep
