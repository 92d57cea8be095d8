#include "refusal.h"

#include <vector>

#include <lockstep/base/error.h>

#include "pet_variables.h"

namespace {

std::vector<std::string> flags_of(const CLI::App& app) {
  std::vector<std::string> flags;
  for (const auto* option : app.get_options())
    for (const auto& name : option->get_lnames()) flags.push_back("--" + name);
  return flags;
}

std::vector<std::string> verbs_of(const CLI::App& app) {
  std::vector<std::string> verbs;
  for (const auto* verb : app.get_subcommands({})) verbs.push_back(verb->get_name());
  return verbs;
}

std::string nearest_flag(const CLI::App& app, std::string_view word) {
  const auto name = word.substr(0, word.find('='));
  return lockstep::did_you_mean(lockstep::nearest_name(name, flags_of(app)));
}

std::string with_hint(const std::string& text, const std::string& hint) {
  return hint.empty() ? text : text + "; " + hint;
}

// CLI11 tells how many values it found.
bool is_given_twice(const std::string& text) {
  return text.find("At Most") != std::string::npos ||
         (text.find(", got ") != std::string::npos && !text.ends_with(" 0"));
}

// The verb that the words belong to, and the first word that it does not know.
std::string unknown_word(const CLI::App& app) {
  const auto parsed = app.get_subcommands();
  const auto& owner = parsed.empty() ? app : *parsed.front();
  const auto words = app.remaining(true);
  if (words.empty()) return "a word too many";
  const auto& word = words.front();
  if (!word.starts_with('-')) return "\"" + word + "\" is one too many";
  return with_hint("flag " + word + " is not known", nearest_flag(owner, word));
}

std::string missing_verb(const CLI::App& app) {
  const auto verbs = verbs_of(app);
  std::string text;
  for (const auto& verb : verbs) text += (text.empty() ? "expected one of " : ", ") + verb;
  const auto words = app.remaining(true);
  if (words.empty()) return text + "; got none";
  return with_hint(text + "; got \"" + words.front() + "\"",
                   lockstep::did_you_mean(lockstep::nearest_name(words.front(), verbs)));
}

}  // namespace

std::string refusal(const CLI::App* app, const CLI::Error& error) {
  std::string text = error.what();
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr)
    text = "flag " + text.substr(0, text.find(':')) +
           (is_given_twice(text) ? " is given twice" : " needs a value");
  if (dynamic_cast<const CLI::ValidationError*>(&error) != nullptr && text.find(": ") != std::string::npos)
    text.replace(text.find(": "), 2, "; ");
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) text = unknown_word(*app);
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr && app->get_subcommands().empty())
    text = missing_verb(*app);
  const auto verbs = app->get_subcommands();
  const auto verb = verbs.empty() ? "" : verbs.front()->get_name() + " ";
  return "lockstep: " + text + "; see lockstep " + verb + "--help\n";
}

void refuse_run(const std::string& what, const std::string& expected, const std::string& got,
                const std::string& hint) {
  throw lockstep::ConfigError("run", {.what = what,
                                      .expected = expected,
                                      .got = got,
                                      .where = place_of_flag(what.substr(0, what.find(' '))),
                                      .hint = hint});
}

void refuse_value(const std::string& flag, const std::string& expected, const std::string& text,
                  const std::string& hint) {
  refuse_run(flag, expected, "\"" + text + "\"", hint);
}

void refuse_flag_for_program(const CLI::App& verb, std::string_view word) {
  if (!word.starts_with('-')) return;
  throw lockstep::ConfigError(verb.get_name(),
                              {.what = "flags before the program",
                               .expected = "those that lockstep " + verb.get_name() + " --help lists",
                               .got = "\"" + std::string(word) + "\"",
                               .hint = nearest_flag(verb, word)});
}
