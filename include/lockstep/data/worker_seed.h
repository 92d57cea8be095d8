// The former place of worker_seed(), for programs that include it by this name.
#pragma once

#include <lockstep/data/batch_generator.h>  // IWYU pragma: export
