// The pass that reads a section of DeepSpeed's configuration into the struct that describes it, and what it
// knows of keys that are no settings of ours: other names, unsupported and refused sections.
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
/// the name of an alternative, and "params", its members; errors in it are returned by take_refused().
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
  /// The given keys whose value is "auto".
  std::set<std::string> take_autos() { return std::move(autos_); }
  /// The errors of choices that were refused, which count as not given.
  std::map<std::string, ConfigError> take_refused() { return std::move(refused_); }
  std::vector<std::string> take_warnings() { return std::move(warnings_); }

 private:
  /// The object that is being read.
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

/// Whether an unknown key in the section at `path` is an error. Elsewhere DeepSpeed ignores it, and lockstep
/// warns.
bool is_strict(std::string_view path);

/// Why the known key at `path` has no effect; empty for other keys.
std::string_view unsupported(std::string_view path);

/// What to write instead of the key at `path`, which has never been accepted; empty for other keys.
std::string_view instead_of(std::string_view path);

/// Replaces former names and forms of keys by the present ones in `root`, a whole configuration. Adds a
/// warning for each deprecated key to `warnings`.
/// @throws ConfigError when a key is given under both names
void rename_keys(Hjson& root, const std::string& name, std::vector<std::string>& warnings);

/// Replaces values that DeepSpeed takes for others by those, such as a `stage` of true by 1, in `root` after
/// rename_keys(). Adds a warning to `warnings` where the training depends on it.
void read_values_as_deepspeed(Hjson& root, const std::string& name, std::vector<std::string>& warnings);

// Blocks of DeepSpeed's configuration that would change training, and are not supported.

/// A block that is refused where it is enabled.
struct RefusedBlock {
  std::string_view path;
  std::string_view consequence;  ///< of leaving it out
  std::string_view instead;      ///< what to do
  bool (*is_asked_for)(const Hjson& value);
};

/// The refused block at `path`, or null.
const RefusedBlock* refused_block(std::string_view path);

}  // namespace lockstep::deepspeed
