// The loggers that the Trainer's options name.
#include "train/logging/run_log.h"

#include <algorithm>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/base/option_codec.h>
#include <lockstep/train/logger_list.h>

#include "loggers/make_logger.h"

namespace lockstep {
namespace {

constexpr std::string_view kOwnLoggers = "own";

bool is_logger_name(std::string_view text) {
  const auto names = logger_names();
  return std::ranges::find(names, text) != names.end();
}

}  // namespace

std::vector<std::string> logger_names() { return detail::named_loggers(); }

std::string OptionType<LoggerList>::accepted() {
  std::string names;
  for (const auto& name : logger_names()) names += ", " + name;
  return "true (csv), false, or names of loggers" + names + ", own (those of the program's code)";
}

LoggerList::LoggerList(bool csv) {
  if (csv) items_.emplace_back("csv");
}

LoggerList::LoggerList(std::string name) : LoggerList(std::vector<Item>{std::move(name)}) {}

LoggerList::LoggerList(std::vector<Item> items) : items_(std::move(items)) {
  for (const auto& item : items_) {
    const auto* name = std::get_if<std::string>(&item);
    const bool usable =
        name != nullptr ? is_logger_name(*name) : std::get<std::shared_ptr<Logger>>(item) != nullptr;
    if (usable) continue;
    throw ConfigError("train", {.what = "logger",
                                .expected = OptionType<LoggerList>::accepted(),
                                .got = name != nullptr ? "\"" + *name + "\"" : "a null pointer"});
  }
}

Expected<LoggerList> LoggerList::parse(std::string_view text) {
  if (const auto csv = OptionType<bool>::parse(text)) return LoggerList(*csv);
  LoggerList loggers(false);
  for (auto& word : detail::items_of({.text = std::string(text)})) {
    if (!is_logger_name(word.text) && word.text != kOwnLoggers)
      return Unexpected{OptionType<LoggerList>::accepted()};
    loggers.items_.emplace_back(std::move(word.text));
  }
  return loggers;
}

// All loggers of the program's code print as one word, at the place of the first.
std::string LoggerList::print() const {
  std::string text;
  bool has_own = false;
  for (const auto& item : items_) {
    const auto* name = std::get_if<std::string>(&item);
    const bool is_own = name == nullptr || *name == kOwnLoggers;
    if (is_own && std::exchange(has_own, true)) continue;
    text.append(text.empty() ? "" : ",").append(is_own ? kOwnLoggers : *name);
  }
  return text.empty() ? "false" : text;
}

namespace detail {

std::vector<std::shared_ptr<Logger>> make_loggers(const TrainerOptions& options,
                                                  const std::filesystem::path& run_dir) {
  const LoggerPlace place{
      .run_dir = run_dir, .root_dir = options.default_root_dir, .run_name = options.run.name};
  std::vector<std::shared_ptr<Logger>> loggers;
  for (const auto& item : options.logger.items()) {
    const auto* name = std::get_if<std::string>(&item);
    loggers.push_back(name != nullptr ? make_logger(*name, place) : std::get<std::shared_ptr<Logger>>(item));
  }
  return loggers;
}

void log_hyper_parameters(const RunSetup& setup, const RunLog& log) {
  const auto& parameters = setup.options.run.hyper_parameters;
  if (parameters.empty() || !setup.options.enable_autolog_hparams) return;
  for (const auto& logger : log.loggers) logger->log_hyperparams(parameters);
}

}  // namespace detail
}  // namespace lockstep
