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
  double min_scale = 0.0;               ///< the scale is never less, >= 0
  bool fails_at_min_scale = true;       ///< an overflow at a min_scale > 0 is an error; false: the step is
                                        ///< left out, and the scale stays
  bool dynamic = true;                  ///< false: the scale stays init_scale, also where a state is loaded
  bool enabled = true;                  ///< false: losses and gradients stay as they are, every step is taken
};

LOCKSTEP_API void describe(OptionVisitor& visitor, GradScalerOptions& options);

}  // namespace lockstep
