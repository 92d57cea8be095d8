// What somebody wrote for an option, and where; and how an option of any supported type, alone, in a
// std::optional or in a std::vector, is read from such a text, checked and printed as YAML. Users of options
// need only options.h.
#pragma once

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <lockstep/base/expected.h>
#include <lockstep/base/export.h>
#include <lockstep/base/option_type.h>

namespace lockstep {

/// The text given for one option. Lines and columns count from 1; 0: not from a file.
struct OptionText {
  /// What was written: one value, null, a list or a map.
  enum class Kind {
    kScalar,  ///< one value
    kNull,    ///< null: no value
    kList,    ///< a list
    kMap      ///< a map
  };

  Kind kind = Kind::kScalar;           ///< what was written
  std::string text = {};               ///< of a scalar
  bool quoted = false;                 ///< in quotation marks: "null" is then a word like any other
  std::vector<OptionText> items = {};  ///< of a list, and the values of a map that is kept whole
  std::vector<OptionText> names = {};  ///< the keys of such a map, as many as `items`
  int line = 0;                        ///< of the file, from 1; 0: none
  int column = 0;                      ///< in the line, from 1; 0: none
};

/// How `text` is named in errors: `"abc"`, `a list`, `null`, `a map`.
LOCKSTEP_API std::string shown(const OptionText& text);

/// `text` as it may be written on one line: `abc`, `[1, 2]`, `{class_path: Timer}`. For people: words are not
/// quoted.
LOCKSTEP_API std::string one_line(const OptionText& text);

/// Where an option was given.
struct Source {
  /// Where a value comes from.
  enum class Kind {
    kCode,         ///< a program
    kYaml,         ///< a file
    kEnvironment,  ///< an environment variable
    kFlag          ///< a flag
  };

  Kind kind = Kind::kCode;  ///< where it comes from
  std::string name = {};    ///< the file, the variable or the flag (with its dashes)
  int line = 0;             ///< of the key in the file
  int column = 0;           ///< in the line of YAML, from 1; 0: none

  /// Whether both stand in the same file, or both on the command line, ...
  LOCKSTEP_API bool same_origin(const Source& other) const;
};

/// `conf.yaml:3:5`, `flag --trainer.devices`, `environment variable LOCKSTEP_TRAINER_DEVICES`.
LOCKSTEP_API std::string shown(const Source& source);

/// One option given by the user. Lists of assignments are ordered by precedence: later ones win.
struct Assignment {
  std::string key = {};   ///< dotted: `trainer.strategy.timeout`
  OptionText value = {};  ///< what is assigned
  Source source = {};     ///< where that was said
};

/// What `assignment` says, value by value, on one line each, by their keys: those of objects in a list as
/// `trainer.callbacks[0].init_args.patience`.
LOCKSTEP_API std::vector<std::pair<std::string, std::string>> single_values(const Assignment& assignment);

// Ranges that numbers, durations and list items must lie in, and values of which one must be taken.

/// What an option's value must satisfy; by default everything passes. Durations count in
/// milliseconds. For a list it holds of each item; an empty std::optional always passes.
struct OptionRange {
  double low = -std::numeric_limits<double>::infinity();  ///< the least value
  double high = std::numeric_limits<double>::infinity();  ///< the greatest value
  bool above_low = false;                                 ///< `low` itself is outside
  std::string text = {};                ///< as printed: ">= 1", "> 0", "0..1"; empty: no restriction
  std::vector<std::string> names = {};  ///< the only values, as printed; empty: no restriction

  /// Whether `number` lies inside.
  bool holds(double number) const { return (above_low ? number > low : number >= low) && number <= high; }
};

/// `>= low`
LOCKSTEP_API OptionRange at_least(double low);
/// `>= low`
LOCKSTEP_API OptionRange at_least(std::chrono::milliseconds low);
/// `> low`
LOCKSTEP_API OptionRange more_than(double low);
/// `> low`
LOCKSTEP_API OptionRange more_than(std::chrono::milliseconds low);
/// `low..high`, both included
LOCKSTEP_API OptionRange between(double low, double high);
/// One of `names`, for a text: `v.field("order", o.order, "Order of the rows", ls::one_of({"as_written",
/// "shuffled"}))`. Flags and files may write a name in any case: the option gets it as it is spelled here. Of
/// another type, such as a number, values as they are printed. `names` must not be empty.
LOCKSTEP_API OptionRange one_of(std::vector<std::string> names);

/// Why a value was refused.
struct OptionFailure {
  std::string expected = {};  ///< what is accepted
  std::string got = {};       ///< what was there
  int line = 0;               ///< of the text, or of the item of a list; 0: unknown
  int column = 0;             ///< in the text, from 1; 0: none
};

/// What a type of option is called and accepts, before ranges.
struct OptionTypeInfo {
  std::string type = {};                ///< "int", "float?", "list of int"
  std::string accepted = {};            ///< "an integer"
  std::vector<std::string> names = {};  ///< words that are accepted, where there is a fixed set of them
  bool is_bool = false;                 ///< a bare flag means true
  bool is_list = false;                 ///< a repeated flag appends
  bool is_map = false;                  ///< may be given as a map in YAML: read as `{KEY: VALUE, ...}`
};

namespace detail {

/// Whether `text` stands for an empty std::optional.
LOCKSTEP_API bool means_null(const OptionText& text);
/// `a,b` as the list of a and b, positions kept; lists are returned as they are.
LOCKSTEP_API std::vector<OptionText> items_of(const OptionText& text);
/// A list of scalars as the text `[A, B]`; nothing where `text` is no such list.
LOCKSTEP_API std::optional<OptionText> joined(const OptionText& text);
/// `text` as a YAML scalar, quoted where it must be; `is_text`: also where it looks like another type.
LOCKSTEP_API std::string yaml_scalar(std::string_view text, bool is_text);
LOCKSTEP_API OptionFailure refusal(const OptionText& text, std::string expected, const OptionRange& range);
LOCKSTEP_API OptionFailure refusal(std::string got, std::string expected, const OptionRange& range);
/// The name of `range` that `text` is but for case, or `text` itself.
LOCKSTEP_API std::string spelled_as_in(const OptionRange& range, const std::string& text);
/// `info` of an option whose values `range` lists; as it is where that lists none.
LOCKSTEP_API OptionTypeInfo restricted(OptionTypeInfo info, const OptionRange& range);

template <class T>
bool in_range(const T& value, const OptionRange& range) {
  if (!range.names.empty() &&
      std::ranges::find(range.names, OptionType<T>::print(value)) == range.names.end())
    return false;
  if constexpr (std::is_arithmetic_v<T>) {
    return range.holds(static_cast<double>(value));
  } else if constexpr (requires { value.count(); }) {
    return range.holds(static_cast<double>(value.count()));
  } else {
    return true;
  }
}

/// A scalar.
template <class T>
struct OptionCodec {
  static Expected<T, OptionFailure> read(const OptionText& text, const OptionRange& range) {
    if constexpr (requires { OptionType<T>::kIsList; }) {
      if (const auto list = detail::joined(text)) return read(*list, range);
    }
    if (text.kind != OptionText::Kind::kScalar) {
      return Unexpected{refusal(text, OptionType<T>::accepted(), range)};
    }
    auto parsed = OptionType<T>::parse(spelled_as_in(range, text.text));
    if (!parsed) return Unexpected{refusal(text, parsed.error(), range)};
    if (!in_range(*parsed, range)) return Unexpected{refusal(text, OptionType<T>::accepted(), range)};
    return std::move(*parsed);
  }

  static Expected<void, OptionFailure> check(const T& value, const OptionRange& range) {
    const auto printed = OptionType<T>::print(value);
    const auto parsed = OptionType<T>::parse(printed);
    if (!parsed) return Unexpected{refusal(printed, parsed.error(), range)};
    if (!in_range(value, range)) return Unexpected{refusal(printed, OptionType<T>::accepted(), range)};
    return {};
  }

  static std::string print(const T& value) {
    constexpr bool is_text = std::is_same_v<T, std::string> || std::is_same_v<T, std::filesystem::path>;
    return yaml_scalar(OptionType<T>::print(value), is_text);
  }

  static OptionTypeInfo info() {
    OptionTypeInfo info{
        .type = "value", .accepted = OptionType<T>::accepted(), .is_bool = std::is_same_v<T, bool>};
    if constexpr (requires { OptionType<T>::type(); }) info.type = OptionType<T>::type();
    if constexpr (requires { OptionType<T>::kIsMap; }) info.is_map = OptionType<T>::kIsMap;
    if constexpr (requires { OptionType<T>::names(); }) info.names = OptionType<T>::names();
    return info;
  }
};

template <class T>
struct OptionCodec<std::optional<T>> {
  static Expected<std::optional<T>, OptionFailure> read(const OptionText& text, const OptionRange& range) {
    if (means_null(text)) return std::optional<T>();
    auto value = OptionCodec<T>::read(text, range);
    if (!value) return Unexpected{std::move(value.error())};
    return std::optional<T>(std::move(*value));
  }

  static Expected<void, OptionFailure> check(const std::optional<T>& value, const OptionRange& range) {
    if (!value) return {};
    return OptionCodec<T>::check(*value, range);
  }

  static std::string print(const std::optional<T>& value) {
    return value ? OptionCodec<T>::print(*value) : "null";
  }

  static OptionTypeInfo info() {
    auto info = OptionCodec<T>::info();
    info.type += " or null";
    info.accepted += " or null";
    return info;
  }
};

template <class T>
struct OptionCodec<std::vector<T>> {
  static Expected<std::vector<T>, OptionFailure> read(const OptionText& text, const OptionRange& range) {
    if (text.kind == OptionText::Kind::kMap || text.kind == OptionText::Kind::kNull) {
      return Unexpected{refusal(text, info().accepted, {})};
    }
    std::vector<T> values;
    for (const auto& item : items_of(text)) {
      auto value = OptionCodec<T>::read(item, range);
      if (!value) return Unexpected{value.error()};
      values.push_back(std::move(*value));
    }
    return values;
  }

  static Expected<void, OptionFailure> check(const std::vector<T>& values, const OptionRange& range) {
    for (const T& value : values) {
      if (auto checked = OptionCodec<T>::check(value, range); !checked) return checked;
    }
    return {};
  }

  static std::string print(const std::vector<T>& values) {
    std::string text;
    for (const T& value : values) text += (text.empty() ? "" : ", ") + OptionCodec<T>::print(value);
    return "[" + text + "]";
  }

  static OptionTypeInfo info() {
    auto info = OptionCodec<T>::info();
    info.type = "list of " + info.type;
    info.accepted = "a list, each item " + info.accepted;
    info.is_bool = false;
    info.is_list = true;
    return info;
  }
};

}  // namespace detail

}  // namespace lockstep
