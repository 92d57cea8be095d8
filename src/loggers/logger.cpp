#include <lockstep/loggers/logger.h>

namespace lockstep {

Logger::~Logger() = default;

void Logger::log_hyperparams(const HyperParameters&) {}

}  // namespace lockstep
