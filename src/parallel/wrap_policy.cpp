#include <lockstep/parallel/wrap_policy.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include <c10/util/Type.h>

#include <lockstep/base/error.h>

#include "base/format.h"

namespace lockstep {
namespace {

constexpr std::string_view kMinimum = "min_num_params=";

std::string_view without(std::string_view text, std::string_view ending) {
  if (text.size() > ending.size() && text.ends_with(ending)) text.remove_suffix(ending.size());
  return text;
}

std::string short_name(std::string_view name) {
  const auto last = name.rfind("::");
  if (last != std::string_view::npos) name.remove_prefix(last + 2);
  return std::string(without(name, "Impl"));
}

bool is_type_name(std::string_view text) {
  const auto is_allowed = [](unsigned char letter) {
    return std::isalnum(letter) != 0 || letter == '_' || letter == ':' || letter == '<' || letter == '>';
  };
  return !text.empty() && std::isdigit(static_cast<unsigned char>(text.front())) == 0 &&
         std::ranges::all_of(text, is_allowed);
}

std::optional<std::vector<std::string>> parse_names(std::string_view text) {
  if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  std::vector<std::string> names;
  while (true) {
    const auto comma = text.find(',');
    const auto name = detail::trimmed(text.substr(0, comma));
    if (!is_type_name(name)) return std::nullopt;
    names.emplace_back(name);
    if (comma == std::string_view::npos) return names;
    text.remove_prefix(comma + 1);
  }
}

std::optional<std::int64_t> parse_count(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size() || value < 1) return std::nullopt;
  return value;
}

std::string joined(const std::vector<std::string>& names, std::string_view before = "") {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ",") + std::string(before) + name;
  return text;
}

struct Printer {
  std::string operator()(const WrapPolicy::RepeatedBlocks&) const { return "repeated_blocks"; }
  std::string operator()(const WrapPolicy::None&) const { return "none"; }
  std::string operator()(const WrapPolicy::MinNumParams& rule) const {
    return std::string(kMinimum) + std::to_string(rule.elements);
  }
  std::string operator()(const WrapPolicy::TypeNames& rule) const { return joined(rule.names); }
  std::string operator()(const WrapPolicy::Modules& rule) const {
    std::vector<std::string> kinds{joined(rule.types), joined(rule.names, "name "),
                                   joined(rule.name_suffixes, "name ...")};
    std::erase(kinds, "");
    return joined(kinds);
  }
  std::string operator()(const WrapPolicy::Predicate&) const { return "own"; }
};

}  // namespace

std::string detail::type_name(const std::type_info& type) { return short_name(c10::demangle(type.name())); }

WrapPolicy::WrapPolicy(std::string_view text) {
  auto parsed = OptionType<WrapPolicy>::parse(text);
  if (!parsed) {
    throw ConfigError(
        "parallel",
        {.what = "a policy of units", .expected = parsed.error(), .got = '"' + std::string(text) + '"'});
  }
  *this = std::move(*parsed);
}

WrapPolicy WrapPolicy::none() {
  WrapPolicy policy;
  policy.rule_ = None{};
  return policy;
}

WrapPolicy WrapPolicy::min_num_params(std::int64_t elements) {
  WrapPolicy policy;
  policy.rule_ = MinNumParams{elements};
  return policy;
}

WrapPolicy WrapPolicy::type_names(std::vector<std::string> names) {
  for (auto& name : names) name = short_name(name);
  WrapPolicy policy;
  policy.rule_ = TypeNames{std::move(names)};
  return policy;
}

WrapPolicy WrapPolicy::modules(std::vector<std::string> types, std::vector<std::string> names,
                               std::vector<std::string> name_suffixes) {
  for (auto& type : types) type = short_name(type);
  WrapPolicy policy;
  policy.rule_ = Modules{std::move(types), std::move(names), std::move(name_suffixes)};
  return policy;
}

std::string WrapPolicy::print() const { return std::visit(Printer{}, rule_); }

bool WrapPolicy::must_match() const {
  return !std::holds_alternative<RepeatedBlocks>(rule_) && !std::holds_alternative<None>(rule_);
}

Expected<WrapPolicy> OptionType<WrapPolicy>::parse(std::string_view text) {
  if (detail::same_name(text, "repeated_blocks") || detail::same_name(text, "auto")) return WrapPolicy();
  if (detail::same_name(text, "none")) return WrapPolicy::none();
  if (text.starts_with(kMinimum)) {
    if (const auto count = parse_count(text.substr(kMinimum.size())))
      return WrapPolicy::min_num_params(*count);
  } else if (auto names = parse_names(text)) {
    return WrapPolicy::type_names(std::move(*names));
  }
  return Unexpected{accepted()};
}

std::string OptionType<WrapPolicy>::print(const WrapPolicy& value) { return value.print(); }

std::string OptionType<WrapPolicy>::accepted() {
  return "repeated_blocks, none, min_num_params=N, or names of module types with commas between";
}

}  // namespace lockstep
