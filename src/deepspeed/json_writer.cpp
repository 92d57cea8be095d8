#include "deepspeed/json_writer.h"

#include <utility>

namespace lockstep::deepspeed {
namespace {

constexpr std::string_view kNone = "none";

bool is_list(const std::string& type) { return type.starts_with("list of "); }

bool is_text(std::string_view type) {
  if (type.starts_with("list of ")) type.remove_prefix(8);
  return type.starts_with("text") || type.starts_with("path") || type.starts_with("name");
}

/// What follows a backslash in YAML, as JSON has it.
std::string_view escape(char after) { return after == 'x' ? "\\u00" : after == 'u' ? "\\u" : "\\"; }

/// Words and quoted texts of YAML, alone or in a list, as texts of JSON.
std::string json_of_texts(std::string_view yaml) {
  std::string json;
  bool in_quotes = false, in_word = false;
  for (std::size_t i = 0; i < yaml.size(); ++i) {
    const char c = yaml[i];
    const bool separates = !in_quotes && (c == '[' || c == ']' || c == ',' || c == ' ');
    if (!in_quotes && c != '"' && separates == in_word) {
      json += '"';
      in_word = !separates;
    }
    if (in_quotes && c == '\\') {
      json += escape(yaml[++i]);
      if (yaml[i] == 'x' || yaml[i] == 'u') continue;
      json += yaml[i];
      continue;
    }
    if (c == '"') in_quotes = !in_quotes;
    json += c;
  }
  return in_word ? json + '"' : json;
}

/// `yaml`, which is a value of `type`.
std::string json_of(const std::string& yaml, const std::string& type) {
  if (yaml == "auto") return "\"auto\"";
  if (is_text(type)) return json_of_texts(yaml);
  const bool is_single = is_list(type) && yaml.find(',') == std::string::npos;
  const bool is_quoted = yaml.starts_with('"');  // numbers side by side
  return is_single || is_quoted ? yaml.substr(1, yaml.size() - 2) : yaml;
}

}  // namespace

std::string JsonWriter::take() { return std::exchange(text_, "{") + "\n}\n"; }

void JsonWriter::visit_field(OptionField& field) {
  const auto value = field.print();
  if (value != "null" && value != "[]") add(field.name(), json_of(value, field.info().type));
}

void JsonWriter::visit_group(std::string_view name, std::string_view, const Members& members) {
  add_object(name, members);
}

void JsonWriter::visit_choice(OptionChoice& choice) {
  const auto held = choice.held();
  if (!held || choice.rows()[*held].name == kNone) return;
  add_object(choice.name(), [&](OptionVisitor&) {
    add("type", '"' + choice.rows()[*held].name + '"');
    add_object("params", [&](OptionVisitor& visitor) { choice.describe_held(visitor); });
  });
}

void JsonWriter::add(std::string_view name, std::string_view value) {
  text_ += std::string(std::exchange(is_first_, false) ? "\n" : ",\n") +
           std::string(2 * static_cast<std::size_t>(depth_), ' ') + '"' + std::string(name) + "\": ";
  text_ += value;
}

void JsonWriter::add_object(std::string_view name, const Members& members) {
  add(name, "{");
  is_first_ = true;
  ++depth_;
  members(*this);
  --depth_;
  const bool is_empty = std::exchange(is_first_, false);
  text_ += is_empty ? "}" : "\n" + std::string(2 * static_cast<std::size_t>(depth_), ' ') + "}";
}

}  // namespace lockstep::deepspeed
