#include <lockstep/base/options.h>

#include <algorithm>

#include <lockstep/base/error.h>
#include <lockstep/base/option_objects.h>
#include <lockstep/base/option_visitor.h>

#include "base/format.h"
#include "base/option_keys.h"

namespace lockstep {
namespace {

class YamlPrinter final : public OptionVisitor {
 public:
  std::string text;

  void visit_field(OptionField& field) override { line(field.name() + ": " + field.print()); }

  void visit_group(std::string_view name, std::string_view, const Members& members) override {
    line(std::string(name) + ":");
    const auto before = text.size();
    inside([&] { members(*this); });
    if (text.size() == before) text.insert(before - 1, " {}");
  }

  void visit_choice(OptionChoice& choice) override {
    const auto held = choice.held();
    if (!held) return line("# " + choice.name() + ": set in code");
    const auto name = detail::yaml_scalar(choice.rows()[*held].name, true);
    const auto start = text.size();
    line(choice.name() + ":");
    inside([&] { line(std::string(kChoiceName) + ": " + name); });
    const auto before = text.size();
    inside([&] { choice.describe_held(*this); });
    if (text.size() > before) return;
    text.resize(start);
    line(choice.name() + ": " + name);
  }

  void visit_objects(OptionObjects& list) override {
    if (list.objects().empty()) return line(list.name() + ": []");
    line(list.name() + ":");
    inside([&] {
      for (auto& object : list.objects()) print_object(list, object);
    });
  }

 private:
  void print_object(const OptionObjects& list, NamedObject& object) {
    line("- " + std::string(kClassPath) + ": " + detail::yaml_scalar(object.class_name, true));
    inside(
        [&] { visit_group(kInitArgs, "", [&](OptionVisitor& visitor) { list.describe(visitor, object); }); });
  }

  void line(const std::string& content) { text += std::string(2 * depth_, ' ') + content + "\n"; }

  template <class Visit>
  void inside(const Visit& visit) {
    ++depth_;
    visit();
    --depth_;
  }

  std::size_t depth_ = 0;
};

}  // namespace

std::string OptionTree::to_yaml() const {
  YamlPrinter printer;
  visit(printer);
  return std::move(printer.text);
}

namespace {

// The type that help shows for a user's type without a name; see OptionCodec::info.
constexpr std::string_view kUnnamedType = "value";

std::string accepted_by(const OptionField& field, const OptionTypeInfo& info) {
  if (!info.names.empty()) return joined(info.names);
  const bool needs_words = field.range().text.empty() && info.type.find(kUnnamedType) != std::string::npos;
  return needs_words ? info.accepted : field.range().text;
}

class Lister final : public KeyedVisitor {
 public:
  std::vector<OptionInfo> options;
  std::vector<OptionGroup> groups;

  void visit_field(OptionField& field) override {
    const auto info = field.info();
    add({.key = key(field.name()),
         .type = info.type,
         .default_value = field.print(),
         .accepted = accepted_by(field, info),
         .help = field.help(),
         .choice = choice_,
         .only_for = only_for_,
         .is_bool = info.is_bool,
         .is_list = info.is_list});
  }

  void visit_group(std::string_view name, std::string_view help, const Members& members) override {
    groups.push_back({key(name), std::string(help)});
    KeyedVisitor::visit_group(name, help, members);
  }

  void visit_choice(OptionChoice& choice) override {
    const auto held = choice.held();
    const auto path = key(choice.name());
    add({.key = path,
         .type = "name",
         .default_value = held ? choice.rows()[*held].name : "set in code",
         .accepted = joined(choice.names()),
         .help = choice.help(),
         .choice = choice_,
         .only_for = only_for_,
         .is_choice = true});
    for (std::size_t row = 0; row < choice.rows().size(); ++row) {
      if (choice.is_canonical(row)) list_alternative(choice, path, row, held == row);
    }
  }

  void visit_objects(OptionObjects& list) override {
    std::vector<std::string> names;
    for (const auto& object : list.objects()) names.push_back(object.class_name);
    add({.key = key(list.name()),
         .type = "list of class names",
         .default_value = "[" + joined(names) + "]",
         .accepted = joined(list.class_names()),
         .help = list.help(),
         .choice = choice_,
         .only_for = only_for_,
         .is_list = true,
         .is_objects = true});
  }

 private:
  void list_alternative(OptionChoice& choice, const std::string& path, std::size_t row, bool is_held) {
    const auto outer_choice = std::exchange(choice_, path);
    const auto outer_names = std::exchange(only_for_, {choice.rows()[row].name});
    inside(choice.name(), [&] { is_held ? choice.describe_held(*this) : choice.describe_row(*this, row); });
    choice_ = outer_choice;
    only_for_ = outer_names;
  }

  // Alternatives often share members (timeout, backend): those that agree become one entry.
  void add(OptionInfo info) {
    const auto same = std::find_if(options.begin(), options.end(), [&](const OptionInfo& other) {
      return other.key == info.key && other.type == info.type && other.accepted == info.accepted &&
             !other.only_for.empty() && !info.only_for.empty();
    });
    if (same == options.end()) {
      options.push_back(std::move(info));
    } else {
      same->only_for.insert(same->only_for.end(), info.only_for.begin(), info.only_for.end());
      if (info.default_value == same->default_value) return;
      for (const auto& name : info.only_for) same->other_defaults[name] = info.default_value;
    }
  }

  std::string choice_;
  std::vector<std::string> only_for_;
};

class Validator final : public KeyedVisitor {
 public:
  void visit_field(OptionField& field) override {
    const auto checked = field.check();
    if (checked) return;
    const auto& failure = checked.error();
    throw ConfigError("options", {.what = key(field.name()),
                                  .expected = failure.expected,
                                  .got = failure.got + " (set in code)",
                                  .where = {},
                                  .hint = did_you_mean(nearest_name(failure.got, field.info().names))});
  }

  void visit_choice(OptionChoice& choice) override {
    const auto refused = choice.refused_name();
    const auto held = refused.empty() ? choice.held() : choice.find(refused);
    if (!held && !refused.empty()) {
      throw ConfigError("options", {.what = key(choice.name()),
                                    .expected = detail::one_of(choice.names()),
                                    .got = '"' + refused + "\" (set in code)",
                                    .hint = did_you_mean(nearest_name(refused, choice.names()))});
    }
    if (held && !choice.rows()[*held].unavailable.empty()) {
      const auto& row = choice.rows()[*held];
      throw ConfigError(
          "options", {.what = key(choice.name()) + " " + row.name + " is not available: " + row.unavailable,
                      .expected = {},
                      .got = {},
                      .where = "a value set in code",
                      .hint = {}});
    }
    inside(choice.name(), [&] { choice.describe_held(*this); });
  }

  void visit_objects(OptionObjects& list) override {
    for (std::size_t i = 0; i < list.objects().size(); ++i) {
      inside(list.name() + "[" + std::to_string(i) + "]." + std::string(kInitArgs),
             [&] { list.describe(*this, list.objects()[i]); });
    }
  }
};

}  // namespace

void OptionTree::visit(OptionVisitor& visitor) const {
  for (const auto& root : roots_) {
    if (root.prefix.empty()) {
      root.members(visitor);
    } else {
      visitor.visit_group(root.prefix, root.help, root.members);
    }
  }
}

void OptionTree::validate() const {
  Validator validator;
  visit(validator);
}

std::vector<OptionInfo> OptionTree::list() const {
  Lister lister;
  visit(lister);
  return std::move(lister.options);
}

std::vector<OptionGroup> OptionTree::groups() const {
  Lister lister;
  visit(lister);
  return std::move(lister.groups);
}

std::vector<std::string> OptionTree::keys() const {
  std::vector<std::string> keys;
  for (auto& info : list()) {
    if (std::find(keys.begin(), keys.end(), info.key) == keys.end()) keys.push_back(std::move(info.key));
  }
  return keys;
}

OptionField::OptionField(std::string_view name, std::string_view help, OptionRange range)
    : name_(name), help_(help), range_(std::move(range)) {}
OptionField::~OptionField() = default;

OptionChoice::OptionChoice(std::string_view name, std::string_view help, std::vector<Row> rows)
    : name_(name), help_(help), rows_(std::move(rows)) {}
OptionChoice::~OptionChoice() = default;

std::vector<std::string> OptionChoice::names() const {
  std::vector<std::string> names;
  for (const auto& row : rows_) names.push_back(row.name);
  return names;
}

std::optional<std::size_t> OptionChoice::find(std::string_view name) const {
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    if (detail::same_name(rows_[i].name, name)) return i;
  }
  return std::nullopt;
}

std::optional<std::size_t> OptionChoice::held() const {
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    if (rows_[i].alternative == held_alternative()) return i;
  }
  return std::nullopt;
}

bool OptionChoice::is_canonical(std::size_t row) const {
  return std::none_of(rows_.begin(), rows_.begin() + static_cast<std::ptrdiff_t>(row),
                      [&](const Row& other) { return other.alternative == rows_[row].alternative; });
}

OptionVisitor::~OptionVisitor() = default;

}  // namespace lockstep
