#include "report/html_writer.h"

#include "formats/file_text.h"

namespace lockstep::detail {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

std::string_view entity_of(char letter) {
  switch (letter) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '"':
      return "&quot;";
    case '\'':
      return "&#39;";
    default:
      return {};
  }
}

}  // namespace

std::string escaped(std::string_view text) {
  const bool is_text = is_utf8(text);
  std::string html;
  for (const char letter : text) {
    const auto byte = static_cast<unsigned char>(letter);
    const bool is_control = (byte < 0x20 && letter != '\n' && letter != '\t') || byte == 0x7f;
    if (const auto entity = entity_of(letter); !entity.empty()) {
      html += entity;
    } else if (is_control || (byte >= 0x80 && !is_text)) {
      html += kReplacement;
    } else {
      html += letter;
    }
  }
  return html;
}

HtmlWriter::Scope HtmlWriter::within(std::string_view tag, Attributes attributes) {
  open(tag, attributes);
  return Scope(*this);
}

void HtmlWriter::element(std::string_view tag, Attributes attributes, std::string_view content) {
  open(tag, attributes);
  text(content);
  close();
}

void HtmlWriter::open(std::string_view tag, Attributes attributes) {
  html_.append("<").append(tag);
  for (const auto& [name, value] : attributes)
    html_.append(" ").append(name).append("=\"") += escaped(value) + '"';
  html_ += '>';
  open_.push_back(tag);
}

void HtmlWriter::close() {
  const auto tag = open_.back();
  open_.pop_back();
  html_.append("</").append(tag).append(">");
  constexpr std::string_view kInline = " span b text tspan line path option label input ";
  if (kInline.find(" " + std::string(tag) + " ") == std::string_view::npos) html_ += '\n';
}

}  // namespace lockstep::detail
