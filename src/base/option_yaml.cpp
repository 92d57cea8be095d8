// YAML to assignments. Input may be hostile: depth, size and number of keys are bounded, so that
// neither nesting nor anchors that multiply can exhaust the process.
#include <fstream>
#include <map>
#include <system_error>

#include <lockstep/base/error.h>
#include <lockstep/base/option_sources.h>

#include "base/option_keys.h"
#include "base/yaml_document.h"

namespace lockstep {
namespace {

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

// As LightningCLI writes them: `{class_path: ..., init_args: ...}`.
bool is_object(const YAML::Node& node) {
  if (!node.IsMap() || !node["class_path"]) return false;
  return node.size() == 1 || node["init_args"] || node["dict_kwargs"];
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

  [[noreturn]] void refuse(const std::string& what, Position at, const std::string& hint = {}) const {
    throw ConfigError("options",
                      {.what = what, .expected = {}, .got = {}, .where = shown(source(at)), .hint = hint});
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
      if (!entry.first.IsScalar()) refuse("a key is a word", at);
      const auto& word = entry.first.Scalar();
      if (word == "<<") refuse("merge keys (<<) are not supported", at, "write the keys out");
      if (const auto [first, is_new] = seen.emplace(word, at); !is_new) refuse_twice(word, first->second, at);
      read_entry(joined_key(prefix, word), entry.second, at, depth);
    }
  }

  void read_entry(const std::string& key, const YAML::Node& value, Position at, int depth) {
    if (is_object(value)) refuse_object(key, "names a class", position(value.Mark()));
    if (value.IsMap() && value.size() > 0) return read_map(value, key, depth + 1);
    if (assignments_.size() >= kMostValues) refuse("a configuration file has more than 100000 values", at);
    if (const auto [first, is_new] = keys_.emplace(key, at); !is_new) refuse_twice(key, first->second, at);
    assignments_.push_back({key, read_value(key, value), source(at)});
  }

  OptionText read_value(const std::string& key, const YAML::Node& node) {
    const auto at = position(node.Mark());
    OptionText text{.line = at.line, .column = at.column};
    if (node.IsScalar()) {
      text.text = node.Scalar();
      text.quoted = node.Tag() == "!";
    } else if (node.IsSequence()) {
      text.kind = OptionText::Kind::kList;
      for (const auto& item : node) text.items.push_back(read_item(key, item));
    } else {
      text.kind = node.IsMap() ? OptionText::Kind::kMap : OptionText::Kind::kNull;
    }
    return text;
  }

  OptionText read_item(const std::string& key, const YAML::Node& item) {
    if (is_object(item)) refuse_object(key, "lists classes", position(item.Mark()));
    if (!item.IsScalar() && !item.IsNull())
      refuse(key + ": an item of a list is a single value", position(item.Mark()));
    if (++items_ > kMostValues)
      refuse("a configuration file has more than 100000 values", position(item.Mark()));
    return read_value(key, item);
  }

  [[noreturn]] void refuse_object(const std::string& key, const std::string& does, Position at) const {
    const auto member = key.substr(key.rfind('.') + 1);
    refuse(key + " " + does + " by class_path, which a file cannot make here", at, instead_of_object(member));
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
                                .hint = {}});
}

}  // namespace

std::vector<Assignment> read_yaml_file(const std::filesystem::path& file) {
  std::error_code error;
  const auto status = std::filesystem::status(file, error);
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

std::vector<Assignment> read_yaml(std::string_view text, const std::string& name) {
  return YamlReader(name).read(std::string(text));
}

}  // namespace lockstep
