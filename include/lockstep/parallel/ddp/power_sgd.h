// The options of PowerSGD.
#pragma once

#include <cstdint>

#include <lockstep/base/export.h>
#include <lockstep/base/options.h>

namespace lockstep {

/// PowerSGD's options, named as those of PyTorch's PowerSGDState.
struct PowerSgd {
  int matrix_approximation_rank = 1;  ///< rank of the approximation: more is closer and sends more
  int start_powerSGD_iter = 1000;     ///< steps that average plainly before compression starts, >= 2
  double min_compression_rate = 2;    ///< gradients that would not shrink by this factor are sent as they are
  bool use_error_feedback = true;     ///< adds what compression lost to the next step's gradients
  bool warm_start = true;             ///< starts from the approximation of the step before
  double orthogonalization_epsilon = 0;  ///< added to norms when orthogonalizing; 0: QR decomposition
  std::int64_t random_seed = 0;          ///< of the first approximation, equal on all ranks
};

LOCKSTEP_API void describe(OptionVisitor& visitor, PowerSgd& options);

}  // namespace lockstep
