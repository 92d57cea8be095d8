#include <lockstep/parallel/sharded/sharded_engine.h>

#include <algorithm>

#include <lockstep/base/error.h>
#include <lockstep/optim/grad_norm.h>
#include <lockstep/torch.h>

#include "device/step_recording.h"
#include "offload/swap_folder.h"
#include "optim/device_operators.h"
#include "parallel/backward_checks.h"
#include "parallel/sharded/sharded_engine.h"

namespace lockstep {

using namespace detail;

ShardedEngine::ShardedEngine(const torch::nn::Module& module, Communicator comm, const Fsdp& options,
                             int ranks_per_node)
    : ShardedEngine(module, plan_of(options, comm.size(), ranks_per_node), comm) {}

ShardedEngine::ShardedEngine(const torch::nn::Module& module, const ShardingPlan& plan, Communicator comm)
    : impl_(std::make_unique<Impl>(module, std::move(comm), plan)) {}

// Recordings refer to it.
ShardedEngine::~ShardedEngine() { outdate_recordings(); }

PendingScales::~PendingScales() = default;

std::vector<NamedParameter> ShardedEngine::parameters() const {
  std::vector<NamedParameter> all;
  for (const auto& [name, tensor] : impl_->states.parameters) {
    const auto found = impl_->pieces->find(name);
    if (found == impl_->pieces->end()) continue;
    const auto& piece = found->second.flat->piece(found->second.member);
    if (piece.requires_grad()) all.push_back({name, piece});
  }
  return all;
}

std::shared_ptr<PieceExchange> ShardedEngine::exchange() const {
  return std::make_shared<ShardExchange>(impl_->pieces, impl_->mesh.gather);
}

void ShardedEngine::offload_state(Optimizer& optimizer) const {
  const auto& offload = impl_->plan.offload;
  if (!offload) return;
  auto& gradients = *impl_->gradients;
  const auto gradient_bytes =
      offload->parameters ? static_cast<std::uint64_t>(gradients.bytes_to_take()) : std::uint64_t{0};
  if (offload->optimizer) {
    auto where = *impl_->swap;
    where.ranks = impl_->ranks_on_disk;
    where.other_bytes = gradient_bytes;
    optimizer.swap_state(where);
  } else {
    impl_->require_room(gradient_bytes, "the gradients");
  }
  impl_->comm.barrier();  // all have seen how much room there is before any takes some
  if (offload->parameters) gradients.take_memory();
  if (offload->optimizer) (void)optimizer.state();  // makes it, and its file
}

void ShardedEngine::backward(const at::Tensor& loss, const BackwardOptions& options) {
  ShardedEngine* const self = this;
  backward(loss, std::span(&self, 1), options);
}

void ShardedEngine::backward(const at::Tensor& loss, std::span<ShardedEngine* const> engines,
                             const BackwardOptions& options) {
  require_gradient(loss, engines.empty() ? nullptr : &engines.front()->impl_->comm);
  std::vector<Impl*> averaging;
  for (const auto* engine : engines) {
    if (engine->impl_->local_scopes == 0) averaging.push_back(engine->impl_.get());
  }
  if (!averaging.empty() && options.create_graph) refuse_create_graph();
  try {
    for (auto* impl : averaging) impl->begin(loss);
    loss.backward(options.gradient, options.retain_graph, options.create_graph);
    for (auto* impl : averaging) impl->finish();
  } catch (...) {
    for (auto* impl : averaging) impl->abandon();
    throw;
  }
}

void ShardedEngine::after_step() {
  impl_->residency.release_after_step();
  impl_->broadcast_buffers();
  if (impl_->replicas) impl_->replicas->end_step();
  meet_once_per_step([impl = impl_.get()] {
    if (is_compared_after(++impl->steps)) impl->compare_trained();
  });
}

void ShardedEngine::check_replicas() {
  if (impl_->replicas) impl_->replicas->compare();
  impl_->compare_trained();
}

ShardedEngine::NoSync::NoSync(ShardedEngine& engine) : engine_(engine) { ++engine_.impl_->local_scopes; }
ShardedEngine::NoSync::~NoSync() { --engine_.impl_->local_scopes; }

bool ShardedEngine::is_local() const { return impl_->local_scopes > 0; }

void ShardedEngine::average_accumulated() {
  if (const auto scales = pending_scales()) scales->apply_all();  // what is added is not theirs
  try {
    impl_->begin({});
    impl_->finish();
  } catch (...) {
    impl_->abandon();
    throw;
  }
}

void ShardedEngine::drop_accumulated_gradients() {
  if (impl_->gradients) impl_->gradients->drop_accumulated();
}

void ShardedEngine::drop_accumulated_gradients(std::span<const NamedParameter> parameters) {
  for (const auto& [flat, member] : impl_->refs_of(parameters))
    flat->members()[member].tensor.mutable_grad().reset();
}

double ShardedEngine::grad_norm(std::span<const NamedParameter> parameters, double norm_type) const {
  return sharded_grad_norm(impl_->refs_of(parameters), norm_type, impl_->mesh.gather);
}

double ShardedEngine::clip_grad_norm(std::span<const NamedParameter> parameters, double max_norm,
                                     double norm_type, bool error_if_nonfinite) const {
  std::vector<at::Tensor> pieces;
  for (const auto& parameter : parameters) pieces.push_back(parameter.tensor);
  return scale_gradients_to(pieces, grad_norm(parameters, norm_type), max_norm, error_if_nonfinite);
}

Scalar ShardedEngine::clip_grad_norm_lazily(std::span<const NamedParameter> parameters,
                                            const GradientClip& clip) const {
  if (impl_->device.is_cpu() || impl_->memory.is_on_host() || clip.norm_type != 2.0 ||
      clip.error_if_nonfinite)
    return clip_grad_norm(parameters, clip.value, clip.norm_type, clip.error_if_nonfinite);
  const torch::NoGradGuard no_grad;
  const auto norm = sharded_norm_on_device(impl_->refs_of(parameters), impl_->mesh.gather);
  const auto coefficient = device_clip_coefficient(norm, clip.value);
  std::vector<at::Tensor> gradients;
  for (const auto& parameter : parameters)
    if (parameter.tensor.grad().defined()) gradients.push_back(parameter.tensor.grad());
  device_scale(gradients, coefficient);
  return Scalar::of_last_use(norm);
}

void ShardedEngine::set_pending_scales(std::weak_ptr<PendingScales> scales) {
  impl_->pending_scales = std::move(scales);
}

std::shared_ptr<PendingScales> ShardedEngine::pending_scales() const { return impl_->pending_scales.lock(); }

void ShardedEngine::forget_errors() { impl_->gradients->forget_past(); }

bool ShardedEngine::still_holds(const torch::nn::Module& module) const {
  const ModuleStates now(module);
  const auto& then = impl_->states.parameters;
  const auto is_same = [](const NamedTensor& a, const NamedTensor& b) {
    return a.name == b.name && a.tensor.is_same(b.tensor);
  };
  const auto is_intact = [](const ShardedUnit& unit) {
    return std::ranges::all_of(unit.flats, [](const auto& flat) { return flat->is_intact(); });
  };
  return !impl_->is_over && std::ranges::equal(now.parameters, then, is_same) &&
         std::ranges::all_of(impl_->units, is_intact);
}

ShardedStats ShardedEngine::stats() const {
  auto stats = impl_->residency.stats();
  if (impl_->gradients) {
    stats.reductions = impl_->gradients->reductions();
    stats.reduced_bytes = impl_->gradients->reduced_bytes();
    stats.gradient_bytes = impl_->gradients->average_bytes();
  }
  for (const auto& [name, ref] : *impl_->pieces)
    stats.shard_bytes += static_cast<std::int64_t>(ref.flat->piece(ref.member).nbytes());
  for (const auto& unit : impl_->units) {
    for (const auto& flat : unit.flats) {
      stats.secondary_bytes += flat->secondary_bytes();
      stats.narrow_bytes += flat->narrow_bytes();
      stats.kept_row_bytes += flat->kept_row_bytes();
    }
  }
  impl_->mesh.count_sent(stats);
  if (impl_->has_whole_group()) impl_->whole_mesh.count_sent(stats);
  return stats;
}

std::vector<std::string> ShardedEngine::unit_names() const {
  std::vector<std::string> names;
  for (const auto& unit : impl_->units) names.push_back(unit.name);
  return names;
}

bool ShardedEngine::is_over() const { return impl_->is_over; }

int ShardedEngine::shards() const { return impl_->mesh.shards(); }

const ShardingPlan& ShardedEngine::plan() const { return impl_->plan; }

const Communicator& ShardedEngine::communicator() const { return impl_->comm; }

}  // namespace lockstep
