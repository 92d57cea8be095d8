#include "strategy/sharded_strategy.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/optim/grad_norm.h>
#include <lockstep/parallel/ddp/ddp_engine.h>
#include <lockstep/parallel/sharded/sharded_modules.h>
#include <lockstep/parallel/sharded/sharding_plan.h>
#include <lockstep/precision/precision.h>
#include <lockstep/torch.h>

#include "strategy/engine_table.h"
#include "strategy/module_parameters.h"
#include "strategy/same_optimizer.h"

namespace lockstep::detail {
namespace {

// Kernels compute in float32 at least, where a gradient of 16 bits would be rounded once more in between.
bool has_same_bits(const Optimizer& optimizer) {
  return std::ranges::all_of(optimizer.parameters(), [](const NamedParameter& parameter) {
    const auto& gradient = parameter.tensor.grad();
    return !gradient.defined() || gradient.scalar_type() == at::kFloat ||
           gradient.scalar_type() == at::kDouble;
  });
}

bool is_power_of_two(double factor) {
  int exponent = 0;
  return std::frexp(factor, &exponent) == 0.5;
}

void multiply(const Optimizer& optimizer, double factor) {
  if (factor == 1.0) return;
  const torch::NoGradGuard no_grad;
  for (const auto& parameter : optimizer.parameters()) {
    if (parameter.tensor.grad().defined()) parameter.tensor.grad().mul_(factor);
  }
}

}  // namespace

std::shared_ptr<double> DeferredScales::follow(const Optimizer& optimizer) {
  std::erase_if(factors_, [](const auto& entry) { return entry.second.expired(); });
  auto factor = std::make_shared<double>(1.0);
  factors_[&optimizer] = factor;
  return factor;
}

std::shared_ptr<double> DeferredScales::find(const Optimizer& optimizer) const {
  const auto found = factors_.find(&optimizer);
  return found == factors_.end() ? nullptr : found->second.lock();
}

bool DeferredScales::follows(const Optimizer* optimizer) const {
  const auto found = factors_.find(optimizer);
  return found != factors_.end() && !found->second.expired();
}

double DeferredScales::factor(const Optimizer& optimizer) const {
  const auto factor = find(optimizer);
  return factor ? *factor : 1.0;
}

double DeferredScales::factor_of(const at::Tensor& piece) const {
  for (const auto& [optimizer, factor] : factors_) {
    const auto current = factor.lock();
    if (!current || *current == 1.0) continue;
    const auto is_it = [&](const NamedParameter& parameter) { return parameter.tensor.is_same(piece); };
    if (std::ranges::any_of(optimizer->parameters(), is_it)) return *current;
  }
  return 1.0;
}

void DeferredScales::scale(const Optimizer& optimizer, double factor) {
  if (factor == 1.0) return;
  const auto deferred = find(optimizer);
  if (deferred && has_same_bits(optimizer)) {
    *deferred *= factor;
  } else {
    multiply(optimizer, factor);
  }
}

bool DeferredScales::defer_exact(const Optimizer& optimizer, double factor) {
  const auto deferred = find(optimizer);
  if (!deferred || !is_power_of_two(factor) || !has_same_bits(optimizer)) return false;
  settle(optimizer);
  *deferred *= factor;
  return true;
}

void DeferredScales::settle(const Optimizer& optimizer) {
  if (!is_power_of_two(factor(optimizer))) apply(optimizer);
}

void DeferredScales::apply(const Optimizer& optimizer) {
  if (const auto factor = find(optimizer)) multiply(optimizer, std::exchange(*factor, 1.0));
}

void DeferredScales::apply_all() {
  for (const auto& [optimizer, factor] : factors_) {
    if (!factor.expired()) apply(*optimizer);
  }
}

}  // namespace lockstep::detail

namespace lockstep {
namespace {

void refuse_whole_tensors(const Optimizer& optimizer) {
  if (optimizer.takes_pieces()) return;
  throw ConfigError("strategy", {.what = std::string(optimizer.name()) + " under a strategy that shards",
                                 .expected = "an optimizer that takes pieces of tensors",
                                 .got = "one that looks at whole tensors, of which a rank has a shard",
                                 .hint = "use strategy ddp"});
}

bool has_gradient(const NamedParameter& parameter) { return parameter.tensor.grad().defined(); }

// Gradients of local backward passes lie on the model's own tensors, where no step would find them.
void require_gradients_in_shards(const detail::DrivenModule<ShardedEngine>& row, const Optimizer& optimizer,
                                 const char* what) {
  if (row.awaits_step || std::ranges::any_of(optimizer.parameters(), has_gradient)) return;
  const auto module = row.module.lock();
  if (!module) return;
  const auto whole = module->named_parameters();
  for (const auto& [name, piece] : optimizer.parameters()) {
    const auto* const tensor = whole.find(name);
    if (tensor == nullptr || !tensor->grad().defined()) continue;
    throw ConfigError(
        "strategy",
        {.what = what + (" of " + std::string(optimizer.name())) + " before gradients are averaged",
         .expected = "a backward pass that averages them, the last one of the window",
         .got = "a gradient of " + name + " that is this rank's alone",
         .hint = "the window's last backward() runs outside of no_backward_sync(), and of toggling "
                 "with sync_grad = false"});
  }
}

void require_averaged(const detail::DrivenModule<ShardedEngine>& row, const Optimizer& optimizer,
                      const char* what) {
  if (!row.engine->is_local()) return require_gradients_in_shards(row, optimizer, what);
  throw ConfigError("strategy", {.what = what + (" of " + std::string(optimizer.name())) +
                                         " while gradients add up on each rank",
                                 .expected = "gradients that are averaged",
                                 .hint = "close() CoalesceGradReduction before, on all ranks"});
}

// Its pieces are the model's no more.
void require_sharded(const ShardedEngine& engine, const Optimizer& optimizer) {
  if (!engine.is_over()) return;
  throw ConfigError(
      "strategy", {.what = "a step of " + std::string(optimizer.name()) + ", whose model is sharded no more",
                   .expected = "a model that is set up",
                   .got = "one that restore_sharded() has made whole",
                   .hint = "setup() the model again before; its optimizers go on with it"});
}

// A strategy whose ranks have whole models gives optimizers what is frozen, too.
void warn_of_unheld(const ShardedEngine& before, const ShardedEngine& now,
                    std::span<Optimizer* const> optimizers) {
  if (optimizers.empty()) return;
  std::set<std::string> known;
  for (const auto& [name, piece] : before.parameters()) known.insert(name);
  for (const auto* optimizer : optimizers)
    for (const auto& [name, piece] : optimizer->parameters()) known.insert(name);
  std::string unheld;
  for (const auto& [name, piece] : now.parameters())
    if (!known.contains(name)) unheld += (unheld.empty() ? "" : ", ") + name;
  if (unheld.empty()) return;
  log_warning(
      "parameters that were frozen when the model was set up before are in none of its optimizers, "
      "and stay as they are until one has them: " +
      unheld);
}

std::vector<ShardedEngine*> pointers_to(const std::vector<std::shared_ptr<ShardedEngine>>& engines) {
  std::vector<ShardedEngine*> pointers;
  for (const auto& engine : engines) pointers.push_back(engine.get());
  return pointers;
}

// By the names that they have in `module`; an engine may have a part of it, with names of its own.
std::vector<NamedParameter> pieces_in(const torch::nn::Module& module,
                                      const std::vector<std::shared_ptr<ShardedEngine>>& engines) {
  std::vector<NamedParameter> pieces;
  for (const auto& engine : engines) {
    std::map<std::string, at::Tensor> left;
    for (const auto& [name, piece] : engine->parameters()) left.emplace(name, piece);
    for (const auto& item : module.named_parameters()) {
      const auto found = left.find(engine->name_of(item.value()));
      if (found == left.end()) continue;
      pieces.push_back({item.key(), found->second});
      left.erase(found);
    }
  }
  return pieces;
}

}  // namespace

ShardedStrategy::~ShardedStrategy() {
  sharded_ = {};
  forget_dropped_sharded();
}

void ShardedStrategy::set_ranks(Communicator communicator, int ranks_per_node) {
  communicator_ = std::move(communicator);
  ranks_per_node_ = ranks_per_node;
}

ShardingPlan ShardedStrategy::plan() const {
  return detail::placed_on(plan(communicator_.size(), ranks_per_node_), root_device());
}

// A module stays sharded from one fit to the next, also by another Trainer with the same options.
void ShardedStrategy::setup_module(const std::shared_ptr<torch::nn::Module>& module) {
  detail::require_placeable(*module, root_device(), communicator_.rank());
  detail::require_same_plan(plan(), communicator_);  // before some take the shorter way
  sharded_.forget_dropped();
  forget_dropped_sharded();
  const auto known = sharded_engines(*module);
  if (known.size() == 1 && is_alike(*known.front()) && known.front()->still_holds(*module)) {
    known.front()->forget_errors();
    return drive(module, known.front());
  }
  restore_sharded(*module);
  detail::place_unsharded(*module, root_device());
  auto engine = std::make_shared<ShardedEngine>(*module, plan(), communicator_);
  keep_sharded(module, engine);
  drive(module, std::move(engine));
}

// Who looks at gradients finds them as the step will.
void ShardedStrategy::drive(const std::shared_ptr<torch::nn::Module>& module,
                            std::shared_ptr<ShardedEngine> engine) {
  engine->set_pending_scales(scales_);
  const auto* const row = sharded_.find(*module);
  if (row != nullptr && row->engine != engine) {
    const auto optimizers = living_optimizers(*row);
    if (communicator_.rank() == 0) warn_of_unheld(*row->engine, *engine, optimizers);
    for (auto* optimizer : optimizers) scales_->apply(*optimizer);
    engine->take_over(*row->engine, optimizers);
    for (auto* optimizer : optimizers) follow(*optimizer, engine);
  }
  sharded_.set(module, std::move(engine));
}

// They were not const when they were set up.
std::vector<Optimizer*> ShardedStrategy::living_optimizers(const Row& row) const {
  std::vector<Optimizer*> living;
  for (const auto* optimizer : row.optimizers)
    if (scales_->follows(optimizer)) living.push_back(const_cast<Optimizer*>(optimizer));
  return living;
}

void ShardedStrategy::follow(Optimizer& optimizer, const std::shared_ptr<ShardedEngine>& engine) {
  optimizer.on_zero_grad(
      [engine = std::weak_ptr(engine), stepping = &optimizer, factor = scales_->follow(optimizer)] {
        *factor = 1.0;
        if (const auto alive = engine.lock()) alive->drop_accumulated_gradients(stepping->parameters());
      });
}

bool ShardedStrategy::is_alike(const ShardedEngine& engine) const {
  return engine.plan() == plan() && engine.communicator().global_ranks() == communicator_.global_ranks();
}

// It stays in its shards, where setup_module() finds it, with the gradients that wait: whole, it may be more
// than fits. The row keeps the engine, of whose pieces its optimizers have state.
void ShardedStrategy::release_module(const torch::nn::Module& module) { (void)sharded_.of(module); }

std::unique_ptr<Optimizer> ShardedStrategy::setup_optimizer(torch::nn::Module& module,
                                                            const OptimizerFactory& factory) {
  auto& row = sharded_.of(module);
  auto optimizer = factory.create(row.engine->parameters(), row.engine->exchange());
  refuse_whole_tensors(*optimizer);
  detail::require_same_optimizer(*optimizer, communicator_);
  row.engine->offload_state(*optimizer);
  finished_.erase(optimizer.get());
  follow(*optimizer, row.engine);
  sharded_.add(row, *optimizer);
  return optimizer;
}

// Shards are the same on all ranks that hold them.
void ShardedStrategy::setup_evaluation(torch::nn::Module& module) {
  detail::require_placeable(module, root_device(), communicator_.rank());
  if (!sharded_engines(module).empty()) return;
  detail::place_module(module, root_device());
  DdpEngine::broadcast_module_states(module, communicator_);
}

// What has been averaged lies on the shards, and what waits for that on the model's own tensors.
std::vector<NamedParameter> ShardedStrategy::accumulating_parameters(torch::nn::Module& module) {
  scales_->apply_all();
  auto pieces = pieces_in(module, sharded_engines(module));
  if (averages_every_backward()) return pieces;
  auto parameters = Strategy::accumulating_parameters(module);
  for (auto& [name, piece] : pieces) parameters.push_back({"shard of " + name, piece});
  return parameters;
}

bool ShardedStrategy::shares_forward(const torch::nn::Module& module) const {
  return communicator_.size() > 1 && !sharded_engines(module).empty();
}

std::shared_ptr<void> ShardedStrategy::hold_whole(torch::nn::Module& module) {
  const auto engines = std::make_shared<std::vector<std::shared_ptr<ShardedEngine>>>(sharded_engines(module));
  for (const auto& engine : *engines) engine->gather_all();
  return std::shared_ptr<void>(engines.get(), [engines](void*) {
    for (const auto& engine : *engines) engine->forget_gathered();
  });
}

void ShardedStrategy::backward(const at::Tensor& loss, std::span<torch::nn::Module* const> synced,
                               const BackwardOptions& options) {
  scales_->apply_all();
  ShardedEngine::backward(loss, sharded_.averaging(synced), options);
}

double ShardedStrategy::clip_gradients(Optimizer& optimizer, const GradientClip& clip) {
  require_averaged(sharded_.of(optimizer), optimizer, "clip_gradients()");
  if (clip.algorithm == ClipAlgorithm::kNorm) {
    scales_->settle(optimizer);
    const auto norm = grad_norm(optimizer, clip.norm_type);
    scales_->scale(optimizer, clip_coefficient(norm, clip.value, clip.error_if_nonfinite));
    return norm;
  }
  scales_->apply(optimizer);
  return Strategy::clip_gradients(optimizer, clip);
}

Scalar ShardedStrategy::clip_gradients_lazily(Optimizer& optimizer, const GradientClip& clip) {
  if (optimizer.parameters().front().tensor.is_cpu() || clip.algorithm != ClipAlgorithm::kNorm)
    return clip_gradients(optimizer, clip);
  const auto& row = sharded_.of(optimizer);
  require_averaged(row, optimizer, "clip_gradients()");
  scales_->apply(optimizer);
  return row.engine->clip_grad_norm_lazily(optimizer.parameters(), clip);
}

void ShardedStrategy::check_step(const Optimizer& optimizer) {
  const auto& row = sharded_.of(optimizer);
  require_sharded(*row.engine, optimizer);
  require_averaged(row, optimizer, "a step");
}

// What has failed half way may have changed this rank's part of what is gathered.
void ShardedStrategy::optimizer_step(Optimizer& optimizer) {
  check_step(optimizer);
  sharded_.of(optimizer).engine->await_device();
  try {
    optimizer.step(scales_->factor(optimizer));
  } catch (...) {
    sharded_.of(optimizer).engine->forget_gathered();
    throw;
  }
  skip_optimizer_step(optimizer);
}

double ShardedStrategy::optimizer_step_with(Optimizer& optimizer, const Optimizer::Closure& closure) {
  if (optimizer.needs_closure()) {
    const auto loss = optimizer.step_with(closure);
    skip_optimizer_step(optimizer);
    return loss;
  }
  const auto loss = closure();
  optimizer_step(optimizer);
  return loss;
}

void ShardedStrategy::skip_optimizer_step(Optimizer& optimizer) {
  auto& row = sharded_.of(optimizer);
  if (row.engine->is_over()) return;
  if (!row.awaits_step) return row.engine->forget_gathered();
  detail::EngineTable<ShardedEngine>::end_step(row);
}

void ShardedStrategy::check_replicas(torch::nn::Module& module) {
  for (const auto& engine : sharded_engines(module)) engine->check_replicas();
}

std::map<std::string, at::Tensor> ShardedStrategy::module_state(torch::nn::Module& module) {
  const auto engines = sharded_engines(module);
  return engines.empty() ? Strategy::module_state(module) : full_state(module, pointers_to(engines));
}

StateTree ShardedStrategy::saved_shards(torch::nn::Module& module) {
  return sharded_state(module, pointers_to(sharded_engines(module)));
}

StateTree ShardedStrategy::saved_state(torch::nn::Module& module) {
  if (state_dict_type_ == StateDictType::kSharded) return saved_shards(module);
  const auto engines = pointers_to(sharded_engines(module));
  if (engines.empty()) return Strategy::saved_state(module);
  StateTree tree;
  for (const auto& [name, tensor] : full_state(module, engines, WholeValues::kMaster)) tree.set(name, tensor);
  return tree;
}

StateTree ShardedStrategy::wanted_state(torch::nn::Module& module) {
  return sharded_state(module, pointers_to(sharded_engines(module)), ShardCopies::kAll);
}

IncompatibleKeys ShardedStrategy::load_module(torch::nn::Module& module, const StateTree& state,
                                              bool strict) {
  return load_sharded_state(module, pointers_to(sharded_engines(module)), state, strict);
}

// The module that keeps it may be gone, and the optimizer another one at the same place.
std::shared_ptr<ShardedEngine> ShardedStrategy::engine_of(const Optimizer& optimizer) {
  const auto finished = finished_.find(&optimizer);
  if (finished != finished_.end() && scales_->follows(&optimizer))
    if (auto engine = finished->second.lock()) return engine;
  return sharded_.of(optimizer).engine;
}

StateTree ShardedStrategy::optimizer_state(Optimizer& optimizer) {
  return sharded_optimizer_state(*engine_of(optimizer), optimizer);
}

StateTree ShardedStrategy::wanted_optimizer_state(Optimizer& optimizer) {
  return sharded_optimizer_state(*sharded_.of(optimizer).engine, optimizer, ShardCopies::kAll);
}

double ShardedStrategy::grad_norm(Optimizer& optimizer, double norm_type) {
  const auto factor = scales_->factor(optimizer);
  return factor * sharded_.of(optimizer).engine->grad_norm(optimizer.parameters(), norm_type);
}

void ShardedStrategy::load_optimizer(Optimizer& optimizer, const StateTree& state) {
  load_sharded_optimizer_state(*sharded_.of(optimizer).engine, optimizer, state);
}

std::vector<at::Tensor> ShardedStrategy::trained_parameters(const Optimizer& optimizer) {
  const auto module = sharded_.of(optimizer).module.lock();
  std::vector<at::Tensor> parameters;
  const auto all = module->named_parameters();
  for (const auto& piece : optimizer.parameters()) parameters.push_back(all[piece.name]);
  return parameters;
}

std::uint64_t ShardedStrategy::bytes_sent() const {
  auto bytes = communicator_.bytes_sent();
  for (const auto& row : sharded_.rows()) bytes += static_cast<std::uint64_t>(row.engine->stats().bytes_sent);
  return bytes;
}

std::map<std::string, int> ShardedStrategy::mesh() const {
  const auto& rows = sharded_.rows();
  const int shards = rows.empty() ? communicator_.size() : rows.front().engine->shards();
  return {{"replicate", communicator_.size() / shards}, {"shard", shards}};
}

// Modules stay sharded: whole, they may be more than fits.
void ShardedStrategy::teardown() {
  std::erase_if(finished_, [](const auto& entry) { return entry.second.expired(); });
  for (auto& row : sharded_.rows()) {
    row.engine->drop_accumulated_gradients();
    for (const auto* optimizer : living_optimizers(row)) finished_[optimizer] = row.engine;
  }
  sharded_ = {};
  forget_dropped_sharded();
}

void FsdpStrategy::setup_environment(ClusterEnvironment& environment, const WorldShape& shape) {
  set_ranks(detail::join_ranks(options_, environment, shape), shape.devices);
}

// As Lightning does for the mixed precisions.
void FsdpStrategy::set_precision(Precision& precision) {
  if (!options_.mixed_precision.has_no_type()) return;
  auto chosen = options_.mixed_precision.value();
  if (precision.compute_dtype() != precision.init_dtype()) chosen.param_dtype = precision.compute_dtype();
  chosen.reduce_dtype = chosen.buffer_dtype = chosen.param_dtype;
  options_.mixed_precision = chosen;
}

}  // namespace lockstep
