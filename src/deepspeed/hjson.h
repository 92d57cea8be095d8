// The JSON dialect that DeepSpeed accepts, parsed with the place of every key and value.
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

// Where a parser is in its text.

/// Walks over a text, and knows line and column.
class HjsonCursor {
 public:
  HjsonCursor(std::string_view text, const std::string& name);

  bool at_end() const { return rest_.empty(); }
  /// The next byte; 0 at the end.
  char peek() const { return at_end() ? '\0' : rest_.front(); }
  bool starts_with(std::string_view word) const { return rest_.starts_with(word); }
  Place place() const { return place_; }

  /// Takes the next byte. Not at the end.
  char take();
  /// Takes `wanted` if it is next.
  bool take_if(char wanted);
  /// Takes white space and comments; whether there was an end of line among them.
  bool skip();

  /// @throws ConfigError naming the place, here unless another is given
  [[noreturn]] void refuse(const std::string& what, const std::string& expected = {}) const;
  [[noreturn]] void refuse_at(Place place, const std::string& what, const std::string& expected = {}) const;

 private:
  void skip_line();
  void skip_block();
  std::string next_shown() const;

  std::string_view rest_;
  const std::string& name_;
  Place place_;
};

// Texts of Hjson: what stands in quotation marks, or bare.

/// A text in the quotation marks that are next, escapes replaced. @throws ConfigError when it is malformed
std::string take_quoted(HjsonCursor& cursor);

/// A bare text, without the white space around it; empty when what is next cannot be in one.
std::string take_bare(HjsonCursor& cursor);

}  // namespace lockstep::deepspeed
