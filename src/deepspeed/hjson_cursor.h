// Where a parser is in its text.
#pragma once

#include <string>
#include <string_view>

#include "deepspeed/hjson.h"

namespace lockstep::deepspeed {

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

}  // namespace lockstep::deepspeed
