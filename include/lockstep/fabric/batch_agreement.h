// Ranks that train on streams end together: look_ahead() over a communicator.
#pragma once

#include <memory>

#include <lockstep/base/export.h>
#include <lockstep/comm/communicator.h>
#include <lockstep/data/look_ahead.h>

namespace lockstep {

/// `loader` with streams whose ranks agree which batch is the last one. One number per batch is summed up
/// over the ranks, a step before the sum is needed; next() is Collective in training. Where the length is
/// known, or not only for training, it costs nothing to leave it out.
LOCKSTEP_API std::shared_ptr<AnyLoader> agree_on_batches(
    std::shared_ptr<AnyLoader> loader, const Communicator& communicator,
    UnevenStreams uneven = UnevenStreams::kStopAtShortest);

}  // namespace lockstep
