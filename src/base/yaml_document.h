// One YAML document, parsed by yaml-cpp with its traps avoided.
#pragma once

#include <string>

#include <yaml-cpp/yaml.h>

#include <lockstep/base/expected.h>

namespace lockstep {

/// Where and why a text is no YAML document.
struct YamlFailure {
  std::string what;
  YAML::Mark mark = YAML::Mark::null_mark();
};

/// The document in `text`; a null node for an empty text. A second document is a failure.
Expected<YAML::Node, YamlFailure> parse_yaml_document(const std::string& text);

}  // namespace lockstep
