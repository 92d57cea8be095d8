// The writer of HTML: elements, their attributes, and escaped texts.
#include "report/page.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

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

namespace {

void write_cell(HtmlWriter& page, std::string_view tag, const Cell& cell) {
  const auto element = page.within(tag, {{"class", cell.classes}});
  if (cell.run) page.element("span", {{"class", "swatch " + run_classes(*cell.run)}});
  page.text(cell.text);
  if (!cell.bar) return;
  const auto track = page.within("div", {{"class", "bar"}});
  const auto width = fmt::format("width:{:.1f}%", 100 * std::clamp(*cell.bar, 0.0, 1.0));
  page.element("div", {{"style", width}});
}

}  // namespace

std::string bytes_text(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  for (; std::abs(bytes) >= 1024 && unit + 1 < std::size(kUnits); ++unit) bytes /= 1024;
  return fmt::format("{:.{}f} {}", bytes, unit == 0 ? 0 : 1, kUnits[unit]);
}

std::string seconds_text(double seconds) {
  if (seconds >= 3600)
    return fmt::format("{:.0f} h {:02.0f} min", std::floor(seconds / 3600),
                       std::floor(std::fmod(seconds, 3600) / 60));
  if (seconds >= 60)
    return fmt::format("{:.0f} min {:02.0f} s", std::floor(seconds / 60), std::floor(std::fmod(seconds, 60)));
  if (seconds >= 1) return fmt::format("{:.3g} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.3g} ms", seconds * 1e3);
  return fmt::format("{:.3g} \u00b5s", seconds * 1e6);
}

std::string percent_text(double share) { return fmt::format("{:.0f} %", 100 * share); }

std::string run_classes(std::size_t index) {
  constexpr std::size_t kColours = 8, kDashes = 3;  // as many as the style has
  return fmt::format("r{} c{} d{}", index, index % kColours, index / kColours % kDashes);
}

void write_table(HtmlWriter& page, const std::vector<Cell>& header, const std::vector<Row>& rows,
                 Columns columns) {
  const auto scroll = page.within("div", {{"class", "scroll"}});
  const auto table = page.within("table", {{"class", columns == Columns::kNumbers ? "numbers" : "texts"}});
  {
    const auto head = page.within("thead");
    const auto row = page.within("tr");
    for (const auto& cell : header) write_cell(page, "th", cell);
  }
  const auto body = page.within("tbody");
  for (const auto& row : rows) {
    const auto element = page.within("tr", {{"class", row.classes}});
    for (std::size_t i = 0; i < row.cells.size(); ++i) write_cell(page, i == 0 ? "th" : "td", row.cells[i]);
  }
}

void write_note(HtmlWriter& page, std::string_view text) { page.element("p", {{"class", "note"}}, text); }

}  // namespace lockstep::detail
