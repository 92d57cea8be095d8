// Options that only the code of a program can give, such as loggers of its own, beside what flags and
// files say.
#include "cli/run.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include <lockstep/base/error.h>

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

}  // namespace

void keep_code_only_options(const StrategyOptions& code, StrategyOptions& chosen) {
  auto* ddp = std::get_if<Ddp>(&chosen);
  if (ddp == nullptr) return;
  const auto* before = std::get_if<Ddp>(&code);
  if (before != nullptr && !ddp->comm_hook) ddp->comm_hook = before->comm_hook;
  if (!is_own(ddp->cluster_environment)) return;
  if (before == nullptr || !is_own(before->cluster_environment))
    refuse("strategy.cluster_environment", "an environment");
  ddp->cluster_environment = before->cluster_environment;
}

void keep_code_only_options(const TrainerOptions& code, TrainerOptions& chosen) {
  chosen.logger = with_own(chosen.logger, code.logger);
  chosen.profiler = with_own(chosen.profiler, code.profiler);
  keep_code_only_options(code.strategy, chosen.strategy);
}

}  // namespace lockstep::detail
