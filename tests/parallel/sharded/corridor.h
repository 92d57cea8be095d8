// A model of equal blocks with normalisations inside, and nothing else; tests of ShardedEngine share it.
#pragma once

#include <memory>

#include <lockstep/torch.h>

#include "../ddp_support.h"

namespace lockstep {

constexpr int kRoomsOfCorridor = 6;
constexpr std::int64_t kCorridorWidth = 64;

struct NormInside : torch::nn::Module {
  explicit NormInside(bool has_spare) {
    register_module("entry", entry);
    register_module("up", up);
    register_module("norm", norm);
    register_module("down", down);
    if (has_spare) spare = register_parameter("spare", at::ones({8}, at::kDouble));
  }
  at::Tensor forward(const at::Tensor& x) {
    return x + down->forward(norm->forward(up->forward(entry->forward(x))));
  }

  torch::nn::Linear up{kCorridorWidth, kCorridorWidth}, down{kCorridorWidth, kCorridorWidth};
  torch::nn::LayerNorm entry{torch::nn::LayerNormOptions({kCorridorWidth})};
  torch::nn::LayerNorm norm{torch::nn::LayerNormOptions({kCorridorWidth})};
  at::Tensor spare;  // of another type, and never used
};

struct Corridor : torch::nn::Module {
  explicit Corridor(bool has_spares) {
    register_module("blocks", blocks);
    for (int i = 0; i < kRoomsOfCorridor; ++i) blocks->push_back(std::make_shared<NormInside>(has_spares));
  }
  /// Without block `skipped`.
  at::Tensor forward(at::Tensor x, int skipped = -1) {
    for (int i = 0; i < kRoomsOfCorridor; ++i) {
      if (i != skipped) x = block(i).forward(x);
    }
    return x;
  }
  NormInside& block(int i) { return blocks->at<NormInside>(static_cast<std::size_t>(i)); }

  torch::nn::ModuleList blocks;
};

inline std::shared_ptr<Corridor> make_corridor(bool has_spares = false) {
  const std::lock_guard lock(generator_mutex);
  torch::manual_seed(6);
  return std::make_shared<Corridor>(has_spares);
}

inline at::Tensor corridor_input() {
  return at::arange(4 * kCorridorWidth, at::kFloat).mul(0.37).sin().view({4, kCorridorWidth});
}

/// One averaged backward, of which nothing is kept, and the end of a step.
template <class Engine>
void corridor_step(Corridor& corridor, Engine& engine) {
  engine.backward(corridor.forward(corridor_input()).pow(2).mean());
  for (const auto& [name, piece] : engine.parameters()) piece.mutable_grad().reset();
  engine.after_step();
}

inline bool has_memory(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()
             ->unsafe_storage()
             .unsafeGetStorageImpl()
             ->_mutable_data_ptr_no_checks()
             .get() != nullptr;
}

}  // namespace lockstep
