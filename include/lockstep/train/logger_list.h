// The Trainer's `logger`: yes, no, names, loggers.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <lockstep/base/expected.h>
#include <lockstep/base/export.h>
#include <lockstep/base/option_type.h>

namespace lockstep {

class Logger;

/// Which loggers a run has: `true` for the CSV logger, `false` for none, names of those that have one, or
/// loggers made by the program, which may go on to use them. As text these are `own`: a saved configuration
/// that is given back keeps those that code has at that place.
class LOCKSTEP_API LoggerList {
 public:
  /// A name such as "csv", or a logger.
  using Item = std::variant<std::string, std::shared_ptr<Logger>>;

  LoggerList(bool csv = true);
  /// @throws ConfigError naming what is no logger's name
  LoggerList(const char* name) : LoggerList(std::string(name)) {}
  LoggerList(std::string name);
  LoggerList(std::shared_ptr<Logger> logger) : items_{std::move(logger)} {}
  template <class Derived>
  LoggerList(std::shared_ptr<Derived> logger) : LoggerList(std::shared_ptr<Logger>(std::move(logger))) {}
  LoggerList(std::vector<Item> items);
  LoggerList(std::initializer_list<Item> items) : LoggerList(std::vector<Item>(items)) {}

  /// In the order given.
  const std::vector<Item>& items() const { return items_; }
  /// Whether there is none.
  bool empty() const { return items_.empty(); }

  /// Reads names such as `csv,tensorboard`.
  static Expected<LoggerList> parse(std::string_view text);
  /// The text that parse() reads.
  std::string print() const;

 private:
  std::vector<Item> items_;
};

/// "csv", "jsonl", "mlflow", "tensorboard".
LOCKSTEP_API std::vector<std::string> logger_names();

template <>
struct OptionType<LoggerList> {
  static Expected<LoggerList> parse(std::string_view text) { return LoggerList::parse(text); }
  static std::string print(const LoggerList& loggers) { return loggers.print(); }
  static std::string accepted();
  static std::string type() { return "bool or names"; }
};

}  // namespace lockstep
