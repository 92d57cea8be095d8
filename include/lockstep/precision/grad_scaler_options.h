// The options of GradScaler.
#pragma once

#include <cstdint>

#include <lockstep/base/export.h>
#include <lockstep/base/options.h>

namespace lockstep {

/// Names and defaults are torch.amp.GradScaler's; from hysteresis on those of DeepSpeed's loss scale,
/// switched off by default.
struct GradScalerOptions {
  double init_scale = 65536.0;          ///< what the first losses are multiplied by, > 0
  double growth_factor = 2.0;           ///< > 1
  double backoff_factor = 0.5;          ///< between 0 and 1
  std::int64_t growth_interval = 2000;  ///< updates without an overflow before the scale grows, > 0
  int hysteresis = 1;                   ///< overflows until the scale backs off, > 0
  bool consecutive_hysteresis = false;  ///< every update without an overflow refills the hysteresis, not only
                                        ///< growth
  std::int64_t growth_delay = 0;        ///< updates that growth waits longer at the beginning and after an
                                        ///< overflow, >= 0
  double min_scale = 0.0;               ///< an overflow at this scale is an error, >= 0; 0: none
  bool enabled = true;                  ///< false: losses and gradients stay as they are, every step is taken
};

LOCKSTEP_API void describe(OptionVisitor& visitor, GradScalerOptions& options);

}  // namespace lockstep
