#include <lockstep/device/devices.h>

#include <charconv>
#include <optional>

#include <lockstep/base/error.h>

#include "base/format.h"

namespace lockstep {
namespace {

std::optional<int> integer(std::string_view text) {
  int value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// As Lightning: what stands between commas may be nothing.
std::optional<Devices> parse_list(std::string_view text) {
  Devices::Indices indices;
  while (!text.empty()) {
    const auto comma = std::min(text.find(','), text.size());
    const auto item = detail::trimmed(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
    if (item.empty()) continue;
    const auto index = integer(item);
    if (!index) return std::nullopt;
    indices.push_back(*index);
  }
  return indices;
}

std::optional<Devices> parse_text(std::string_view text) {
  text = detail::trimmed(text);
  if (detail::same_name(text, "auto")) return Devices();
  if (text.starts_with('[') && text.ends_with(']')) return parse_list(text.substr(1, text.size() - 2));
  if (text.find(',') != std::string_view::npos) return parse_list(text);
  if (const auto number = integer(text)) return *number;
  return std::nullopt;
}

}  // namespace

Devices::Devices(std::string_view text) {
  auto parsed = OptionType<Devices>::parse(text);
  if (!parsed)
    throw ConfigError("device",
                      {.what = "devices", .expected = parsed.error(), .got = '"' + std::string(text) + '"'});
  value_ = std::move(parsed->value_);
}

std::string Devices::text() const {
  if (is_auto()) return "auto";
  if (number() != nullptr) return std::to_string(*number());
  std::string list;
  for (const int index : *indices()) list += (list.empty() ? "" : ",") + std::to_string(index);
  return indices()->size() > 1 ? list : "[" + list + "]";
}

Expected<Devices> OptionType<Devices>::parse(std::string_view text) {
  if (auto devices = parse_text(text)) return std::move(*devices);
  return Unexpected{accepted()};
}

std::string OptionType<Devices>::accepted() { return "auto, a number of devices, or a list of indices"; }

}  // namespace lockstep
