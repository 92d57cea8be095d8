// Flags of a list of objects, of which the order counts: `--callbacks Timer --callbacks.duration 1h`.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/option_codec.h>

namespace lockstep {

/// Collects the flags of one list: `--KEY NAME` and `--KEY '[{class_path: NAME, init_args: {...}}]'` add to
/// what the command line has said, in place of what files and environment say; `--KEY+ ...` adds to that;
/// `--KEY.OPTION VALUE` or `--KEY.init_args.OPTION VALUE` is an option of the object before.
class ObjectFlags {
 public:
  explicit ObjectFlags(std::string key) : key_(std::move(key)) {}

  /// Whether `flag`, without its dashes, is one of this list.
  bool has(std::string_view flag) const;
  /// Takes one of them.
  /// @throws ConfigError for a value that is no YAML, and for an option without an object before
  void take(const std::string& flag, const std::string& value);
  /// What all of them say together; nothing where there were none.
  std::optional<Assignment> assignment() const { return assignment_; }

 private:
  void take_option(const std::string& flag, std::string_view option, const std::string& value);

  std::string key_;
  std::optional<Assignment> assignment_;
};

}  // namespace lockstep
