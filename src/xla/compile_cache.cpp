#include "xla/compile_cache.h"

#include <chrono>
#include <fstream>

#include <lockstep/base/atomic_file.h>
#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/base/log.h>

#include "base/read_file.h"

namespace lockstep::xla {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kMark = "lockstep XLA program 1\n";

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// What the compiler may have relied on: the instructions of the processor, as the kernel names them.
std::string processor_features() {
  std::ifstream stream("/proc/cpuinfo");
  for (std::string line; std::getline(stream, line);)
    if (line.starts_with("flags") || line.starts_with("Features")) return line;
  return "unknown";
}

// The mark, the key, the checksum of what follows, and the program.
std::string head_of(const std::string& key, std::string_view program) {
  return std::string(kMark) + key + "\n" + sha256_of(program) + "\n";
}

}  // namespace

std::optional<fs::path> cache_folder() {
  const auto named = env::get("LOCKSTEP_XLA_CACHE");
  if (named == "off") return std::nullopt;
  if (named && !named->empty()) return fs::path(*named);
  if (const auto cache = env::get("XDG_CACHE_HOME"); cache && !cache->empty())
    return fs::path(*cache) / "lockstep" / "xla";
  if (const auto home = env::get("HOME"); home && !home->empty())
    return fs::path(*home) / ".cache" / "lockstep" / "xla";
  return std::nullopt;
}

std::string CompileCache::key_of(const std::string& text) const {
  static const auto features = processor_features();
  return sha256_of(client_->plugin().sha256() + "\n" + client_->platform() + "\n" + features + "\n" +
                   sha256_of(compile_options(client_->partitions())) + "\n" + text);
}

std::optional<fs::path> CompileCache::file_of(const std::string& text) const {
  if (!folder_) return std::nullopt;
  return *folder_ / (key_of(text) + ".pjrt");
}

CompileCounts CompileCache::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

std::shared_ptr<const Executable> CompileCache::get(const std::string& text) {
  const std::lock_guard lock(mutex_);
  auto& program = programs_[text];
  if (program) {
    ++counts_.from_memory;
    return program;
  }
  if (!folder_) return program = compile(text);
  const auto key = key_of(text);
  const auto file = *folder_ / (key + ".pjrt");
  program = load(file, key);
  if (program) return program;
  program = compile(text);
  store(*program, file, key);
  return program;
}

// A plug-in notices damage only where it cannot parse what is left, so bytes are compared first.
std::shared_ptr<const Executable> CompileCache::load(const fs::path& file, const std::string& key) {
  std::error_code none;
  if (!fs::exists(file, none)) return nullptr;
  const auto begin = std::chrono::steady_clock::now();
  const auto bytes = read_file(file).value_or("");
  const auto head = kMark.size() + 2 * (key.size() + 1);
  std::string reason = "it is damaged, or of something else";
  if (bytes.size() > head) {
    const auto program = std::string_view(bytes).substr(head);
    if (bytes.starts_with(head_of(key, program))) {
      try {
        auto loaded = Executable::deserialize(client_, program);
        ++counts_.from_files;
        counts_.load_seconds += seconds_since(begin);
        return loaded;
      } catch (const Error& error) {
        reason = error.what();
      }
    }
  }
  warn_once("xla.cache " + file.string(),
            "a compiled program is not used and compiled again: " + file.string() + ": " + reason);
  return nullptr;
}

std::shared_ptr<const Executable> CompileCache::compile(const std::string& text) {
  const auto begin = std::chrono::steady_clock::now();
  auto program = Executable::compile(client_, text);
  ++counts_.compiled;
  counts_.compile_seconds += seconds_since(begin);
  return program;
}

// Without its file, the program is compiled again by the next process: no reason to fail.
void CompileCache::store(const Executable& program, const fs::path& file, const std::string& key) {
  try {
    const auto bytes = program.serialize();
    create_folders(*folder_);
    write_file_atomically(file, head_of(key, bytes) + bytes);
  } catch (const Error& error) {
    warn_once("xla.cache " + folder_->string(),
              std::string("compiled programs are not kept: ") + error.what());
  }
}

}  // namespace lockstep::xla
