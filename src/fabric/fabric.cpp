#include <lockstep/fabric/fabric.h>

#include <cstdio>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/fabric/batch_agreement.h>
#include <lockstep/torch.h>

#include "fabric/fabric_state.h"
#include "state/storable.h"
#include "strategy/scaled_step.h"

namespace lockstep {

Fabric::Fabric(FabricOptions options) : state_(std::make_unique<detail::FabricState>(std::move(options))) {
  if (world_size() == 1) launch();
}

Fabric::~Fabric() {
  if (!state_ || !is_global_zero()) return;
  for (const auto& logger : loggers()) {
    try {
      logger->flush();
    } catch (const std::exception& error) {
      log_warning(std::string("a logger could not write what it holds: ") + error.what());
    }
  }
}

Fabric::Fabric(Fabric&&) noexcept = default;
Fabric& Fabric::operator=(Fabric&&) noexcept = default;

void Fabric::launch() {
  auto& state = *state_;
  if (state.launched) return;
  const auto& run_dir = state.options.run.run_dir;
  if (!state.strategy) {
    // The copies claim no folders of their own.
    if (!run_dir.empty()) env::set("LOCKSTEP_RUN_DIR", run_dir.string());
    state.connector.start_ranks(run_dir);
  }
  state.strategy->setup_environment(*state.connector.environment(), state.connector.shape());
  state.strategy->barrier();
  configure_log({.rank = global_rank(), .world_size = world_size()});
  state.strategy->set_precision(*state.precision);
  if (global_rank() == 0) state.warn_of_what_programs_do();
  state.launched = true;
}

void Fabric::set_up_module(const std::shared_ptr<torch::nn::Module>& module) {
  auto& state = *state_;
  state.require_launched("setup()");
  if (!module) throw ConfigError("fabric", {.what = "setup() was given no model", .got = "a null pointer"});
  state.modules.remove_expired();
  state.refuse_second_setup(*module);
  {
    std::optional<DeferredInit> deferral;
    if (state.strategy->defers_init()) deferral.emplace();
    state.precision->convert_module(*module);
  }
  detail::require_storable(*module);
  state.strategy->setup_module(module);
  state.modules.add(module);
}

void Fabric::release_module(const torch::nn::Module& module) {
  known_module(module);
  state_->strategy->release_module(module);
  state_->modules.remove(module);
}

std::shared_ptr<FabricOptimizer> Fabric::set_up_optimizer(torch::nn::Module& module,
                                                          const OptimizerFactory& factory) {
  known_module(module);
  auto optimizer = state_->strategy->setup_optimizer(module, factory);
  detail::begin_with(*state_->precision, *optimizer);
  return std::make_shared<FabricOptimizer>(state_->strategy, state_->precision, std::move(optimizer),
                                           callbacks(), state_->clip());
}

ForwardScope Fabric::autocast() const { return state_->precision->forward_scope(); }

InitScope Fabric::init_module() const {
  state_->require_launched("init_module()");
  return {state_->precision->init_dtype(), state_->strategy->defers_init()};
}

Example Fabric::to_device(const Example& batch) const {
  return {to_device(batch.data), batch.target.defined() ? to_device(batch.target) : at::Tensor()};
}

ShardSpec Fabric::shard_for(const AnyLoader& loader, const SetupLoaderOptions& options) const {
  state_->require_launched("setup_loader()");
  ShardSpec shard{.pad = options.pad, .seed = state_->options.run.seed_everything.value_or(0)};
  if (options.use_distributed_sampler) {
    shard.num_replicas = world_size();
    shard.rank = global_rank();
  }
  check_shards(loader, shard);
  return shard;
}

TensorChange Fabric::input_conversion() const {
  if (!state_->precision->converts_inputs()) return {};
  return [precision = state_->precision](const at::Tensor& input) { return precision->convert_input(input); };
}

std::shared_ptr<AnyLoader> Fabric::ending_together(std::shared_ptr<AnyLoader> loader,
                                                   const SetupLoaderOptions& options) const {
  return agree_on_batches(std::move(loader), state_->strategy->communicator(), options.uneven_streams);
}

std::uint64_t Fabric::seed_everything(std::uint64_t seed) {
  torch::manual_seed(seed);
  state_->options.run.seed_everything = seed;
  return seed;
}

void Fabric::print(std::string_view text) const {
  if (!is_global_zero()) return;
  std::printf("%.*s\n", static_cast<int>(text.size()), text.data());
  std::fflush(stdout);
}

void Fabric::log(std::string_view name, double value, std::optional<std::int64_t> step) {
  log_dict({Metric{std::string(name), value}}, step);
}

void Fabric::log(std::string_view name, const at::Tensor& value, std::optional<std::int64_t> step) {
  if (is_global_zero()) log(name, value.item<double>(), step);
}

void Fabric::log_dict(const std::vector<Metric>& metrics, std::optional<std::int64_t> step) {
  if (!is_global_zero()) return;
  auto& next = state_->next_log_step;
  const auto at_step = step.value_or(next);
  next = at_step + 1;
  for (const auto& logger : loggers()) logger->log_metrics(metrics, /*epoch=*/0, at_step);
}

Strategy& Fabric::strategy() const {
  state_->require_launched("strategy()");
  return *state_->strategy;
}

Precision& Fabric::precision() const { return *state_->precision; }
const std::filesystem::path& Fabric::run_dir() const { return state_->options.run.run_dir; }
at::Device Fabric::device() const { return at::kCPU; }
int Fabric::local_rank() const { return state_->connector.environment()->local_rank(); }
int Fabric::node_rank() const { return state_->connector.environment()->node_rank(); }
int Fabric::global_rank() const { return state_->connector.environment()->global_rank(); }
int Fabric::world_size() const { return state_->connector.world_size(); }
const std::vector<std::shared_ptr<Logger>>& Fabric::loggers() const { return state_->options.loggers; }
const std::vector<std::shared_ptr<FabricCallback>>& Fabric::callbacks() const {
  return state_->options.callbacks;
}

}  // namespace lockstep
