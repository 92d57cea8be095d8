// The modules that a strategy has set up, each with the engine that drives it.
#pragma once

#include <algorithm>
#include <memory>
#include <ranges>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/cluster/environment.h>
#include <lockstep/comm/init.h>
#include <lockstep/optim/optimizer.h>
#include <lockstep/strategy/strategy.h>
#include <lockstep/torch.h>

namespace lockstep::detail {

// How a strategy of several ranks forms their group.

/// The group of all ranks, by the options of that name that strategies share. Collective, blocking.
/// @throws Timeout naming the ranks that are missing; ConfigError when the environment disagrees
template <class Options>
Communicator join_ranks(const Options& options, ClusterEnvironment& environment, const WorldShape& shape) {
  environment.validate_settings(shape.devices, shape.num_nodes);
  set_world_ranks(environment, shape);
  return init_communicator({.backend = options.process_group_backend,
                            .main_address = environment.main_address(),
                            .main_port = environment.main_port(),
                            .rank = environment.global_rank(),
                            .world_size = environment.world_size(),
                            .timeout = options.timeout,
                            .reduction = options.reduction,
                            .check_collectives = options.check_collectives});
}

/// A module that was set up. The optimizers tell whose buffers follow a step.
template <class Engine>
struct DrivenModule {
  const torch::nn::Module* address;
  std::weak_ptr<torch::nn::Module> module;
  std::shared_ptr<Engine> engine;  ///< null while the module is released
  std::vector<const Optimizer*> optimizers = {};
  bool awaits_step = false;  ///< gradients have been averaged since buffers were made equal
};

template <class Engine>
class EngineTable {
 public:
  using Row = DrivenModule<Engine>;

  /// Null where there is none.
  Row* find(const torch::nn::Module& module) {
    const auto found = std::ranges::find(rows_, &module, &Row::address);
    return found == rows_.end() || found->module.expired() ? nullptr : &*found;
  }

  /// @throws ConfigError for a module that is not set up
  Row& of(const torch::nn::Module& module) {
    auto* const found = find(module);
    if (found == nullptr || !found->engine) refuse_stranger("module");
    return *found;
  }

  /// @throws ConfigError for an optimizer of no module here
  Row& of(const Optimizer& optimizer) {
    const auto found = std::ranges::find_if(
        rows_, [&](const Row& row) { return std::ranges::count(row.optimizers, &optimizer) > 0; });
    if (found == rows_.end()) refuse_stranger("optimizer");
    return *found;
  }

  /// Forgets modules that nobody owns any more, and takes this one, or gives it another engine.
  void set(const std::shared_ptr<torch::nn::Module>& module, std::shared_ptr<Engine> engine) {
    forget_dropped();
    if (auto* const known = find(*module)) {
      known->engine = std::move(engine);
    } else {
      rows_.push_back({.address = module.get(), .module = module, .engine = std::move(engine)});
    }
  }

  void forget_dropped() {
    std::erase_if(rows_, [](const Row& row) { return row.module.expired(); });
  }

  /// An optimizer that is gone may have had the same address.
  void add(Row& row, const Optimizer& optimizer) {
    for (auto& other : rows_) std::erase(other.optimizers, &optimizer);
    row.optimizers.push_back(&optimizer);
  }

  /// The engines of `synced`, whose gradients the backward that begins will average, last module first: its
  /// gradients usually come first. @throws ConfigError for a module that is not set up
  std::vector<Engine*> averaging(std::span<torch::nn::Module* const> synced) {
    std::vector<Engine*> engines;
    for (const auto* module : synced | std::views::reverse) {
      auto& row = of(*module);
      row.awaits_step = true;
      engines.push_back(row.engine.get());
    }
    return engines;
  }

  /// An optimizer of the module has stepped: of several, the first makes its buffers equal.
  static void end_step(Row& row) {
    if (std::exchange(row.awaits_step, false)) row.engine->after_step();
  }

  std::vector<Row>& rows() { return rows_; }
  const std::vector<Row>& rows() const { return rows_; }

 private:
  [[noreturn]] static void refuse_stranger(const std::string& kind) {
    throw ConfigError("strategy", {.what = "a " + kind + " that this strategy has not set up",
                                   .expected = "one that it has, since its last teardown",
                                   .got = "another " + kind});
  }

  std::vector<Row> rows_;
};

}  // namespace lockstep::detail
