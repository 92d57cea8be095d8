// The `devices` option of Trainer and Fabric, in all the forms that Lightning takes.
#pragma once

#include <concepts>
#include <initializer_list>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/base/option_type.h>

namespace lockstep {

/// A number of devices, `4`, where -1 stands for all there are; their indices, `{1, 3}`; or "auto", the
/// default. As text: "auto", "4", "-1", "1, 3", and "2," for the one index 2.
/// What a number or an index means, and whether there is such a device, is for parse_devices() to say.
class LOCKSTEP_API Devices {
 public:
  struct Auto {
    bool operator==(const Auto&) const = default;
  };
  using Indices = std::vector<int>;

  Devices() = default;
  Devices(int count) : value_(count) {}
  Devices(Indices indices) : value_(std::move(indices)) {}
  Devices(std::initializer_list<int> indices) : value_(Indices(indices)) {}
  /// @throws ConfigError naming the forms that are accepted
  Devices(std::string_view text);
  Devices(const std::string& text) : Devices(std::string_view(text)) {}
  Devices(const char* text) : Devices(std::string_view(text)) {}
  /// Neither true nor 0.5 is a number of devices.
  template <class T>
  requires std::same_as<T, bool> || std::floating_point<T> Devices(T)
  = delete;

  bool is_auto() const { return std::holds_alternative<Auto>(value_); }
  /// The number; none for "auto" and for indices.
  const int* number() const { return std::get_if<int>(&value_); }
  /// The indices; none for "auto" and for a number.
  const Indices* indices() const { return std::get_if<Indices>(&value_); }
  /// A text that gives the same.
  std::string text() const;

  bool operator==(const Devices&) const = default;

 private:
  std::variant<Auto, int, Indices> value_;
};

template <>
struct LOCKSTEP_API OptionType<Devices> {
  static constexpr bool kIsList = true;
  static Expected<Devices> parse(std::string_view text);
  static std::string print(const Devices& devices) { return devices.text(); }
  static std::string accepted();
  static std::string type() { return "int or list"; }
};

}  // namespace lockstep
