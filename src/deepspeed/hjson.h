// JSON as DeepSpeed takes it, with the place of every key and value.
//
// DeepSpeed reads its files with the Hjson package, so files in use have comments, trailing commas and bare
// keys. nlohmann's parser knows neither of the last two nor where a value stood; yaml-cpp knows places, but
// not
// `//`, says of a missing comma that a map has no end, and takes a lot for YAML that is a mistake in JSON.
// There is no Hjson library among Debian's packages. What is read here: JSON, and
// - comments: `//` and `#` to the end of the line, `/* */`
// - a comma after the last member or item; none at the end of a line
// - keys and texts in single quotation marks, or bare: up to the next of `,:[]{}"'#` or the end of the line.
//   (Hjson lets a bare text hold all of these; then `{device: cpu}` would never end.)
// Hjson's ''' texts and files without the outer braces are refused.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/export.h>

namespace lockstep::deepspeed {

/// Both count from 1; columns count characters.
struct Place {
  int line = 1;
  int column = 1;

  bool operator==(const Place&) const = default;
};

struct HjsonMember;

/// A value. Borrows nothing from the text.
struct Hjson {
  enum class Kind { kNull, kBool, kNumber, kText, kArray, kObject };

  Kind kind = Kind::kNull;
  std::string text = {};  ///< of a text: its characters; of a number or a bool: as written
  std::vector<Hjson> items = {};
  std::vector<HjsonMember> members = {};  ///< in order; no two have one key
  Place place = {};

  /// The member called `key`, or null.
  LOCKSTEP_API Hjson* find(std::string_view key);
};

struct HjsonMember {
  std::string key = {};
  Place place = {};
  Hjson value = {};
};

/// Parses `text`, an object; `name` stands for the file in errors.
/// @throws ConfigError with file:line:column when it is malformed, has a key twice, is no UTF-8, is nested
/// deeper than 64, or is larger than 16 MiB
LOCKSTEP_API Hjson parse_hjson(std::string_view text, const std::string& name);

/// `FILE:LINE:COLUMN`
std::string place_in(const std::string& name, Place place);

}  // namespace lockstep::deepspeed
