// Options described once: flags, YAML, environment, --print_config, --help, checks and tables all
// come from one `describe` function per struct (see option_visitor.h).
#pragma once

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/base/option_codec.h>
#include <lockstep/base/option_visitor.h>

namespace lockstep {

/// One option as help and tables show it.
struct OptionInfo {
  std::string key = {};                    ///< dotted: `trainer.max_epochs`
  std::string type = {};                   ///< "int", "duration", "list of int", "name", ...
  std::string default_value = {};          ///< the bound value, as YAML
  std::string accepted = {};               ///< range or names; empty: anything of the type
  std::string help = {};                   ///< one sentence
  std::string choice = {};                 ///< key of the choice that the option depends on, if any
  std::vector<std::string> only_for = {};  ///< names of that choice that have the option
  /// Defaults of those of `only_for` that have another one than `default_value`.
  std::map<std::string, std::string> other_defaults = {};
  bool is_bool = false;     ///< a bare flag means true
  bool is_list = false;     ///< a repeated flag appends
  bool is_choice = false;   ///< picks an alternative, which may have options below this key
  bool is_objects = false;  ///< a list of classes with options of their own; see option_objects.h
};

/// A group of options as help shows it: a root, or a described member.
struct OptionGroup {
  std::string key = {};   ///< with dots: `trainer.max_epochs`
  std::string help = {};  ///< one sentence
};

/// Options structs under their keys. Borrows the structs: they must outlive the tree, which reads
/// and writes them in place.
class LOCKSTEP_API OptionTree {
 public:
  /// Adds `options` as `prefix.KEY`; with an empty prefix its keys stand at the top.
  template <Described T>
  void add(std::string prefix, T& options, std::string help = {}) {
    roots_.push_back({std::move(prefix), std::move(help),
                      [&options](OptionVisitor& visitor) { describe(visitor, options); }});
  }

  /// Writes the assignments into the structs, in order, choices before the members of what they
  /// chose. A name picks its table's value, replacing what was there. A member of another
  /// alternative is refused, unless it was given by an earlier source than the name that won (a file says
  /// fsdp with its options, a flag says ddp): then it is ignored with the alternative that it belongs to.
  /// @throws ConfigError naming source, key, value, what is accepted and the nearest known key; the
  /// structs may then hold a part of the assignments
  void apply(std::span<const Assignment> assignments) const;

  /// As apply, for `root` alone: assignments of other roots are left aside.
  /// @throws ConfigError as apply does, and when the tree has no such root
  void apply(std::span<const Assignment> assignments, std::string_view root) const;

  /// Checks every present value against its range, for values set in code.
  /// @throws ConfigError naming key, value and range
  void validate() const;

  /// All present values as YAML: the file that, given back, sets them all again. A choice whose
  /// alternative has no name (set in code) is left out, with a comment.
  std::string to_yaml() const;

  /// Every option, in order; those of a choice's alternatives after the choice. Members that
  /// alternatives share are one entry.
  std::vector<OptionInfo> list() const;

  /// Every key once, in order.
  std::vector<std::string> keys() const;

  /// Roots and groups, in order.
  std::vector<OptionGroup> groups() const;

  /// Shows all structs to `visitor`, each root with a prefix as a group.
  void visit(OptionVisitor& visitor) const;

 private:
  struct Root {
    std::string prefix;
    std::string help;
    OptionVisitor::Members members;
  };

  std::vector<Root> roots_;
};

/// The assignments in a YAML file: nested maps become dotted keys. An empty file gives none.
/// Maps in lists, and a map that names a class (`{class_path: NAME, init_args: {...}}`), stay whole. Anchors
/// work; merge keys (`<<`), several documents, duplicate keys and lists of lists are refused.
/// @throws ConfigError with file:line:column when it is malformed, and when it cannot be read
LOCKSTEP_API std::vector<Assignment> read_yaml_file(const std::filesystem::path& file);

/// As read_yaml_file, from memory; `name` stands for the file in errors.
/// @throws ConfigError as read_yaml_file does
LOCKSTEP_API std::vector<Assignment> read_yaml(std::string_view text, const std::string& name);

/// The variable of a key: `trainer.max_epochs` is LOCKSTEP_TRAINER_MAX_EPOCHS.
LOCKSTEP_API std::string variable_of(std::string_view key);

/// The assignments in environment variables (name to value; see env::with_prefix). Variables that
/// are no key of `tree` are left alone, except below `strict_roots` (`trainer`: LOCKSTEP_TRAINER_*).
/// @throws ConfigError for such a variable, with the nearest name, and for one that means two keys
LOCKSTEP_API std::vector<Assignment> read_environment(const std::map<std::string, std::string>& variables,
                                                      const OptionTree& tree,
                                                      std::span<const std::string> strict_roots);

}  // namespace lockstep
