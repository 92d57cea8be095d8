#include "man_pages.h"

#include <string_view>
#include <vector>

#include <lockstep/base/atomic_file.h>
#include <lockstep/base/version.h>

#include "base/format.h"
#include "lockstep_commit.h"

namespace {

constexpr auto kProgram = "lockstep";
constexpr auto kExitStatus =
    ".SH EXIT STATUS\n"
    ".TP\n0\nAll went well.\n"
    ".TP\n1\nIt failed; a line on standard error says why.\n"
    ".TP\n2\nThe command line or a setting is wrong.\n"
    ".TP\n130, 143\nIt was ended by SIGINT, by SIGTERM.\n"
    ".P\nWhat starts ranks ends with the code of the rank that failed first, or 128 and the number of the "
    "signal that killed\nit.\n";

// What roff would take for its own is escaped. A hyphen stays the letter that users type.
std::string roff_text(std::string_view text) {
  std::string escaped;
  for (const char letter : text) {
    if (letter == '\\')
      escaped += "\\e";
    else if (letter == '-')
      escaped += "\\-";
    else
      escaped += letter;
  }
  const bool is_request = escaped.starts_with('.') || escaped.starts_with('\'');
  return (is_request ? "\\&" : "") + escaped;
}

std::string bold(std::string_view text) { return "\\fB" + roff_text(text) + "\\fR"; }
std::string italic(std::string_view text) { return "\\fI" + roff_text(text) + "\\fR"; }

std::string sentence(std::string_view text) {
  return roff_text(text) + (text.ends_with('.') || text.empty() ? "" : ".") + "\n";
}

std::string option_title(const CLI::Option& option) {
  std::string title;
  const auto add = [&](const std::string& name) { title += (title.empty() ? "" : ", ") + bold(name); };
  for (const auto& name : option.get_snames()) add("-" + name);
  for (const auto& name : option.get_lnames()) add("--" + name);
  if (option.get_expected_min() > 0) title += " " + italic(option.get_type_name());
  return title;
}

std::string option_entry(const CLI::Option& option, const std::string& title) {
  auto entry = ".TP\n" + title + "\n" + sentence(option.get_description());
  if (!option.get_default_str().empty())
    entry += "Without it: " + roff_text(option.get_default_str()) + ".\n";
  return entry;
}

std::vector<const CLI::Option*> shown_options(const CLI::App& app, bool are_positional) {
  return app.get_options([&](const CLI::Option* option) {
    return !option->get_group().empty() && option->get_positional() == are_positional;
  });
}

std::vector<const CLI::App*> verbs_in(const CLI::App& app) {
  return app.get_subcommands([](const auto*) { return true; });
}

std::string page_name(const CLI::App& app, const CLI::App& verb) {
  return &app == &verb ? kProgram : std::string(kProgram) + "-" + verb.get_name();
}

std::string usage_of(const CLI::App& app, const CLI::App& verb) {
  if (&app == &verb) return bold(kProgram) + " " + italic("VERB") + " [" + italic("OPTION") + "]...\n";
  auto usage = bold(kProgram) + " " + bold(verb.get_name()) + " [" + italic("OPTION") + "]...";
  for (const auto* word : shown_options(verb, true)) {
    const auto name = italic(word->get_name(true));
    usage +=
        " " + (word->get_required() ? name : "[" + name + "]") + (word->get_expected_max() > 1 ? "..." : "");
  }
  if (verb.get_prefix_command()) usage += " " + italic("PROGRAM") + " [" + italic("ARGUMENT") + "]...";
  return usage + "\n";
}

std::string section(const std::string& name, const std::string& text) {
  return text.empty() ? "" : ".SH " + name + "\n" + text;
}

std::string see_also(const CLI::App& app, const CLI::App& verb) {
  if (&app != &verb) return ".BR lockstep (1)\n";
  std::string text;
  for (const auto* each : verbs_in(app))
    text += (text.empty() ? "" : " ,\n") + (".BR " + roff_text(page_name(app, *each)) + " (1)");
  return text + "\n";
}

}  // namespace

std::string man_page(const CLI::App& app, const CLI::App& verb) {
  std::string arguments, options, verbs;
  for (const auto* word : shown_options(verb, true))
    arguments += option_entry(*word, italic(word->get_name(true)));
  for (const auto* option : shown_options(verb, false))
    options += option_entry(*option, option_title(*option));
  for (const auto* each : verbs_in(verb))
    verbs += ".TP\n" + bold(each->get_name()) + "\n" + sentence(each->get_description());
  const auto name = page_name(app, verb);
  return ".TH " + roff_text(lockstep::upper_case(name)) + " 1 " + kLockstepDate + " \"lockstep " +
         lockstep::kVersion + "\" \"User Commands\"\n" +
         section("NAME", roff_text(name) + " \\- " + roff_text(verb.get_description()) + "\n") +
         section("SYNOPSIS", usage_of(app, verb)) + section("VERBS", verbs) +
         section("ARGUMENTS", arguments) + section("OPTIONS", options) +
         section("ENVIRONMENT", verb.get_footer().empty() ? "" : sentence(verb.get_footer())) + kExitStatus +
         section("SEE ALSO", see_also(app, verb));
}

CLI::App* add_man_pages(CLI::App& app, ManPagesFlags& flags) {
  auto* verb = app.add_subcommand("man-pages", "Write the manual pages of lockstep and of each verb");
  verb->add_option("FOLDER", flags.folder, "Where to: .../share/man/man1 for man to find them")->required();
  return verb;
}

int write_man_pages(const ManPagesFlags& flags, const CLI::App& app) {
  const std::filesystem::path folder = flags.folder;
  lockstep::create_folders(folder);
  const auto write = [&](const CLI::App& verb) {
    lockstep::write_file_atomically(folder / (page_name(app, verb) + ".1"), man_page(app, verb));
  };
  write(app);
  for (const auto* verb : verbs_in(app)) write(*verb);
  return 0;
}
