// Reads and writes .pt, .pth and Lightning's .ckpt files.
#include <lockstep/base/error.h>
#include <lockstep/checkpoint/interop.h>

#include "checkpoint/pickle_state.h"
#include "formats/torch_file.h"

namespace lockstep {
namespace {

// The version of Lightning whose layout is written; later ones migrate what they read.
constexpr auto kLightningVersion = "2.6.6";

/// Lightning's count of something that was done `count` times.
StateTree progress(std::int64_t count, std::initializer_list<const char*> stages) {
  StateTree done;
  for (const auto* stage : stages) done.set(stage, count);
  StateTree progress;
  progress.set("total", done);
  progress.set("current", std::move(done));
  return progress;
}

/// The progress of Lightning's loops after that many epochs and steps, at the end of an epoch.
StateTree loops(std::int64_t epochs, std::int64_t steps) {
  StateTree optimizer;
  optimizer.set("step", progress(steps, {"ready", "completed"}));
  optimizer.set("zero_grad", progress(steps, {"ready", "completed", "started"}));
  StateTree optim_progress;
  optim_progress.set("optimizer", std::move(optimizer));
  StateTree batches;
  batches.set("_batches_that_stepped", steps);
  StateTree fit_loop;
  fit_loop.set("state_dict", StateTree());
  fit_loop.set("epoch_loop.state_dict", std::move(batches));
  fit_loop.set("epoch_loop.automatic_optimization.optim_progress", std::move(optim_progress));
  fit_loop.set("epoch_progress", progress(epochs, {"ready", "completed", "started", "processed"}));
  StateTree loops;
  loops.set("fit_loop", std::move(fit_loop));
  return loops;
}

/// Adds what Lightning wants and `checkpoint` lacks.
StateTree completed(StateTree checkpoint) {
  const auto add = [&](const char* name, StateValue value) {
    if (!checkpoint.contains(name)) checkpoint.set(name, std::move(value));
  };
  checkpoint.get<StateTree>("state_dict");
  add("epoch", std::int64_t{0});
  add("global_step", std::int64_t{0});
  add("pytorch-lightning_version", std::string(kLightningVersion));
  add("loops", loops(checkpoint.get<std::int64_t>("epoch"), checkpoint.get<std::int64_t>("global_step")));
  add("callbacks", StateTree());
  add("optimizer_states", StateList());
  add("lr_schedulers", StateList());
  return checkpoint;
}

}  // namespace

StateTree read_torch_file(const std::filesystem::path& file) {
  const detail::OpenedTorchFile opened(file);
  return detail::StateOfPickle(opened.contents(), opened.where()).tree(opened.named_values());
}

void write_torch_file(const std::filesystem::path& file, const StateTree& state) {
  detail::PickleOfState pickled;
  const pickle::Value root(pickled.dict(state));
  torch_file::write(file, root, pickled.storages());
}

void write_lightning_checkpoint(const std::filesystem::path& file, const StateTree& checkpoint) {
  write_torch_file(file, completed(checkpoint));
}

}  // namespace lockstep
