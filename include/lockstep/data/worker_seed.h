// The seeds that Lightning gives to data-loader workers.
#pragma once

#include <cstdint>

#include <lockstep/base/export.h>

namespace lockstep {

/// The seed that Lightning's pl_worker_init_function gives torch in worker `worker` of rank `rank` after
/// seed_everything(seed, workers=True): to repeat a run of Lightning's, number for number. Loaders of
/// lockstep do not use it: batch_generator() does not depend on workers.
/// @throws ConfigError for a worker or rank outside 0 to 65535
LOCKSTEP_API std::uint64_t worker_seed(std::uint64_t seed, int worker, int rank);

}  // namespace lockstep
