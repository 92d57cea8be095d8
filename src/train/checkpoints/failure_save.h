// What is saved of a fit that fails.
#pragma once

#include <chrono>
#include <filesystem>

#include "train/checkpoints/checkpoint_session.h"

namespace lockstep::detail {

/// TrainContext::save_after_failure(), which says more.
SavedAfterFailure save_after_failure(const FitParts& fit, std::filesystem::path folder,
                                     const SaveRequest& request, std::chrono::milliseconds deadline);

/// NAME-weights.ckpt for NAME.ckpt: what is written where nothing can go on.
std::filesystem::path weights_beside(const std::filesystem::path& folder);

}  // namespace lockstep::detail
