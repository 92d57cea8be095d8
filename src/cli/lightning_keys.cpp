#include "cli/lightning_keys.h"

#include <algorithm>
#include <string>

#include <lockstep/base/error.h>
#include <lockstep/base/option_type.h>

#include "train/options/former_options.h"

namespace lockstep::detail {
namespace {

bool is_nothing(const OptionText& value) {
  switch (value.kind) {
    case OptionText::Kind::kNull:
      return true;
    case OptionText::Kind::kScalar:
      return value.text.empty() && !value.quoted;
    case OptionText::Kind::kList:
      return value.items.empty();
    case OptionText::Kind::kMap:
      return true;  // maps with entries are assignments of their own
  }
  return false;
}

bool is_for_objects(const Assignment& assignment) {
  return assignment.source.kind == Source::Kind::kYaml &&
         (assignment.key == "trainer.callbacks" || assignment.key == "trainer.plugins");
}

void choose_seed(Assignment& assignment) {
  auto& value = assignment.value;
  if (assignment.key != "seed_everything" || value.kind != OptionText::Kind::kScalar || value.quoted) return;
  if (OptionType<std::int64_t>::parse(value.text)) return;
  const auto flag = OptionType<bool>::parse(value.text);
  if (flag) value.text = *flag ? "0" : "null";
}

void refuse_former(const Assignment& assignment) {
  const auto instead = instead_of_former(assignment.key);
  if (instead.empty()) return;
  throw ConfigError("options", {.what = "unknown key " + assignment.key,
                                .where = shown(assignment.source),
                                .hint = std::string(instead)});
}

}  // namespace

void take_lightning_keys(std::vector<Assignment>& assignments) {
  for (auto& assignment : assignments) {
    choose_seed(assignment);
    refuse_former(assignment);
    if (!is_for_objects(assignment) || is_nothing(assignment.value)) continue;
    throw ConfigError("options",
                      {.what = assignment.key + " cannot be set in a file",
                       .expected = "null or an empty list",
                       .got = shown(assignment.value),
                       .where = shown(assignment.source),
                       .hint = "callbacks are given in the program: ls::Trainer({.callbacks = {...}})"});
  }
  std::erase_if(assignments, is_for_objects);
}

}  // namespace lockstep::detail
