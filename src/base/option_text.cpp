#include <lockstep/base/option_text.h>

namespace lockstep {
namespace {

constexpr std::size_t kLongestShown = 100;

}  // namespace

std::string shown(const OptionText& text) {
  switch (text.kind) {
    case OptionText::Kind::kNull:
      return "null";
    case OptionText::Kind::kList:
      return "a list";
    case OptionText::Kind::kMap:
      return "a map";
    case OptionText::Kind::kScalar:
      break;
  }
  if (text.text.size() <= kLongestShown) return '"' + text.text + '"';
  return '"' + text.text.substr(0, kLongestShown) + "...\"";
}

bool Source::same_origin(const Source& other) const {
  return kind == other.kind && (kind != Kind::kYaml || name == other.name);
}

std::string shown(const Source& source) {
  switch (source.kind) {
    case Source::Kind::kFlag:
      return "flag " + source.name;
    case Source::Kind::kEnvironment:
      return "environment variable " + source.name;
    case Source::Kind::kYaml:
      break;
    case Source::Kind::kCode:
      return "a value set in code";
  }
  if (source.line == 0) return source.name;
  return source.name + ":" + std::to_string(source.line) + ":" + std::to_string(source.column);
}

}  // namespace lockstep
