// The log, written with spdlog. No other file includes spdlog, whose fmt would clash with LibTorch's.
#include <lockstep/base/log.h>

#include <pthread.h>

#include <memory>
#include <mutex>
#include <set>
#include <string>

#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/base/option_type.h>

namespace lockstep {

inline constexpr OptionName<LogLevel> kLogLevelNames[] = {{"debug", LogLevel::kDebug},
                                                          {"info", LogLevel::kInfo},
                                                          {"warning", LogLevel::kWarning},
                                                          {"error", LogLevel::kError},
                                                          {"off", LogLevel::kOff}};

std::span<const OptionName<LogLevel>> option_names(LogLevel) { return kLogLevelNames; }

namespace {

// A sink for stderr and, after configure_log, one for the file. One lock guards both sinks and
// `warned`; it is held over fork, so that no child starts with a lock that nobody will release.
struct Log {
  std::mutex mutex;
  spdlog::logger logger{"lockstep", std::make_shared<spdlog::sinks::stderr_sink_st>()};
  std::set<std::string, std::less<>> warned;
};

Log& the_log() {
  static Log* const log = [] {
    auto* made = new Log;  // never destroyed: destructors of other globals may log
    made->logger.set_level(spdlog::level::trace);
    made->logger.flush_on(spdlog::level::trace);
    made->logger.sinks()[0]->set_pattern("%v");
    made->logger.sinks()[0]->set_level(spdlog::level::info);
    pthread_atfork([] { the_log().mutex.lock(); }, [] { the_log().mutex.unlock(); },
                   [] { the_log().mutex.unlock(); });
    return made;
  }();
  return *log;
}

// Made when the library is loaded: a fork while another thread makes it would leave the child waiting
// for that thread for ever.
[[maybe_unused]] const Log& made_at_load = the_log();

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
    case LogLevel::kOff:
      break;
  }
  return spdlog::level::off;
}

LogLevel chosen_level(const LogConfig& options) {
  const char* const variable = "LOCKSTEP_LOG_LEVEL";
  const auto text = env::get(variable);
  if (!text) return options.level.value_or(LogLevel::kInfo);
  const auto level = OptionType<LogLevel>::parse(*text);
  if (level) return *level;
  throw ConfigError("log", {.what = std::string("environment variable ") + variable,
                            .expected = level.error(),
                            .got = '"' + *text + '"',
                            .where = {},
                            .hint = did_you_mean(nearest_name(*text, OptionType<LogLevel>::names()))});
}

spdlog::sink_ptr stderr_sink(const LogConfig& options) {
  auto level = chosen_level(options);
  if (options.rank != 0) level = std::max(level, LogLevel::kWarning);
  auto sink = std::make_shared<spdlog::sinks::stderr_sink_st>();
  sink->set_pattern(options.world_size > 1 ? "[rank " + std::to_string(options.rank) + "] %v" : "%v");
  sink->set_level(spdlog_level(level));
  return sink;
}

spdlog::sink_ptr file_sink(const std::filesystem::path& file) {
  try {
    std::filesystem::create_directories(std::filesystem::absolute(file).parent_path());
    auto sink = std::make_shared<spdlog::sinks::basic_file_sink_st>(file.string());
    sink->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z [%l] %v");
    return sink;
  } catch (const std::exception& error) {
    throw IoError("log", {.what = "cannot open log file " + file.string(),
                          .expected = {},
                          .got = error.what(),
                          .where = {},
                          .hint = {}});
  }
}

void write(spdlog::level::level_enum level, std::string_view text) {
  auto& log = the_log();
  const std::lock_guard lock(log.mutex);
  log.logger.log(level, spdlog::string_view_t(text.data(), text.size()));
}

}  // namespace

void configure_log(const LogConfig& options) {
  std::vector<spdlog::sink_ptr> sinks{stderr_sink(options)};
  if (options.file) sinks.push_back(file_sink(*options.file));
  auto& log = the_log();
  const std::lock_guard lock(log.mutex);
  log.logger.sinks() = std::move(sinks);
}

void log_debug(std::string_view text) { write(spdlog::level::debug, text); }
void log_info(std::string_view text) { write(spdlog::level::info, text); }
void log_warning(std::string_view text) { write(spdlog::level::warn, "warning: " + std::string(text)); }
void log_error(std::string_view text) { write(spdlog::level::err, "error: " + std::string(text)); }

void warn_once(std::string_view key, std::string_view text) {
  auto& log = the_log();
  {
    const std::lock_guard lock(log.mutex);
    if (!log.warned.emplace(key).second) return;
  }
  log_warning(text);
}

}  // namespace lockstep
