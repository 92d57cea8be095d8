// Plugin: a PJRT plug-in, which brings XLA for one kind of device. Only a file that somebody has named is
// loaded: some plug-ins ask servers for their hardware as soon as they are initialized.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "xla/pjrt.h"

namespace lockstep::xla {

/// Versions 0.MINOR of PJRT's C interface that are accepted. The oldest is that of the header; a plug-in
/// promises to serve older callers as long as the major number is the same.
inline constexpr int kOldestMinor = PJRT_API_MINOR;

/// The file that a run uses: `option`, else the variable LOCKSTEP_PJRT_PLUGIN, else what PJRT_DEVICE means;
/// nothing where none is set. The option may be a kind of device, too, as in plugin_in_python().
/// @throws ConfigError where the first two are set and name different files; as plugin_in_python()
std::optional<std::filesystem::path> plugin_file(const std::optional<std::filesystem::path>& option);

class Plugin {
 public:
  /// Loads and initializes `file`, which stays loaded until the process ends. The same file again gives the
  /// same plug-in. Thread-safe. Not to be called in a process that is to fork.
  /// @throws ConfigError naming file, what was expected and what is there: a file that is missing, not a
  ///         library for this machine, incomplete, no plug-in or of another version of the interface; and
  ///         when the process has another plug-in
  static std::shared_ptr<const Plugin> load(const std::filesystem::path& file);

  const PJRT_Api& api() const { return *api_; }
  const std::filesystem::path& file() const { return file_; }
  /// Of PJRT's C interface: "0.115".
  std::string version() const;
  /// Of the file, 64 hexadecimal digits. Reads all of it when it is first asked for. Thread-safe.
  const std::string& sha256() const;

 private:
  Plugin(std::filesystem::path file, const PJRT_Api& api) : file_(std::move(file)), api_(&api) {}

  std::filesystem::path file_;
  const PJRT_Api* api_;
};

/// The SHA-256 of `bytes`, 64 hexadecimal digits.
std::string sha256_of(std::string_view bytes);

}  // namespace lockstep::xla
