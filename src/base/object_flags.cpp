#include "base/object_flags.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <lockstep/base/error.h>

#include "base/option_keys.h"
#include "base/read_objects.h"

namespace lockstep {
namespace {

// The value of the entry `name` of `map`, which gets one where it has none.
OptionText& entry_of(OptionText& map, std::string_view name) {
  const auto found = std::ranges::find(map.names, name, &OptionText::text);
  const auto at = static_cast<std::size_t>(found - map.names.begin());
  if (found == map.names.end()) {
    map.names.push_back({.text = std::string(name)});
    map.items.emplace_back();
  }
  return map.items[at];
}

// An object that was given as a word, as a map.
void make_map(OptionText& object) {
  if (object.kind == OptionText::Kind::kMap) return;
  OptionText map{.kind = OptionText::Kind::kMap};
  entry_of(map, kClassPath) = std::move(object);
  object = std::move(map);
}

}  // namespace

bool ObjectFlags::has(std::string_view flag) const {
  return is_at_or_below(flag, key_) || flag == key_ + std::string(kAppends);
}

void ObjectFlags::take(const std::string& flag, const std::string& value) {
  if (flag.starts_with(key_ + "."))
    return take_option(flag, std::string_view(flag).substr(key_.size() + 1), value);
  const bool appends = flag != key_;
  if (!assignment_) {
    assignment_ = {.key = flag,
                   .value = {.kind = OptionText::Kind::kList},
                   .source = {.kind = Source::Kind::kFlag, .name = "--" + key_}};
  }
  if (!appends) assignment_->key = key_;
  auto items = object_items(*assignment_, {.text = value});
  std::ranges::move(items, std::back_inserter(assignment_->value.items));
}

void ObjectFlags::take_option(const std::string& flag, std::string_view option, const std::string& value) {
  if (!assignment_ || assignment_->value.items.empty()) {
    throw ConfigError("options", {.what = "flag --" + flag,
                                  .expected = "behind the flag that names its class",
                                  .got = "no --" + key_ + " before it",
                                  .hint = "--" + key_ + " NAME --" + flag + " " + value + ", or --" + key_ +
                                          "+ NAME to add to those of a file"});
  }
  const auto below = std::string(kInitArgs) + ".";
  if (option.starts_with(below)) option.remove_prefix(below.size());
  auto& object = assignment_->value.items.back();
  make_map(object);
  auto& init_args = entry_of(object, kInitArgs);
  init_args.kind = OptionText::Kind::kMap;
  OptionText text{.text = value};
  if (detail::means_null(text)) text = {.kind = OptionText::Kind::kNull};
  entry_of(init_args, option) = std::move(text);
}

}  // namespace lockstep
