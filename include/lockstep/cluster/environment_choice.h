// Which cluster environment a strategy goes by.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/base/option_type.h>

namespace lockstep {

class ClusterEnvironment;

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
  static std::vector<std::string> names();
};

}  // namespace lockstep
