// The networks of the benchmarks; peers/ has the same ones.
#pragma once

#include <lockstep/data/dataset.h>
#include <lockstep/torch.h>

#include "source.h"

namespace bench {

/// 8,970 parameters: so small that what surrounds the arithmetic shows.
inline torch::nn::Sequential tiny_mlp() {
  using namespace torch::nn;
  torch::manual_seed(0);
  return Sequential(Linear(64, 64), ReLU(), Linear(64, 64), ReLU(), Linear(64, 10));
}

/// 2,109,770 parameters: 8 MB of gradients.
inline torch::nn::Sequential mid_mlp() {
  using namespace torch::nn;
  torch::manual_seed(0);
  return Sequential(Linear(64, 1024), ReLU(), Linear(1024, 1024), ReLU(), Linear(1024, 960), ReLU(),
                    Linear(960, 10));
}

/// A batch of 32 for either.
inline lockstep::Example tiny_batch() {
  torch::manual_seed(1);
  return {torch::randn({kBatchSize, 64}), torch::randint(10, {kBatchSize}, torch::kLong)};
}

}  // namespace bench
