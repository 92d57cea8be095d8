// Which cluster environment a process or a strategy goes by: detected, or chosen by name.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/base/option_type.h>
#include <lockstep/cluster/environment.h>

namespace lockstep {

/// One row of the table of known environments.
struct EnvironmentKind {
  std::string_view name;                          ///< what name() of its instances returns
  std::string_view spelling;                      ///< Lightning's, such as "SLURM"; may be given too
  bool (*detect)();                               ///< true when this process was started by it
  std::shared_ptr<ClusterEnvironment> (*make)();  ///< parses it; may throw ConfigError
};

/// All environments, in the order in which they are asked. The last one always is it; some never are, and
/// are chosen by name.
LOCKSTEP_API std::span<const EnvironmentKind> environment_kinds();

/// The environment this process runs in: the first of environment_kinds() that is detected.
/// @throws ConfigError naming variable and value when its variables are malformed
LOCKSTEP_API std::shared_ptr<ClusterEnvironment> detect_environment();

/// The environment called `name`, in any mix of cases, whether it is detected or not.
/// @throws ConfigError naming the accepted names, or as detect_environment()
LOCKSTEP_API std::shared_ptr<ClusterEnvironment> make_environment(std::string_view name);

/// Detected, the default; one by its name, such as "SLURM" or "Kubeflow"; or one of the program's own.
class LOCKSTEP_API EnvironmentChoice {
 public:
  EnvironmentChoice() = default;
  /// @throws ConfigError naming the accepted names
  EnvironmentChoice(std::string_view name);
  EnvironmentChoice(const char* name) : EnvironmentChoice(std::string_view(name)) {}
  EnvironmentChoice(std::shared_ptr<ClusterEnvironment> environment);
  template <class Derived>
  EnvironmentChoice(std::shared_ptr<Derived> environment)
      : EnvironmentChoice(std::shared_ptr<ClusterEnvironment>(std::move(environment))) {}

  /// Whether the environment is detected, and not named.
  bool is_detected() const { return name_.empty(); }
  /// Lightning's spelling, such as "SLURM"; what one of the program's own calls itself; empty: detected.
  const std::string& name() const { return name_; }

  /// Made anew at each call, but for one of the program's own.
  /// @throws ConfigError when its variables are missing or malformed
  std::shared_ptr<ClusterEnvironment> environment() const;

 private:
  std::string name_;
  std::shared_ptr<ClusterEnvironment> own_;
};

template <>
struct LOCKSTEP_API OptionType<EnvironmentChoice> {
  static Expected<EnvironmentChoice> parse(std::string_view text);
  static std::string print(const EnvironmentChoice& value);
  static std::string accepted();
  /// What flags and files may say.
  static std::vector<std::string> names();
};

}  // namespace lockstep
