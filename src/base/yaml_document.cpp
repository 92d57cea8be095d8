#include "base/yaml_document.h"

#include <optional>
#include <sstream>

#include <yaml-cpp/depthguard.h>
#include <yaml-cpp/eventhandler.h>

namespace lockstep {
namespace {

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

// What stands after the first document. YAML::Load ignores it, and YAML::LoadAll never returns when
// it is a stray bracket: the parser makes an empty document of it for ever.
std::optional<YAML::Mark> second_document(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  StartOfDocument first, second;
  if (parser.HandleNextDocument(first)) parser.HandleNextDocument(second);
  return second.mark;
}

// What yaml-cpp says of a tab does not name it. It may notice one in the line after it.
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

}  // namespace

Expected<YAML::Node, YamlFailure> parse_yaml_document(const std::string& text) {
  try {
    if (const auto mark = second_document(text)) {
      return Unexpected{YamlFailure{"content after the end of the YAML document", *mark}};
    }
    return YAML::Load(text);
  } catch (const YAML::DeepRecursion& error) {  // whose own text is "bad file"
    return Unexpected{YamlFailure{"YAML is nested too deeply", error.mark}};
  } catch (const YAML::Exception& error) {
    if (const auto tab = tab_in_indentation(text, error.mark))
      return Unexpected{YamlFailure{
          "malformed YAML: a tab before the first word of a line, where only spaces may be", *tab}};
    return Unexpected{YamlFailure{"malformed YAML: " + error.msg, error.mark}};
  } catch (const std::exception& error) {  // yaml-cpp's own slips
    return Unexpected{YamlFailure{std::string("malformed YAML: ") + error.what()}};
  }
}

}  // namespace lockstep
