// Creates loggers by name. To add a logger, add its row in make_logger.cpp.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/export.h>
#include <lockstep/loggers/logger.h>

namespace lockstep::detail {

/// The folders to which the loggers of a run write.
struct LoggerPlace {
  std::filesystem::path run_dir;   ///< the folder of this run
  std::filesystem::path root_dir;  ///< what all runs have in common
  std::string run_name;
};

/// The names, in the order of the rows.
LOCKSTEP_API std::vector<std::string> named_loggers();

/// The logger of that name. @throws ConfigError when there is none
LOCKSTEP_API std::shared_ptr<Logger> make_logger(std::string_view name, const LoggerPlace& place);

}  // namespace lockstep::detail
