// OptionType: how a type of option is read from text and printed.
#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <lockstep/base/expected.h>
#include <lockstep/base/export.h>

namespace lockstep {

/// Specialise for a type of your own to use it as an option:
/// ```
/// template <> struct OptionType<T> {
///   static Expected<T> parse(std::string_view text);  // the error says what would be accepted
///   static std::string print(const T& value);  // parse(print(v)) gives v; fails for a v that is invalid
///   static std::string accepted();             // "an integer or a fraction"
///   static std::string type();                 // optional; one word for help and tables
///   static std::vector<std::string> names();   // optional; words that parse() accepts
///   static constexpr bool kIsMap = true;       // optional; YAML may give a map: parse("{KEY: VALUE, ...}")
///   static constexpr bool kIsList = true;      // optional; YAML may give a list: parse("[A, B, ...]")
/// };
/// ```
/// std::optional and std::vector of such types work without more.
template <class T>
struct OptionType;

/// One row of an enum's table of names.
template <class Enum>
struct OptionName {
  std::string_view name;  ///< in flags and files
  Enum value;             ///< in code
};

/// An enum whose namespace has `std::span<const OptionName<E>> option_names(E)`. The first row of a
/// value is how it is printed; names are read without regard to case.
template <class T>
concept NamedEnum = std::is_enum_v<T> && requires(T value) {
  { option_names(value) } -> std::convertible_to<std::span<const OptionName<T>>>;
};

namespace detail {

/// Compares names as users type them: case does not count.
LOCKSTEP_API bool same_name(std::string_view a, std::string_view b);
/// `one of a, b, c`
LOCKSTEP_API std::string one_of(std::span<const std::string> names);

}  // namespace detail

#define LOCKSTEP_OPTION_TYPE(T)                      \
  template <>                                        \
  struct LOCKSTEP_API OptionType<T> {                \
    static Expected<T> parse(std::string_view text); \
    static std::string print(const T& value);        \
    static std::string accepted();                   \
    static std::string type();                       \
  }
LOCKSTEP_OPTION_TYPE(bool);  ///< true, false, and YAML's other words for them
LOCKSTEP_OPTION_TYPE(int);
LOCKSTEP_OPTION_TYPE(std::int64_t);
LOCKSTEP_OPTION_TYPE(std::uint64_t);
LOCKSTEP_OPTION_TYPE(double);  ///< finite
LOCKSTEP_OPTION_TYPE(std::string);
LOCKSTEP_OPTION_TYPE(std::filesystem::path);
#undef LOCKSTEP_OPTION_TYPE

/// `250ms`, `30s`, `5m`, `1h`, `2d`, `HH:MM:SS`, `DD:HH:MM:SS`, and as Python has them: `1 day, 2:00:00`,
/// `{days: 1, hours: 2}`; printed in the largest unit that fits.
template <>
struct LOCKSTEP_API OptionType<std::chrono::milliseconds> {
  /// YAML may give a map: the arguments of Python's timedelta.
  static constexpr bool kIsMap = true;
  static Expected<std::chrono::milliseconds> parse(std::string_view text);
  static std::string print(const std::chrono::milliseconds& value);
  static std::string accepted();
  static std::string type();
};

template <NamedEnum T>
struct OptionType<T> {
  static Expected<T> parse(std::string_view text) {
    for (const auto& row : rows()) {
      if (detail::same_name(row.name, text)) return row.value;
    }
    return Unexpected{accepted()};
  }
  static std::string print(const T& value) {
    for (const auto& row : rows()) {
      if (row.value == value) return std::string(row.name);
    }
    return "value " + std::to_string(static_cast<long long>(value)) + " without a name";
  }
  static std::string accepted() { return detail::one_of(names()); }
  static std::string type() { return "name"; }
  /// What flags and files may say.
  static std::vector<std::string> names() {
    std::vector<std::string> found;
    for (const auto& row : rows()) found.emplace_back(row.name);
    return found;
  }

 private:
  static std::span<const OptionName<T>> rows() { return option_names(T{}); }
};

// EnumOption: an option of an enum's type that code may also give by its name, as flags and YAML do.

namespace detail {

/// @throws ConfigError naming `text` and what is accepted instead
[[noreturn]] LOCKSTEP_API void refuse_name(std::string_view text, const std::string& accepted);

}  // namespace detail

/// `.mode = MonitorMode::kMax` or `.mode = "max"`; reads as the enum. Where the enum has kTrue and kFalse, a
/// bool is accepted, too.
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

  /// The value.
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
