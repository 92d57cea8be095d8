// Randomness of data: transforms that give the same batch whoever makes it, and the seeds that Lightning
// gives to data-loader workers.
#pragma once

#include <cstdint>

#include <ATen/core/Generator.h>

#include <lockstep/base/export.h>

namespace lockstep {

/// The random generator of the batch that this thread is making, for Dataset::get_batch():
/// `torch::rand({2}, ls::batch_generator())`. It is seeded by the run's seed, the epoch, the rank and the
/// number of the batch: neither the number of worker threads nor a resume changes what it gives, which
/// torch's own generator, shared by all threads, cannot do. Elsewhere torch's own.
LOCKSTEP_API at::Generator batch_generator();

/// The seed that Lightning's pl_worker_init_function gives torch in worker `worker` of rank `rank` after
/// seed_everything(seed, workers=True): to repeat a run of Lightning's, number for number. Loaders of
/// lockstep do not use it: batch_generator() does not depend on workers.
/// @throws ConfigError for a worker or rank outside 0 to 65535
LOCKSTEP_API std::uint64_t worker_seed(std::uint64_t seed, int worker, int rank);

}  // namespace lockstep
