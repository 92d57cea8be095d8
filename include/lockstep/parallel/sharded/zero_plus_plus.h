// ZeRO++ (arXiv:2306.10209): what a fully sharded model sends less, and less far.
#pragma once

#include <cstdint>
#include <optional>

namespace lockstep {

/// LoCo (arXiv:2407.04480): what quantised gradients have lost so far is added before the next ones are
/// quantised. Kept in 8 bits, which takes a byte for every element of the gradients that travel so; not in
/// checkpoints.
struct ErrorFeedback {
  double decay = 0.8;               ///< weight of the past in the moving average of errors, 0 to 1
  std::int64_t reset_every = 1024;  ///< reductions of a unit's gradients after which it starts anew

  bool operator==(const ErrorFeedback&) const = default;
};

/// Neighbours are consecutive ranks, such as those of a node. Tensors of fewer than two dimensions are never
/// quantised. For parameters that stay gathered until the step only what is said of gradients counts.
struct ZeroPlusPlus {
  int secondary_shards = 1;  ///< neighbours that keep together what has been gathered once, and gather it
                             ///< from each other until parameters change; divides the shards. 1: nobody does
  bool quantized_weights = false;  ///< trained parameters travel, and are seen by operators, in 8 bits;
                                   ///< shards stay exact
  bool quantized_frozen_weights = false;  ///< the same of parameters that are not trained
  bool quantized_gradients = false;       ///< gradients travel in 4 bits, and are summed in float32
  int gradient_neighbours = 1;            ///< that sum them among themselves before others do; divides the
                                          ///< shards. 1, or all: one exchange
  std::optional<ErrorFeedback> error_feedback = {};  ///< of quantised gradients

  bool operator==(const ZeroPlusPlus&) const = default;
};

}  // namespace lockstep
