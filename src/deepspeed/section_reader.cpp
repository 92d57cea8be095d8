#include "deepspeed/section_reader.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/base/option_visitor.h>
#include <lockstep/base/options.h>
#include <lockstep/deepspeed/config.h>

#include "base/format.h"
#include "base/option_keys.h"
#include "deepspeed/hjson.h"
#include "formats/file_text.h"

namespace lockstep::deepspeed {
namespace {

/// `2e8` as `200000000`; text that is no whole number of 64 bits is returned unchanged.
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

// How `value` is named in errors: `"abc"`, `2.5`, `a list`, `null`, `an object`.
std::string shown(const Hjson& value) {
  if (value.kind == Hjson::Kind::kArray) return "a list";
  if (value.kind == Hjson::Kind::kObject) return "an object";
  if (value.kind == Hjson::Kind::kNull) return "null";
  return value.kind == Hjson::Kind::kText ? lockstep::detail::in_quotes(value.text) : value.text;
}

// Sets `field` from `value`. For integers 2e8 is 200000000, and 2.0 is 2; numbers may be texts; settings
// that are texts take no others.
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

/// Whether DeepSpeed takes a name that is written otherwise, such as "Linear", for another one in silence.
bool is_exact(std::string_view path) { return path == "scheduler.params.warmup_type"; }

/// Every key and every section, each once.
class Collector final : public KeyedVisitor {
 public:
  std::vector<std::string> paths;

  void visit_field(OptionField& field) override { paths.push_back(key(field.name())); }
  void visit_choice(OptionChoice& choice) override { paths.push_back(key(choice.name())); }
  void visit_group(std::string_view name, std::string_view help, const Members& members) override {
    paths.push_back(key(name));
    KeyedVisitor::visit_group(name, help, members);
  }
};

const std::vector<std::string>& all_paths() {
  static const auto paths = [] {
    Collector collector;
    DeepSpeedConfig config;
    describe(collector, config);
    return std::move(collector.paths);
  }();
  return paths;
}

/// The only section other than the one at `path` that has `key`.
std::string home_of(std::string_view key, const std::string& path) {
  std::vector<std::string> homes;
  for (const auto& known : all_paths()) {
    const auto dot = known.rfind('.');
    const auto section = dot == std::string::npos ? "" : known.substr(0, dot);
    const auto name = dot == std::string::npos ? known : known.substr(dot + 1);
    if (name == key && section != path) homes.push_back(section.empty() ? "the top level" : section);
  }
  return homes.size() == 1 ? homes.front() : "";
}

// `did you mean KEY?` for a key near to one of `known`, those of the section at `path`; else `KEY belongs to
// SECTION`, if another section has exactly this one; else nothing.
std::string where_known(std::string_view key, std::span<const std::string> known, const std::string& path) {
  const auto home = home_of(key, path);
  if (!home.empty()) return std::string(key) + " belongs to " + home;
  return did_you_mean(nearest_name(key, known));
}

// Long sections have their page.
std::string accepted_keys(const std::vector<std::string>& known) {
  constexpr std::size_t kMostShown = 16;
  return known.empty() || known.size() > kMostShown ? "" : lockstep::detail::one_of(known);
}

constexpr std::string_view kAuto = "auto";

const HjsonMember* member_of(const Hjson& object, std::string_view key) {
  const auto found = std::ranges::find(object.members, key, &HjsonMember::key);
  return found == object.members.end() ? nullptr : &*found;
}

[[noreturn]] void refuse(const std::string& key, const std::string& expected, const std::string& got,
                         const std::string& where, const std::string& hint = {}) {
  throw ConfigError("deepspeed", {.what = key,
                                  .expected = expected,
                                  .got = lockstep::detail::printable(got),
                                  .where = where,
                                  .hint = hint});
}

/// `{"enabled": false}`, false and null do not ask for anything.
bool asks_for_nothing(const Hjson& value) {
  if (value.kind == Hjson::Kind::kNull || value.text == "false") return true;
  const auto* enabled = member_of(value, "enabled");
  return enabled != nullptr && enabled->value.text == "false";
}

/// Whether `choice` names nothing, as null, {} and {"type": null} do in DeepSpeed.
bool names_nothing(const Hjson& choice) {
  if (choice.kind == Hjson::Kind::kNull) return true;
  if (choice.kind != Hjson::Kind::kObject) return false;
  const auto* const type = member_of(choice, "type");
  return choice.members.empty() || (type != nullptr && type->value.kind == Hjson::Kind::kNull);
}

}  // namespace

SectionReader::SectionReader(const Hjson& object, const std::string& name) : root_(object), name_(name) {}

void SectionReader::read(const Members& members) { read_section(root_, "", members); }

void SectionReader::read_section(const Hjson& object, const std::string& path, const Members& members) {
  auto outer = std::exchange(section_, {.object = &object, .path = path});
  members(*this);
  for (const auto& member : object.members) {
    if (std::ranges::find(section_.known, member.key) == section_.known.end()) report_unknown(member);
  }
  section_ = std::move(outer);
}

const HjsonMember* SectionReader::look_up(std::string_view key) {
  section_.known.emplace_back(key);
  const auto* member = member_of(*section_.object, key);
  if (member != nullptr) given_.emplace(path_of(key), where(member->place));
  return member;
}

void SectionReader::visit_field(OptionField& field) {
  const auto* member = look_up(field.name());
  if (member == nullptr) return;
  const auto& value = member->value;
  const auto info = field.info();
  const bool is_auto = value.kind == Hjson::Kind::kText && value.text == kAuto;
  if (is_auto) autos_.insert(path_of(field.name()));
  const bool takes_auto = std::ranges::find(info.names, kAuto) != info.names.end();
  if (is_auto && !takes_auto && is_strict(section_.path)) return;  // keeps its default, as in DeepSpeed
  if (is_exact(path_of(field.name())) && std::ranges::count(info.names, value.text) == 0)
    refuse(path_of(field.name()), info.accepted + ", which DeepSpeed takes for log otherwise", shown(value),
           where(value.place), did_you_mean(nearest_name(value.text, info.names)));
  if (const auto done = read_value(field, value); !done) {
    const auto& failure = done.error();
    const Place place = failure.line == 0 ? value.place : Place{failure.line, failure.column};
    refuse(path_of(field.name()), failure.expected, failure.got, where(place),
           did_you_mean(nearest_name(value.text, info.names)));
  }
}

void SectionReader::visit_group(std::string_view name, std::string_view, const Members& members) {
  const auto* member = look_up(name);
  if (member == nullptr || member->value.kind == Hjson::Kind::kNull) return;
  const auto path = path_of(name);
  if (member->value.kind != Hjson::Kind::kObject)
    refuse(path, "a section: an object of settings", shown(member->value), where(member->value.place));
  read_section(member->value, path, members);
}

void SectionReader::visit_choice(OptionChoice& choice) {
  const auto* member = look_up(choice.name());
  if (member == nullptr || names_nothing(member->value)) return;
  const auto path = path_of(choice.name());
  const auto outer = section_;
  try {
    read_choice(choice, *member, path);
  } catch (const ConfigError& error) {
    section_ = outer;
    refused_.emplace(path, error);
    choice.pick(0);
  }
}

void SectionReader::read_choice(OptionChoice& choice, const HjsonMember& member, const std::string& path) {
  if (member.value.kind != Hjson::Kind::kObject)
    refuse(path, "an object with type and params", shown(member.value), where(member.value.place));
  read_section(member.value, path, [&](OptionVisitor&) {
    pick(choice, member);
    visit_group("params", "", [&](OptionVisitor& visitor) { choice.describe_held(visitor); });
  });
}

void SectionReader::pick(OptionChoice& choice, const HjsonMember& member) {
  const auto names = choice.names();
  const auto* type = look_up("type");
  if (type == nullptr) refuse(path_of("type"), lockstep::detail::one_of(names), "none", where(member.place));
  const auto row = type->value.kind == Hjson::Kind::kText ? choice.find(type->value.text) : std::nullopt;
  if (!row)
    refuse(path_of("type"), lockstep::detail::one_of(names), shown(type->value), where(type->value.place),
           did_you_mean(nearest_name(type->value.text, names)));
  const auto& reason = choice.rows()[*row].unavailable;
  if (!reason.empty())
    refuse(path_of("type") + " " + choice.rows()[*row].name + " is not available: " + reason, "", "",
           where(type->value.place));
  choice.pick(*row);
}

void SectionReader::report_unknown(const HjsonMember& member) {
  const auto path = path_of(lockstep::detail::printable(member.key));
  if (const auto* const block = refused_block(path)) {
    if (!block->is_asked_for(member.value)) return;
    refuse(path + " is not supported: without it " + std::string(block->consequence), "", "",
           where(member.place), std::string(block->instead));
  }
  if (const auto reason = unsupported(path); !reason.empty()) {
    if (!asks_for_nothing(member.value))
      warnings_.push_back(where(member.place) + ": " + path +
                          " is not supported and has no effect: " + std::string(reason));
    return;
  }
  auto hint = std::string(instead_of(path));
  if (hint.empty()) hint = where_known(member.key, section_.known, section_.path);
  if (is_strict(section_.path) || !instead_of(path).empty())
    refuse("unknown key " + path, accepted_keys(section_.known), "", where(member.place), hint);
  warnings_.push_back(where(member.place) + ": unknown key " + path + " has no effect" +
                      (hint.empty() ? "" : "; " + hint));
}

std::string SectionReader::path_of(std::string_view key) const { return joined_key(section_.path, key); }

}  // namespace lockstep::deepspeed
