// Where assignments come from, besides flags: YAML files and the environment.
#include <lockstep/base/options.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>

#include <yaml-cpp/depthguard.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <lockstep/base/error.h>
#include <lockstep/base/expected.h>

#include "base/format.h"
#include "base/option_keys.h"
#include "base/printable.h"

namespace lockstep {
namespace {

// The reason why a text is no YAML document, and the place in it.
struct YamlFailure {
  std::string what;
  YAML::Mark mark = YAML::Mark::null_mark();
};

// Notes where a document begins and ignores what is in it.
class StartOfDocument final : public YAML::EventHandler {
 public:
  std::optional<YAML::Mark> mark;

  void OnDocumentStart(const YAML::Mark& at) override { mark = at; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
  }
  void OnMapEnd() override {}
};

// The start of a second document. YAML::Load ignores it, and YAML::LoadAll never returns for a stray bracket,
// of which the parser makes empty documents for ever.
std::optional<YAML::Mark> second_document(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  StartOfDocument first, second;
  if (parser.HandleNextDocument(first)) parser.HandleNextDocument(second);
  return second.mark;
}

// The tab that has made the parser fail. yaml-cpp's own message does not mention tabs, and may name the next
// line.
std::optional<YAML::Mark> tab_in_indentation(const std::string& text, const YAML::Mark& failure) {
  constexpr int kLinesBefore = 1;
  std::istringstream lines(text);
  std::string line;
  for (YAML::Mark mark; std::getline(lines, line) && mark.line <= failure.line; ++mark.line) {
    const auto tab = line.substr(0, line.find_first_not_of(" \t")).find('\t');
    if (tab == line.npos || mark.line + kLinesBefore < failure.line) continue;
    mark.column = static_cast<int>(tab);
    return mark;
  }
  return std::nullopt;
}

// The document in `text`; a null node for an empty text. A second document is a failure.
Expected<YAML::Node, YamlFailure> parse_yaml_document(const std::string& text) {
  try {
    if (const auto mark = second_document(text)) {
      return Unexpected{YamlFailure{"content after the end of the YAML document", *mark}};
    }
    return YAML::Load(text);
  } catch (const YAML::DeepRecursion& error) {  // its own text is "bad file"
    return Unexpected{YamlFailure{"YAML is nested too deeply", error.mark}};
  } catch (const YAML::Exception& error) {
    if (const auto tab = tab_in_indentation(text, error.mark))
      return Unexpected{YamlFailure{
          "malformed YAML: a tab before the first word of a line, where only spaces may be", *tab}};
    return Unexpected{YamlFailure{"malformed YAML: " + error.msg, error.mark}};
  } catch (const std::exception& error) {  // errors inside yaml-cpp
    return Unexpected{YamlFailure{std::string("malformed YAML: ") + error.what()}};
  }
}

constexpr std::uintmax_t kMostBytes = 16u << 20;
constexpr std::size_t kMostValues = 100'000;
constexpr int kDeepest = 64;

struct Position {
  int line = 0;
  int column = 0;
};

Position position(const YAML::Mark& mark) {
  if (mark.is_null()) return {};
  return {mark.line + 1, mark.column + 1};
}

// Whether `node` is an object as LightningCLI writes it: `{class_path: ..., init_args: ...}`.
bool is_object(const YAML::Node& node) {
  if (!node.IsMap() || !node[std::string(kClassPath)]) return false;
  return node.size() == 1 || node[std::string(kInitArgs)] || node["dict_kwargs"];
}

std::string instead_of_object(const std::string& member) {
  if (member == "strategy") return "a file names strategies, with their options below: strategy: {name: ddp}";
  if (member == "model" || member == "data" || member == "optimizer" || member == "lr_scheduler")
    return "the program makes its " + member + "; leave this out";
  return "give the objects in the program: its options have a member " + member +
         (member == "logger" ? "; a file names loggers: csv, jsonl, mlflow, tensorboard" : "");
}

class YamlReader {
 public:
  explicit YamlReader(std::string name) : name_(std::move(name)) {}

  std::vector<Assignment> read(const std::string& text) {
    const auto document = parse_yaml_document(text);
    if (!document) refuse(document.error().what, position(document.error().mark));
    if (!document->IsNull()) read_top(*document);
    return std::move(assignments_);
  }

  /// One value alone, which `key` stands for in errors.
  OptionText read_alone(const std::string& key, const YAML::Node& node) { return read_value(key, node, 0); }

  [[noreturn]] void refuse(const std::string& what, Position at, const std::string& hint = {}) const {
    throw ConfigError("options", {.what = detail::printable(what),
                                  .expected = {},
                                  .got = {},
                                  .where = shown(source(at)),
                                  .hint = hint});
  }

 private:
  Source source(Position at) const {
    return {.kind = Source::Kind::kYaml, .name = name_, .line = at.line, .column = at.column};
  }

  void read_top(const YAML::Node& node) {
    if (!node.IsMap()) refuse("a configuration file is a map of options", position(node.Mark()));
    read_map(node, "", 0);
  }

  void read_map(const YAML::Node& map, const std::string& prefix, int depth) {
    if (depth > kDeepest) refuse("YAML is nested too deeply", position(map.Mark()));
    std::map<std::string, Position> seen;
    for (const auto& entry : map) {
      const auto at = position(entry.first.Mark());
      const auto& word = read_word(entry.first, at);
      if (const auto [first, is_new] = seen.emplace(word, at); !is_new) refuse_twice(word, first->second, at);
      read_entry(joined_key(prefix, word), entry.second, at, depth);
    }
  }

  void read_entry(const std::string& key, const YAML::Node& value, Position at, int depth) {
    if (value.IsMap() && value.size() > 0 && !is_object(value)) return read_map(value, key, depth + 1);
    if (const auto [first, is_new] = keys_.emplace(key, at); !is_new) refuse_twice(key, first->second, at);
    assignments_.push_back({key, read_value(key, value, depth), source(at)});
  }

  OptionText read_value(const std::string& key, const YAML::Node& node, int depth) {
    const auto at = position(node.Mark());
    OptionText text{.line = at.line, .column = at.column};
    if (depth > kDeepest) refuse("YAML is nested too deeply", at);
    if (++items_ > kMostValues) refuse("a configuration file has more than 100000 values", at);
    if (node.IsScalar()) {
      text.text = node.Scalar();
      text.quoted = node.Tag() == "!";
    } else if (node.IsSequence()) {
      text.kind = OptionText::Kind::kList;
      for (const auto& item : node) text.items.push_back(read_item(key, item, depth + 1));
    } else if (node.IsMap()) {
      text.kind = OptionText::Kind::kMap;
      read_entries(key, node, depth, text);
    } else {
      text.kind = OptionText::Kind::kNull;
    }
    return text;
  }

  OptionText read_item(const std::string& key, const YAML::Node& item, int depth) {
    if (item.IsSequence()) refuse(key + ": an item of a list is no list", position(item.Mark()));
    return read_value(key, item, depth);
  }

  void read_entries(const std::string& key, const YAML::Node& map, int depth, OptionText& text) {
    std::map<std::string, Position> seen;
    for (const auto& entry : map) {
      const auto at = position(entry.first.Mark());
      const auto& word = read_word(entry.first, at);
      if (const auto [first, is_new] = seen.emplace(word, at); !is_new)
        refuse_twice(joined_key(key, word), first->second, at);
      text.names.push_back({.text = word, .line = at.line, .column = at.column});
      text.items.push_back(read_value(joined_key(key, word), entry.second, depth + 1));
    }
  }

  const std::string& read_word(const YAML::Node& node, Position at) const {
    if (!node.IsScalar()) refuse("a key is a word", at);
    if (detail::printable(node.Scalar()) != node.Scalar())
      refuse("key " + node.Scalar() + " holds a control character", at,
             node.Scalar().find('\r') == std::string::npos ? "" : "end lines by LF or CRLF, not by CR alone");
    if (node.Scalar() == "<<") refuse("merge keys (<<) are not supported", at, "write the keys out");
    return node.Scalar();
  }

  [[noreturn]] void refuse_twice(const std::string& key, Position first, Position second) const {
    refuse("key " + key + " is given twice", second, "first at " + shown(source(first)));
  }

  std::string name_;
  std::vector<Assignment> assignments_;
  std::map<std::string, Position> keys_;
  std::size_t items_ = 0;
};

[[noreturn]] void throw_unreadable(const std::filesystem::path& file, const std::string& why) {
  throw ConfigError("options", {.what = "cannot read configuration file " + file.string() + ": " + why,
                                .expected = {},
                                .got = {},
                                .where = {},
                                .hint = detail::unreadable_file(file, why).hint});
}

}  // namespace

std::vector<Assignment> read_yaml_file(const std::filesystem::path& file) {
  std::error_code error;
  const auto status = std::filesystem::status(file, error);
  if (status.type() == std::filesystem::file_type::none) throw_unreadable(file, error.message());
  if (!std::filesystem::exists(status)) throw_unreadable(file, "no such file");
  if (std::filesystem::is_directory(status)) throw_unreadable(file, "it is a folder");
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw_unreadable(file, std::generic_category().message(errno));
  std::string text(kMostBytes + 1, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(stream.gcount()));
  if (text.size() > kMostBytes) throw_unreadable(file, "it is larger than 16 MiB");
  return read_yaml(text, file.string());
}

Expected<OptionText> read_yaml_value(const std::string& text) {
  const auto document = parse_yaml_document(text);
  if (!document) return Unexpected{document.error().what};
  try {
    return YamlReader("value").read_alone("value", *document);
  } catch (const ConfigError& error) {
    return Unexpected{std::string(error.what())};
  }
}

bool names_classes(const OptionText& value) {
  if (value.kind == OptionText::Kind::kList) return std::ranges::any_of(value.items, names_classes);
  return value.kind == OptionText::Kind::kMap &&
         std::ranges::find(value.names, kClassPath, &OptionText::text) != value.names.end();
}

void refuse_classes(const Assignment& assignment) {
  const auto& [key, value, source] = assignment;
  if (!names_classes(value)) return;
  const bool is_list = value.kind == OptionText::Kind::kList;
  const auto& first = is_list ? *std::ranges::find_if(value.items, names_classes) : value;
  throw ConfigError("options", {.what = key + (is_list ? " lists classes" : " names a class") +
                                        " by class_path, which a file cannot make here",
                                .where = place(assignment, first.line, first.column),
                                .hint = instead_of_object(key.substr(key.rfind('.') + 1))});
}

std::vector<Assignment> read_yaml(std::string_view text, const std::string& name) {
  return YamlReader(name).read(std::string(text));
}

namespace {

bool is_strict(const std::string& variable, std::span<const std::string> strict_roots) {
  return std::ranges::any_of(
      strict_roots, [&](const std::string& root) { return variable.starts_with(variable_of(root) + "_"); });
}

// The first of the `known` variables of options in the group that `variable` names.
std::string first_below(const std::string& variable, const std::vector<std::string>& known) {
  const auto found =
      std::ranges::find_if(known, [&](const std::string& one) { return one.starts_with(variable + "_"); });
  return found == known.end() ? variable + "_..." : *found;
}

[[noreturn]] void throw_ambiguous(const std::string& variable, const std::vector<std::string>& keys) {
  throw ConfigError("options",
                    {.what = "environment variable " + variable + " means " + joined(keys, " and "),
                     .expected = {},
                     .got = {},
                     .where = {},
                     .hint = "use a flag instead"});
}

}  // namespace

std::string variable_of(std::string_view key) {
  auto name = "LOCKSTEP_" + upper_case(key);
  std::ranges::replace(name, '.', '_');
  return name;
}

std::vector<Assignment> read_environment(const std::map<std::string, std::string>& variables,
                                         const OptionTree& tree, std::span<const std::string> strict_roots) {
  std::map<std::string, std::vector<std::string>> keys_of;
  std::vector<std::string> known;
  for (const auto& key : tree.keys()) {
    known.push_back(variable_of(key));
    keys_of[known.back()].push_back(key);
  }
  std::vector<Assignment> assignments;
  for (const auto& [variable, value] : variables) {
    const Source source{.kind = Source::Kind::kEnvironment, .name = variable};
    if (const auto found = keys_of.find(variable); found != keys_of.end()) {
      if (found->second.size() > 1) throw_ambiguous(variable, found->second);
      assignments.push_back({found->second.front(), {.text = value}, source});
    } else if (std::ranges::any_of(strict_roots,
                                   [&](const auto& root) { return variable == variable_of(root); })) {
      throw_unknown("environment variable " + variable, "",
                    "options have variables of their own, such as " + first_below(variable, known));
    } else if (is_strict(variable, strict_roots)) {
      throw_unknown("environment variable " + variable, "", did_you_mean(nearest_name(variable, known)));
    }
  }
  return assignments;
}

}  // namespace lockstep
