#include "fabric/read_deepspeed.h"

#include <algorithm>
#include <string>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/optim/optim_state.h>
#include <lockstep/torch.h>

#include "checkpoint/deepspeed_state.h"
#include "checkpoint/together.h"
#include "fabric/fabric_checkpoint.h"
#include "formats/in_quotes.h"
#include "formats/zero_optimizer.h"
#include "strategy/deepspeed_strategy.h"

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;

/// Reads from a checkpoint of DeepSpeed what a state is to be set to.
struct DeepSpeedReader {
  const ZeroCheckpoint& checkpoint;
  Strategy& strategy;
  bool strict;
  bool warns;

  StateTree operator()(const std::shared_ptr<torch::nn::Module>& module) const {
    return deepspeed_model(checkpoint, strategy.wanted_state(*module));
  }
  StateTree operator()(const std::shared_ptr<FabricOptimizer>& optimizer) const {
    if (checkpoint.stage() == 0 && !strict) return {};
    auto own = strategy.wanted_optimizer_state(optimizer->optimizer());
    if (own.empty()) own = strategy.optimizer_state(optimizer->optimizer());
    return deepspeed_optimizer(checkpoint, own, warns);
  }
  StateTree operator()(Scheduler* scheduler) const {
    return deepspeed_scheduler(checkpoint, state_of(*scheduler));
  }
  template <class Value>
  StateTree operator()(const Value*) const {
    return {};
  }
};

/// Of 16-bit floating point, as its own state with the scale that was saved. A static one stays, as it does
/// wherever a state is loaded.
StateTree with_scale(const Fabric& fabric, const ZeroCheckpoint& checkpoint) {
  auto precision = fabric.precision().state();
  const auto scale = checkpoint.stage() != 0 ? ZeroOptimizer(checkpoint).loss_scale() : std::nullopt;
  if (scale && precision.contains("scale")) precision.set("scale", *scale);
  return precision;
}

StateTree read_all(const Fabric& fabric, const ZeroCheckpoint& checkpoint, const NamedStates& states,
                   bool strict) {
  auto saved = deepspeed_client_state(checkpoint);
  for (const auto& [name, state] : states) {
    auto tree = std::visit(DeepSpeedReader{checkpoint, fabric.strategy(), strict, fabric.is_global_zero()},
                           state.target());
    if (!tree.empty()) saved.set(name, std::move(tree));
  }
  if (has_optimizer(states) && !fabric.precision().state().empty())
    saved.set(fabric.precision().state_key(), with_scale(fabric, checkpoint));
  return saved;
}

/// What must be the same on all ranks.
std::string identity_of(const ZeroCheckpoint& checkpoint) {
  const auto& files = checkpoint.files();
  return in_quotes(files.folder.filename().string()) + " of stage " + std::to_string(files.stage) +
         ", saved by " + std::to_string(std::max(files.optimizers.size(), files.models.size())) + " ranks";
}

}  // namespace

StateTree read_deepspeed(const Fabric& fabric, const fs::path& folder, const NamedStates& states,
                         bool strict) {
  StateTree saved;
  const auto identities = read_together(fabric.strategy().communicator(), folder, [&] {
    const ZeroCheckpoint checkpoint(folder);
    saved = read_all(fabric, checkpoint, states, strict);
    return identity_of(checkpoint);
  });
  for (std::size_t rank = 0; rank < identities.size(); ++rank)
    if (identities[rank] != identities.front())
      throw CheckpointError("fabric", {.what = "checkpoint " + folder.string() + " cannot be used",
                                       .expected = identities.front() + ", as on rank 0",
                                       .got = identities[rank],
                                       .where = "rank " + std::to_string(rank)});
  return saved;
}

}  // namespace lockstep::detail
