// Randomness of data: transforms that give the same batch whoever makes it, and whenever.
#pragma once

#include <ATen/core/Generator.h>

#include <lockstep/base/export.h>

namespace lockstep {

/// The random generator of the batch that this thread is making, for Dataset::get_batch():
/// `torch::rand({2}, ls::batch_generator())`. It is seeded by the run's seed, the epoch, the rank and the
/// number of the batch: neither the number of worker threads nor a resume changes what it gives, which
/// torch's own generator, shared by all threads, cannot do. Elsewhere torch's own.
LOCKSTEP_API at::Generator batch_generator();

}  // namespace lockstep
