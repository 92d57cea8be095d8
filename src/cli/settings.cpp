// Options that only the code of a program can give, and keys of LightningCLI, beside what flags and files
// say.
#include "cli/run.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/base/option_codec.h>
#include <lockstep/base/option_type.h>

#include "train/options/former_options.h"

namespace lockstep::detail {
namespace {

constexpr const char* kOwn = "own";

[[noreturn]] void refuse(const std::string& option, const std::string& objects) {
  throw ConfigError("cli", {.what = option + " own",
                            .expected = objects + " in the options that the program's code gives",
                            .got = "none"});
}

bool is_own(const LoggerList::Item& item) { return std::holds_alternative<std::shared_ptr<Logger>>(item); }

bool is_word(const LoggerList::Item& item) {
  const auto* name = std::get_if<std::string>(&item);
  return name != nullptr && *name == kOwn;
}

LoggerList with_own(const LoggerList& chosen, const LoggerList& code) {
  if (std::ranges::none_of(chosen.items(), is_word)) return chosen;
  if (std::ranges::none_of(code.items(), is_own)) refuse("trainer.logger", "loggers");
  std::vector<LoggerList::Item> items;
  bool is_there = false;
  for (const auto& item : chosen.items()) {
    if (!is_word(item)) {
      items.push_back(item);
    } else if (!std::exchange(is_there, true)) {
      std::ranges::copy_if(code.items(), std::back_inserter(items), is_own);
    }
  }
  return LoggerList(std::move(items));
}

ProfilerChoice with_own(const ProfilerChoice& chosen, const ProfilerChoice& code) {
  if (chosen.print() != kOwn) return chosen;
  if (code.print() != kOwn) refuse("trainer.profiler", "a profiler");
  return code;
}

bool is_own(const EnvironmentChoice& choice) { return OptionType<EnvironmentChoice>::print(choice) == kOwn; }

template <class Options>
void keep_code_only_options_of(const StrategyOptions& code, Options& chosen) {
  [[maybe_unused]] const auto* const before = std::get_if<Options>(&code);
  if constexpr (requires { chosen.comm_hook; }) {
    if (before != nullptr && !chosen.comm_hook) chosen.comm_hook = before->comm_hook;
  }
  if constexpr (requires { chosen.cluster_environment; }) {
    if (!is_own(chosen.cluster_environment)) return;
    if (before == nullptr || !is_own(before->cluster_environment))
      refuse("strategy.cluster_environment", "an environment");
    chosen.cluster_environment = before->cluster_environment;
  }
}

}  // namespace

void keep_code_only_options(const StrategyOptions& code, StrategyOptions& chosen) {
  std::visit([&](auto& strategy) { keep_code_only_options_of(code, strategy); }, chosen);
}

void keep_code_only_options(const TrainerOptions& code, TrainerOptions& chosen) {
  chosen.logger = with_own(chosen.logger, code.logger);
  chosen.profiler = with_own(chosen.profiler, code.profiler);
  keep_code_only_options(code.strategy, chosen.strategy);
}

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
      return value.items.empty();
  }
  return false;
}

// Keys that files of LightningCLI have, which say nothing while they are null, and what to do for a value.
struct NullKey {
  std::string_view key;
  const char* instead;
};
constexpr NullKey kNullKeys[] = {
    {"trainer.plugins", "plugins are given in the program: ls::Trainer({.plugins = {...}})"},
    {"trainer.model_registry", "there is no registry of models: leave it out"}};

const char* instead_of_null_key(const Assignment& assignment) {
  if (assignment.source.kind != Source::Kind::kYaml) return nullptr;
  const auto* const found = std::ranges::find(kNullKeys, assignment.key, &NullKey::key);
  return found == std::end(kNullKeys) ? nullptr : found->instead;
}

void choose_seed(Assignment& assignment) {
  auto& value = assignment.value;
  if (assignment.key != "seed_everything" || value.kind != OptionText::Kind::kScalar || value.quoted) return;
  if (OptionType<std::int64_t>::parse(value.text)) return;
  const auto flag = OptionType<bool>::parse(value.text);
  if (flag) value.text = *flag ? "0" : "null";
}

// `logger: [csv, jsonl]` is `logger: csv,jsonl`, and an empty list none.
void join_loggers(Assignment& assignment) {
  auto& value = assignment.value;
  if (assignment.key != "trainer.logger" || value.kind != OptionText::Kind::kList) return;
  if (const auto list = joined(value)) value = *list;
  if (value.text == "[]") value.text = "false";
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
    join_loggers(assignment);
    refuse_former(assignment);
    const auto* const instead = instead_of_null_key(assignment);
    if (instead == nullptr || is_nothing(assignment.value)) continue;
    throw ConfigError("options", {.what = assignment.key + " cannot be set in a file",
                                  .expected = "null or an empty list",
                                  .got = shown(assignment.value),
                                  .where = shown(assignment.source),
                                  .hint = instead});
  }
  std::erase_if(assignments,
                [](const auto& assignment) { return instead_of_null_key(assignment) != nullptr; });
}

}  // namespace lockstep::detail
