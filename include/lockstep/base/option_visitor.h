// OptionVisitor: what an options struct describes itself to.
//
// A struct `T` has one function in its namespace, `void describe(OptionVisitor& v, T& options)`,
// which names each member once: v.field(...), v.group(...), v.choice(...). Everything that is done
// with options (read, check, print, list) is a visitor.
#pragma once

#include <concepts>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/base/option_codec.h>

namespace lockstep {

class OptionObjects;
class OptionVisitor;
struct NamedObject;
struct ObjectClass;

/// A struct with a `describe` function.
template <class T>
concept Described = requires(OptionVisitor& visitor, T& options) {
  describe(visitor, options);
};

/// One name by which an alternative of a std::variant can be picked. Several names may give the
/// same alternative with other values; the first of them is how it is printed.
template <class Variant>
struct Choice {
  std::string_view name = {};         ///< in flags and files
  Variant value;                      ///< the alternative, with its defaults
  std::string_view help = {};         ///< one sentence
  std::string_view unavailable = {};  ///< not empty: the name is refused, for this reason
};

/// A std::variant that takes a name of its table, too, as flags do: `.strategy = "ddp"`. Derive from it, with
/// constructors from names that call pick(). A name that no row has, or whose row is not available, is
/// refused by OptionTree::validate(), and until then stands for the first alternative. What converts to the
/// last alternative, a pointer, is taken as well.
template <class... Ts>
class NamedVariant : public std::variant<Ts...> {
  using Own = std::variant_alternative_t<sizeof...(Ts) - 1, std::variant<Ts...>>;

 public:
  /// The type that holds one of the alternatives.
  using Variant = std::variant<Ts...>;

  NamedVariant() = default;
  template <class T>
  requires(std::same_as<std::remove_cvref_t<T>, Ts> || ...) NamedVariant(T&& value)
      : Variant(std::forward<T>(value)) {}
  template <class T>
  requires(!(std::same_as<std::remove_cvref_t<T>, Ts> || ...) && std::convertible_to<T, Own>)
      NamedVariant(T&& own)
      : Variant(Own(std::forward<T>(own))) {}

  /// The name that is refused; empty: none.
  const std::string& refused_name() const { return refused_name_; }

 protected:
  /// Takes the value of the row of that name.
  template <class Rows>
  void pick(std::string_view name, const Rows& rows) {
    for (const auto& row : rows) {
      if (!detail::same_name(row.name, name)) continue;
      Variant::operator=(row.value);
      if (!row.unavailable.empty()) refused_name_ = name;
      return;
    }
    refused_name_ = name;
  }

 private:
  std::string refused_name_;
};

/// One member, its type erased. Borrows the member: valid during the visit only.
class LOCKSTEP_API OptionField {
 public:
  /// `range` is what values must lie in, or be one of.
  OptionField(std::string_view name, std::string_view help, OptionRange range);
  virtual ~OptionField();
  OptionField(const OptionField&) = delete;
  OptionField& operator=(const OptionField&) = delete;

  /// The key, without what it is within.
  const std::string& name() const { return name_; }
  /// One sentence on what it is.
  const std::string& help() const { return help_; }
  /// What values must lie in, or be one of.
  const OptionRange& range() const { return range_; }

  /// Sets the member from `text`; a refused text leaves it as it was.
  virtual Expected<void, OptionFailure> read(const OptionText& text) = 0;
  /// Whether the member's present value would be accepted.
  virtual Expected<void, OptionFailure> check() const = 0;
  /// The present value as YAML on one line.
  virtual std::string print() const = 0;
  /// What its type is called, accepts and prints.
  virtual OptionTypeInfo info() const = 0;

 private:
  std::string name_;
  std::string help_;
  OptionRange range_;
};

/// One member that is a std::variant picked by name. Rows are those of its table.
class LOCKSTEP_API OptionChoice {
 public:
  /// One alternative.
  struct Row {
    std::string name;         ///< in flags and files
    std::string help;         ///< one sentence
    std::string unavailable;  ///< why it cannot be taken here; empty: it can
    std::size_t alternative;  ///< index in the variant
  };

  /// `rows` are the alternatives, in the order of help.
  OptionChoice(std::string_view name, std::string_view help, std::vector<Row> rows);
  virtual ~OptionChoice();
  OptionChoice(const OptionChoice&) = delete;
  OptionChoice& operator=(const OptionChoice&) = delete;

  /// The key, without what it is within.
  const std::string& name() const { return name_; }
  /// One sentence on what it is.
  const std::string& help() const { return help_; }
  /// The alternatives, in the order of help.
  const std::vector<Row>& rows() const { return rows_; }
  /// The names of the alternatives.
  std::vector<std::string> names() const;

  /// The row that `name` means, known or not available.
  std::optional<std::size_t> find(std::string_view name) const;
  /// The first row of the alternative that is held, if the table has one.
  std::optional<std::size_t> held() const;
  /// Whether `row` is the first one of its alternative.
  bool is_canonical(std::size_t row) const;

  /// The name that code has given, where no row has it or that row is not available; empty: none.
  virtual std::string refused_name() const { return {}; }

  /// Assigns the value of `row`.
  virtual void pick(std::size_t row) = 0;
  /// Visits the members of the alternative that is held.
  virtual void describe_held(OptionVisitor& visitor) = 0;
  /// Visits the members of a copy of the value of `row`.
  virtual void describe_row(OptionVisitor& visitor, std::size_t row) const = 0;

 private:
  virtual std::size_t held_alternative() const = 0;

  std::string name_;
  std::string help_;
  std::vector<Row> rows_;
};

namespace detail {

template <class T>
class FieldOf final : public OptionField {
 public:
  FieldOf(std::string_view name, T& value, std::string_view help, OptionRange range)
      : OptionField(name, help, std::move(range)), value_(value) {}

  Expected<void, OptionFailure> read(const OptionText& text) override {
    auto value = OptionCodec<T>::read(text, range());
    if (!value) return Unexpected{value.error()};
    value_ = std::move(*value);
    return {};
  }
  Expected<void, OptionFailure> check() const override { return OptionCodec<T>::check(value_, range()); }
  std::string print() const override { return OptionCodec<T>::print(value_); }
  OptionTypeInfo info() const override { return restricted(OptionCodec<T>::info(), range()); }

 private:
  T& value_;
};

template <class Variant>
class ChoiceOf final : public OptionChoice {
 public:
  using Table = std::span<const Choice<Variant>>;

  ChoiceOf(std::string_view name, Variant& value, Table table, std::string_view help)
      : OptionChoice(name, help, rows_of(table)), value_(value), table_(table) {}

  void pick(std::size_t row) override { value_ = table_[row].value; }
  void describe_held(OptionVisitor& visitor) override { describe_alternative(visitor, value_); }
  void describe_row(OptionVisitor& visitor, std::size_t row) const override {
    Variant copy = table_[row].value;
    describe_alternative(visitor, copy);
  }

 private:
  static std::vector<Row> rows_of(Table table) {
    std::vector<Row> rows;
    for (const auto& row : table) {
      rows.push_back(
          {std::string(row.name), std::string(row.help), std::string(row.unavailable), row.value.index()});
    }
    return rows;
  }

  static void describe_alternative(OptionVisitor& visitor, Variant& value) {
    std::visit(
        [&](auto& held) {
          if constexpr (Described<std::remove_reference_t<decltype(held)>>) describe(visitor, held);
        },
        value);
  }

  std::size_t held_alternative() const override { return value_.index(); }
  std::string refused_name() const override {
    if constexpr (requires { value_.refused_name(); }) return value_.refused_name();
    return {};
  }

  Variant& value_;
  Table table_;
};

}  // namespace detail

/// Visits the members of options structs. In `describe`, call field, group and choice; derive from
/// it to do something new with all options.
class LOCKSTEP_API OptionVisitor {
 public:
  /// Visits the members of a group.
  using Members = std::function<void(OptionVisitor&)>;

  virtual ~OptionVisitor();

  /// A member of a type that OptionType knows, or a std::optional or std::vector of one. `name` is
  /// its key (no dots), `help` one sentence.
  template <class T>
  void field(std::string_view name, T& value, std::string_view help, OptionRange range = {}) {
    detail::FieldOf<T> slot(name, value, help, std::move(range));
    visit_field(slot);
  }

  /// A member that is itself a described struct; its keys are `name.KEY`.
  template <Described T>
  void group(std::string_view name, T& options, std::string_view help) {
    visit_group(name, help, [&options](OptionVisitor& visitor) { describe(visitor, options); });
  }

  /// A std::variant picked by a name of `table`, which must outlive the visit. The members of the
  /// alternative picked, if it is described, are `name.KEY`; none may be called `name`.
  template <class Variant>
  void choice(std::string_view name, Variant& value,
              std::type_identity_t<std::span<const Choice<Variant>>> table, std::string_view help) {
    detail::ChoiceOf<Variant> slot(name, value, table, help);
    visit_choice(slot);
  }

  /// A list of objects of `classes`, which files and flags name with their options; see option_objects.h.
  /// `own_hint` says what to do for another class, in a sentence without its end.
  void objects(std::string_view name, std::vector<NamedObject>& objects, std::span<const ObjectClass> classes,
               std::string_view own_hint, std::string_view help);

  /// Called for each field.
  virtual void visit_field(OptionField& field) = 0;
  /// Called for each group; `members` visits what is in it.
  virtual void visit_group(std::string_view name, std::string_view help, const Members& members) = 0;
  /// Called for each choice.
  virtual void visit_choice(OptionChoice& choice) = 0;
  /// Called for each list of objects; does nothing unless overridden.
  virtual void visit_objects(OptionObjects& /*objects*/) {}
};

}  // namespace lockstep
