#include "deepspeed/section_reader.h"

#include <algorithm>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/base/nearest.h>

#include "base/option_keys.h"
#include "deepspeed/hjson_value.h"
#include "deepspeed/known_keys.h"
#include "deepspeed/refused_blocks.h"
#include "deepspeed/where_known.h"
#include "formats/in_quotes.h"

namespace lockstep::deepspeed {
namespace {

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

/// null, {} and {"type": null}, as DeepSpeed has it.
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
    refuse("unknown key " + path, "", "", where(member.place), hint);
  warnings_.push_back(where(member.place) + ": unknown key " + path + " has no effect" +
                      (hint.empty() ? "" : "; " + hint));
}

std::string SectionReader::path_of(std::string_view key) const { return joined_key(section_.path, key); }

}  // namespace lockstep::deepspeed
