// hparams.yaml, as Lightning's loggers write it.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include <lockstep/base/export.h>
#include <lockstep/loggers/logger.h>

namespace lockstep::detail {

/// The settings as YAML: sorted by name, nested where names have slashes. A name that is both a setting and
/// a group (`a` and `a/b`) keeps its slash.
LOCKSTEP_API std::string hparams_yaml(const std::map<std::string, HyperParameter>& params);

/// hparams.yaml in a folder that may be known only later.
class LOCKSTEP_API HparamsFile {
 public:
  /// Takes settings; one that was given before is replaced.
  void update(const HyperParameters& params);

  /// Whether there is something that write() has not written yet.
  bool changed() const { return changed_; }

  /// Writes `folder`/hparams.yaml when there is something new. Blocking.
  /// @throws IoError when it cannot be written
  void write(const std::filesystem::path& folder);

 private:
  std::map<std::string, HyperParameter> params_;
  bool changed_ = false;
};

}  // namespace lockstep::detail
