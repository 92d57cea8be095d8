#include "deepspeed/hjson_value.h"

#include <charconv>
#include <cmath>
#include <cstdint>

#include "formats/in_quotes.h"

namespace lockstep::deepspeed {
namespace {

constexpr double kBeyondInt64 = 9223372036854775808.0;  // 2^63

/// `2e8` as `200000000`; what is no whole number of 64 bits stays as it is.
std::string whole(const std::string& text) {
  if (text.find_first_of(".eE") == std::string::npos) return text;
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_whole = error == std::errc() && end == text.data() + text.size() &&
                        std::trunc(number) == number && std::abs(number) < kBeyondInt64;
  return is_whole ? std::to_string(static_cast<std::int64_t>(number)) : text;
}

OptionText as_option(const Hjson& value, bool is_int) {
  using Kind = OptionText::Kind;
  OptionText text{.line = value.place.line, .column = value.place.column};
  if (value.kind == Hjson::Kind::kArray) {
    text.kind = Kind::kList;
    for (const auto& item : value.items) text.items.push_back(as_option(item, is_int));
  } else if (value.kind == Hjson::Kind::kObject || value.kind == Hjson::Kind::kNull) {
    text.kind = value.kind == Hjson::Kind::kNull ? Kind::kNull : Kind::kMap;
  } else {
    text.text = is_int ? whole(value.text) : value.text;
    text.quoted = value.kind == Hjson::Kind::kText;
  }
  return text;
}

bool is_about_text(const std::string& type) {
  return type.starts_with("text") || type.starts_with("path") || type.starts_with("name") ||
         type.starts_with("list of text");
}

/// The first value in `value`, itself or an item, that is a number or a bool.
const Hjson* first_number(const Hjson& value) {
  if (value.kind == Hjson::Kind::kNumber || value.kind == Hjson::Kind::kBool) return &value;
  for (const auto& item : value.items) {
    if (const auto* found = first_number(item)) return found;
  }
  return nullptr;
}

}  // namespace

std::string shown(const Hjson& value) {
  if (value.kind == Hjson::Kind::kArray) return "a list";
  if (value.kind == Hjson::Kind::kObject) return "an object";
  if (value.kind == Hjson::Kind::kNull) return "null";
  return value.kind == Hjson::Kind::kText ? lockstep::detail::in_quotes(value.text) : value.text;
}

Expected<void, OptionFailure> read_value(OptionField& field, const Hjson& value) {
  const auto info = field.info();
  if (is_about_text(info.type)) {
    const auto* number = first_number(value);
    if (number != nullptr)
      return Unexpected{
          OptionFailure{info.accepted, shown(*number), number->place.line, number->place.column}};
  }
  auto done = field.read(as_option(value, info.type.find("int") != std::string::npos));
  if (done) return done;
  auto failure = done.error();
  if (value.kind != Hjson::Kind::kArray) failure.got = shown(value);
  return Unexpected{std::move(failure)};
}

}  // namespace lockstep::deepspeed
