// HTML and SVG whose every text and attribute is escaped.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// `text` as HTML shows it: no letter of it is markup. Bytes that are no UTF-8 and control characters become
/// U+FFFD.
LOCKSTEP_API std::string escaped(std::string_view text);

/// Names are the program's own; values may be anybody's.
using Attributes = std::initializer_list<std::pair<std::string_view, std::string_view>>;

/// Writes elements one after the other into a string.
class LOCKSTEP_API HtmlWriter {
 public:
  /// Closes an element at its end.
  class [[nodiscard]] Scope {
   public:
    explicit Scope(HtmlWriter& writer) : writer_(writer) {}
    ~Scope() { writer_.close(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    HtmlWriter& writer_;
  };

  /// Begins an element that ends with the returned scope. `tag` must be a literal.
  Scope within(std::string_view tag, Attributes attributes = {});
  /// An element that holds nothing but `content`.
  void element(std::string_view tag, Attributes attributes, std::string_view content = {});
  void text(std::string_view text) { html_ += escaped(text); }
  /// What the program itself wrote: as it is.
  void verbatim(std::string_view html) { html_ += html; }

  const std::string& html() const { return html_; }

 private:
  void open(std::string_view tag, Attributes attributes);
  void close();

  std::string html_;
  std::vector<std::string_view> open_;
};

}  // namespace lockstep::detail
