#include "fabric/read_deepspeed.h"

#include <exception>

#include <lockstep/base/error.h>
#include <lockstep/optim/optim_state.h>
#include <lockstep/torch.h>

#include "checkpoint/deepspeed_state.h"
#include "formats/zero_optimizer.h"

namespace lockstep::detail {
namespace {

namespace fs = std::filesystem;

/// Reads from a checkpoint of DeepSpeed what a state is to be set to.
struct DeepSpeedReader {
  const ZeroCheckpoint& checkpoint;
  Strategy& strategy;

  StateTree operator()(const std::shared_ptr<torch::nn::Module>& module) const {
    return deepspeed_model(checkpoint, strategy.wanted_state(*module));
  }
  StateTree operator()(const std::shared_ptr<FabricOptimizer>& optimizer) const {
    auto own = strategy.wanted_optimizer_state(optimizer->optimizer());
    if (own.empty()) own = strategy.optimizer_state(optimizer->optimizer());
    return deepspeed_optimizer(checkpoint, own);
  }
  StateTree operator()(Scheduler* scheduler) const {
    return deepspeed_scheduler(checkpoint, state_of(*scheduler));
  }
  template <class Value>
  StateTree operator()(const Value*) const {
    return {};
  }
};

/// Of 16-bit floating point, as its own state with the scale that was saved.
StateTree with_scale(const ZeroCheckpoint& checkpoint, StateTree precision) {
  const auto scale = checkpoint.stage() == 0 ? std::nullopt : ZeroOptimizer(checkpoint).loss_scale();
  if (scale && precision.contains("scale")) precision.set("scale", *scale);
  return precision;
}

StateTree read_all(const Fabric& fabric, const fs::path& folder, const NamedStates& states) {
  const ZeroCheckpoint checkpoint(folder);
  auto saved = deepspeed_client_state(checkpoint);
  for (const auto& [name, state] : states) {
    auto tree = std::visit(DeepSpeedReader{checkpoint, fabric.strategy()}, state.target());
    if (!tree.empty()) saved.set(name, std::move(tree));
  }
  if (auto own = fabric.precision().state(); !own.empty())
    saved.set(fabric.precision().state_key(), with_scale(checkpoint, std::move(own)));
  return saved;
}

}  // namespace

StateTree read_deepspeed(const Fabric& fabric, const fs::path& folder, const NamedStates& states) {
  StateTree saved;
  std::exception_ptr failure;
  std::string text;
  try {
    saved = read_all(fabric, folder, states);
  } catch (const std::exception& error) {
    failure = std::current_exception();
    text = error.what();
  }
  const auto texts = fabric.strategy().communicator().all_gather_bytes(text);
  if (failure) std::rethrow_exception(failure);
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    if (texts[rank].empty()) continue;
    throw CheckpointError("fabric", {.what = "checkpoint " + folder.string() + " cannot be used",
                                     .got = texts[rank],
                                     .where = "rank " + std::to_string(rank)});
  }
  return saved;
}

}  // namespace lockstep::detail
