// The loggers of a run, from the names that the options give.
#pragma once

#include <filesystem>
#include <memory>
#include <vector>

#include "train/logging/run_log.h"
#include "train/options/run_setup.h"

namespace lockstep::detail {

/// Made for `run_dir`, where those of the program's own have none. On rank 0 only.
std::vector<std::shared_ptr<Logger>> make_loggers(const TrainerOptions& options,
                                                  const std::filesystem::path& run_dir);

/// Gives them what the program's options are, unless enable_autolog_hparams is off.
void log_hyper_parameters(const RunSetup& setup, const RunLog& log);

}  // namespace lockstep::detail
