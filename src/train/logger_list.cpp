#include <lockstep/train/logger_list.h>

#include <algorithm>

#include <lockstep/base/error.h>
#include <lockstep/base/option_codec.h>

namespace lockstep {
namespace {

bool is_name(std::string_view text) {
  const auto names = logger_names();
  return std::ranges::find(names, text) != names.end();
}

}  // namespace

std::vector<std::string> logger_names() { return {"csv", "jsonl", "mlflow", "tensorboard"}; }

std::string OptionType<LoggerList>::accepted() {
  std::string names;
  for (const auto& name : logger_names()) names += ", " + name;
  return "true (csv), false, or names of loggers" + names;
}

LoggerList::LoggerList(bool csv) {
  if (csv) items_.emplace_back("csv");
}

LoggerList::LoggerList(std::string name) : LoggerList(std::vector<Item>{std::move(name)}) {}

LoggerList::LoggerList(std::vector<Item> items) : items_(std::move(items)) {
  for (const auto& item : items_) {
    const auto* name = std::get_if<std::string>(&item);
    const bool usable = name != nullptr ? is_name(*name) : std::get<std::shared_ptr<Logger>>(item) != nullptr;
    if (usable) continue;
    throw ConfigError("train", {.what = "logger",
                                .expected = OptionType<LoggerList>::accepted(),
                                .got = name != nullptr ? "\"" + *name + "\"" : "a null pointer"});
  }
}

Expected<LoggerList> LoggerList::parse(std::string_view text) {
  if (const auto csv = OptionType<bool>::parse(text)) return LoggerList(*csv);
  std::vector<Item> items;
  for (auto& word : detail::items_of({.text = std::string(text)})) {
    if (!is_name(word.text)) return Unexpected{OptionType<LoggerList>::accepted()};
    items.emplace_back(std::move(word.text));
  }
  return LoggerList(std::move(items));
}

// Loggers of the program's own have no name that could be read back.
std::string LoggerList::print() const {
  std::string text;
  for (const auto& item : items_) {
    if (const auto* name = std::get_if<std::string>(&item)) text += (text.empty() ? "" : ",") + *name;
  }
  return text.empty() ? "false" : text;
}

}  // namespace lockstep
