// The options of GradScaler.
#pragma once

#include <cstdint>

#include <lockstep/base/export.h>
#include <lockstep/base/options.h>

namespace lockstep {

/// Names and defaults are torch.amp.GradScaler's.
struct GradScalerOptions {
  double init_scale = 65536.0;          ///< what the first losses are multiplied by, > 0
  double growth_factor = 2.0;           ///< > 1
  double backoff_factor = 0.5;          ///< between 0 and 1
  std::int64_t growth_interval = 2000;  ///< updates without an overflow before the scale grows, > 0
  bool enabled = true;                  ///< false: losses and gradients stay as they are, every step is taken
};

LOCKSTEP_API void describe(OptionVisitor& visitor, GradScalerOptions& options);

}  // namespace lockstep
