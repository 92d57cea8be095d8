// The pass that reads a parsed file into what describes itself.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/base/option_visitor.h>

#include "deepspeed/hjson.h"

namespace lockstep::deepspeed {

/// Visits a described struct and reads what `object` has for its members. A choice is an object with "type",
/// its name, and "params", the members of what was chosen; what is wrong in it is kept for whoever uses it.
class SectionReader final : public OptionVisitor {
 public:
  /// Borrows both: they must outlive the reader.
  SectionReader(const Hjson& object, const std::string& name);

  /// Reads the object by `members`, then deals with keys that none of them took.
  /// @throws ConfigError for a value that is refused, and for an unknown key in a strict section
  void read(const Members& members);

  void visit_field(OptionField& field) override;
  void visit_group(std::string_view name, std::string_view help, const Members& members) override;
  void visit_choice(OptionChoice& choice) override;

  /// Every key that was read or that has a section, with its place.
  std::map<std::string, std::string> take_given() { return std::move(given_); }
  /// Those of them that are "auto".
  std::set<std::string> take_autos() { return std::move(autos_); }
  /// Choices that cannot be had, which are as if they were not given.
  std::map<std::string, ConfigError> take_refused() { return std::move(refused_); }
  std::vector<std::string> take_warnings() { return std::move(warnings_); }

 private:
  /// The object that is read now, and what is known of it.
  struct Section {
    const Hjson* object = nullptr;
    std::string path = {};
    std::vector<std::string> known = {};  ///< keys that members have
  };

  void read_section(const Hjson& object, const std::string& path, const Members& members);
  const HjsonMember* look_up(std::string_view key);
  void read_choice(OptionChoice& choice, const HjsonMember& member, const std::string& path);
  void pick(OptionChoice& choice, const HjsonMember& member);
  void report_unknown(const HjsonMember& member);

  std::string path_of(std::string_view key) const;
  std::string where(Place place) const { return place_in(name_, place); }

  const Hjson& root_;
  const std::string& name_;
  Section section_;
  std::map<std::string, std::string> given_;
  std::set<std::string> autos_;
  std::map<std::string, ConfigError> refused_;
  std::vector<std::string> warnings_;
};

}  // namespace lockstep::deepspeed
