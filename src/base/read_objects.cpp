#include "base/read_objects.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/base/option_type.h>
#include <lockstep/base/options.h>

#include "base/format.h"
#include "base/option_keys.h"

namespace lockstep {
namespace {

// One item of a list as it was given, and where.
struct GivenObject {
  std::string key;  // `trainer.callbacks[1]`
  const Assignment& assignment;
  const OptionText& text;  // a word, or a map

  std::string place_of(const OptionText& part) const { return place(assignment, part.line, part.column); }

  /// The value of an entry, or null.
  const OptionText* entry(std::string_view name) const {
    for (std::size_t i = 0; i < text.names.size(); ++i) {
      if (text.names[i].text == name) return &text.items[i];
    }
    return nullptr;
  }
};

[[noreturn]] void refuse_item(const std::string& key, const std::string& got, const std::string& where,
                              const std::string& hint = {}) {
  throw ConfigError("options", {.what = key,
                                .expected = "the name of a class, or {class_path: NAME, init_args: {...}}",
                                .got = got,
                                .where = where,
                                .hint = hint});
}

constexpr const char* kHydra = "_target_";
constexpr const char* kInsteadOfHydra =
    "_target_ is Hydra's: name the class by class_path, and put its options into init_args";

void check_entries(const GivenObject& given) {
  for (const auto& name : given.text.names) {
    if (name.text == kClassPath || name.text == kInitArgs) continue;
    refuse_item(
        given.key, "an entry " + name.text, given.place_of(name),
        given.entry(kHydra) != nullptr ? kInsteadOfHydra : "options of the class are entries of init_args");
  }
}

// The word that names the class.
const OptionText& class_path_of(const GivenObject& given) {
  if (given.text.kind == OptionText::Kind::kScalar) return given.text;
  const auto* path = given.entry(kClassPath);
  if (given.text.kind != OptionText::Kind::kMap || path == nullptr)
    refuse_item(given.key,
                given.text.kind == OptionText::Kind::kMap ? "a map without class_path" : shown(given.text),
                given.place_of(given.text));
  if (path->kind != OptionText::Kind::kScalar)
    refuse_item(joined_key(given.key, kClassPath), shown(*path), given.place_of(*path));
  return *path;
}

// The name that was meant: by its last word, as modules' names have long ones before it.
std::optional<std::string> nearest_class(const std::string& path, std::span<const std::string> names) {
  const auto last_word = [](const std::string& name) { return name.substr(name.find_last_of(".:") + 1); };
  std::vector<std::string> words;
  for (const auto& name : names) words.push_back(last_word(name));
  const auto near = nearest_name(last_word(path), words);
  if (!near) return nearest_name(path, names);
  return names[static_cast<std::size_t>(std::ranges::find(words, *near) - words.begin())];
}

[[noreturn]] void refuse_class(const OptionObjects& list, const GivenObject& given, const OptionText& path) {
  const auto names = list.class_names();
  const auto near = did_you_mean(nearest_class(path.text, names));
  throw ConfigError("options", {.what = given.key + " names an unknown class",
                                .expected = detail::one_of(names),
                                .got = shown(path),
                                .where = given.place_of(path),
                                .hint = near + (near.empty() ? "" : "; ") + list.own_hint()});
}

const ObjectClass& class_of(const OptionObjects& list, const GivenObject& given) {
  const auto& path = class_path_of(given);
  const auto* found = list.find(path.text);
  if (found == nullptr) refuse_class(list, given, path);
  if (found->unavailable.empty()) return *found;
  throw ConfigError("options", {.what = given.key + " names " + found->name + ", which is not available",
                                .where = given.place_of(path),
                                .hint = found->unavailable});
}

// The entries of `map` as assignments below `key`, those of maps in it, too.
void add_entries(const std::string& key, const OptionText& map, const Assignment& around,
                 std::vector<Assignment>& assignments) {
  for (std::size_t i = 0; i < map.items.size(); ++i) {
    const auto& name = map.names[i];
    const auto& value = map.items[i];
    const auto below = joined_key(key, name.text);
    if (value.kind == OptionText::Kind::kMap && !value.items.empty()) {
      add_entries(below, value, around, assignments);
      continue;
    }
    Assignment assignment{below, value, around.source};
    if (name.line > 0) assignment.source.line = name.line;
    if (name.line > 0) assignment.source.column = name.column;
    assignments.push_back(std::move(assignment));
  }
}

// Takes out those options that the class has elsewhere, where they say nothing.
void take_other_options(const std::string& key, const ObjectClass& one,
                        std::vector<Assignment>& assignments) {
  std::erase_if(assignments, [&](const Assignment& assignment) {
    const auto other = std::ranges::find_if(one.other_options, [&](const OtherOption& option) {
      return is_at_or_below(assignment.key, joined_key(key, option.name));
    });
    if (other == one.other_options.end()) return false;
    const auto& value = assignment.value;
    const bool is_default = value.kind == OptionText::Kind::kScalar &&
                            detail::same_name(value.text, other->value) &&
                            assignment.key == joined_key(key, other->name);
    if (is_default || detail::means_null(value)) return true;
    throw ConfigError("options", {.what = assignment.key,
                                  .expected = other->value.empty() ? "null" : other->value + ", or null",
                                  .got = shown(value),
                                  .where = shown(assignment.source),
                                  .hint = other->why});
  });
}

// What describes one object's options.
struct ObjectOptions {
  const ObjectClass& one;
  std::any& options;
};

void describe(OptionVisitor& visitor, ObjectOptions& object) { object.one.describe(visitor, object.options); }

// Of a class's options all names can be said.
void refuse_unknown_option(const ObjectClass& one, const std::string& key,
                           const std::vector<std::string>& known, const Assignment& assignment) {
  const auto is_of = [&](const std::string& option) {
    return is_at_or_below(assignment.key, option) || is_at_or_below(option, assignment.key);
  };
  if (std::ranges::any_of(known, is_of)) return;
  std::vector<std::string> names;
  for (const auto& option : known) names.push_back(option.substr(key.size() + 1));
  throw ConfigError("options", {.what = "unknown key " + assignment.key,
                                .expected = names.empty() ? "no options of " + one.name
                                                          : "an option of " + one.name + ": " + joined(names),
                                .where = shown(assignment.source),
                                .hint = did_you_mean(nearest_name(assignment.key, known))});
}

std::any options_of(const ObjectClass& one, const GivenObject& given) {
  auto options = one.options;
  const auto* init_args = given.text.kind == OptionText::Kind::kMap ? given.entry(kInitArgs) : nullptr;
  if (init_args == nullptr || detail::means_null(*init_args)) return options;
  const auto key = joined_key(given.key, kInitArgs);
  if (init_args->kind != OptionText::Kind::kMap)
    throw ConfigError("options", {.what = key,
                                  .expected = "a map of options of " + one.name,
                                  .got = shown(*init_args),
                                  .where = given.place_of(*init_args)});
  std::vector<Assignment> assignments;
  add_entries(key, *init_args, given.assignment, assignments);
  take_other_options(key, one, assignments);
  ObjectOptions object{one, options};
  OptionTree tree;
  tree.add(key, object);
  const auto known = tree.keys();
  for (const auto& assignment : assignments) refuse_unknown_option(one, key, known, assignment);
  tree.apply(assignments);
  return options;
}

// `[train] EarlyStopping: monitor; expected ...` without the module.
std::string without_origin(std::string_view text) {
  const auto end = text.starts_with('[') ? text.find("] ") : text.npos;
  return std::string(end == text.npos ? text : text.substr(end + 2));
}

// What is wrong with options together shows when an object is made.
void try_to_make(const ObjectClass& one, const GivenObject& given, const std::any& options) {
  try {
    (void)one.make(options);
  } catch (const std::exception& error) {
    throw ConfigError("options", {.what = given.key + ": " + without_origin(error.what()),
                                  .where = given.place_of(class_path_of(given))});
  }
}

NamedObject read_object(const OptionObjects& list, const GivenObject& given) {
  if (given.text.kind == OptionText::Kind::kMap) check_entries(given);
  const auto& one = class_of(list, given);
  NamedObject object{one.name, options_of(one, given)};
  try_to_make(one, given, object.options);
  return object;
}

bool is_flow(const OptionText& text) {
  return text.kind == OptionText::Kind::kScalar && !text.quoted &&
         (text.text.starts_with('[') || text.text.starts_with('{'));
}

}  // namespace

void refuse_map_of_objects(const std::string& key, const Assignment& below) {
  const auto entry = below.key.substr(key.size() + 1);
  const auto first = entry.substr(0, entry.find('.'));
  const bool is_hydra = entry == kHydra || entry.ends_with(std::string(".") + kHydra);
  throw ConfigError("options", {.what = key,
                                .expected = "a list of classes, each a name or {class_path: NAME, init_args: "
                                            "{...}}, or one of them",
                                .got = "a map with key " + first,
                                .where = shown(below.source),
                                .hint = is_hydra ? kInsteadOfHydra : "begin each class with a dash"});
}

std::vector<OptionText> object_items(const Assignment& assignment, const OptionText& value) {
  if (detail::means_null(value)) return {};
  if (is_flow(value)) {
    const auto parsed = read_yaml_value(value.text);
    if (!parsed)
      throw ConfigError("options", {.what = assignment.key + ": " + parsed.error(),
                                    .got = shown(value),
                                    .where = shown(assignment.source)});
    return object_items(assignment, *parsed);
  }
  if (value.kind == OptionText::Kind::kScalar) return detail::items_of(value);
  if (value.kind == OptionText::Kind::kMap)
    return value.items.empty() ? std::vector<OptionText>{} : std::vector{value};
  return value.items;
}

void read_objects(OptionObjects& list, const std::string& key, const Assignment& assignment, bool appends) {
  auto& objects = list.objects();
  auto read = appends ? objects : std::vector<NamedObject>();
  for (const auto& item : object_items(assignment, assignment.value))
    read.push_back(read_object(list, {key + "[" + std::to_string(read.size()) + "]", assignment, item}));
  objects = std::move(read);
}

}  // namespace lockstep
