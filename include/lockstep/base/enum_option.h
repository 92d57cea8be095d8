// EnumOption: an option of an enum's type that code may also give by its name, as flags and YAML do.
#pragma once

#include <concepts>
#include <string_view>

#include <lockstep/base/export.h>
#include <lockstep/base/option_type.h>

namespace lockstep {

namespace detail {

/// @throws ConfigError naming `text` and what is accepted instead
[[noreturn]] LOCKSTEP_API void refuse_name(std::string_view text, const std::string& accepted);

}  // namespace detail

/// `.mode = MonitorMode::kMax` or `.mode = "max"`; reads as the enum. Where the enum has kTrue and kFalse, a
/// bool is as good.
template <NamedEnum Enum>
class EnumOption {
 public:
  constexpr EnumOption(Enum value) : value_(value) {}
  /// @throws ConfigError for a text that is none of the names
  template <std::convertible_to<std::string_view> Text>
  EnumOption(const Text& name) : value_(value_of(name)) {}
  template <std::same_as<bool> Bool>
  requires requires { Enum::kTrue, Enum::kFalse; }
  constexpr EnumOption(Bool value) : value_(value ? Enum::kTrue : Enum::kFalse) {}

  constexpr operator Enum() const { return value_; }

 private:
  static Enum value_of(std::string_view name) {
    const auto found = OptionType<Enum>::parse(name);
    if (!found) detail::refuse_name(name, found.error());
    return *found;
  }

  Enum value_;
};

template <NamedEnum Enum>
struct OptionType<EnumOption<Enum>> : OptionType<Enum> {
  static Expected<EnumOption<Enum>> parse(std::string_view text) {
    const auto found = OptionType<Enum>::parse(text);
    if (!found) return Unexpected{found.error()};
    return EnumOption<Enum>(*found);
  }
};

}  // namespace lockstep
