// CompileCache: programs that were compiled, in memory and in files that other processes find.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "xla/executable.h"

namespace lockstep::xla {

/// The folder that LOCKSTEP_XLA_CACHE names, else lockstep/xla in the user's cache; nothing where it is
/// "off".
std::optional<std::filesystem::path> cache_folder();

/// How often programs were asked for, and what that took.
struct CompileCounts {
  std::int64_t compiled = 0;     ///< by the compiler
  std::int64_t from_files = 0;   ///< compiled by an earlier process
  std::int64_t from_memory = 0;  ///< compiled or loaded by this one before
  double compile_seconds = 0.0;  ///< in the compiler
  double load_seconds = 0.0;     ///< in reading files
};

class CompileCache {
 public:
  /// @param folder  of the files; none: in memory only
  explicit CompileCache(std::shared_ptr<const Client> client,
                        std::optional<std::filesystem::path> folder = {})
      : client_(std::move(client)), folder_(std::move(folder)) {}

  /// The program of `text`, StableHLO. Its file is named by the SHA-256 of the plug-in, the processor's
  /// features, the options and the text, and holds a checksum of its own: one that does not fit is compiled
  /// anew, with one warning, and written again. A folder that cannot be written is warned of once.
  /// Thread-safe; blocks. @throws as Executable::compile()
  std::shared_ptr<const Executable> get(const std::string& text);

  CompileCounts counts() const;
  /// Where the program of `text` is kept; nothing without a folder.
  std::optional<std::filesystem::path> file_of(const std::string& text) const;

 private:
  std::string key_of(const std::string& text) const;
  std::shared_ptr<const Executable> load(const std::filesystem::path& file, const std::string& key);
  std::shared_ptr<const Executable> compile(const std::string& text);
  void store(const Executable& program, const std::filesystem::path& file, const std::string& key);

  std::shared_ptr<const Client> client_;
  std::optional<std::filesystem::path> folder_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<const Executable>> programs_;
  CompileCounts counts_;
};

}  // namespace lockstep::xla
