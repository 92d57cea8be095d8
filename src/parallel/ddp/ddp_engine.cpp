#include <lockstep/parallel/ddp/ddp_engine.h>

#include <algorithm>

#include <lockstep/base/error.h>
#include <lockstep/comm/coalesced.h>
#include <lockstep/torch.h>

#include "parallel/ddp/averaged_backward.h"
#include "parallel/ddp/backward_errors.h"
#include "parallel/ddp/engine_impl.h"

namespace lockstep {
namespace {

using detail::EngineEvent;
using detail::Participants;

void validate(const Ddp& options) {
  detail::bucket_bytes(options);
  if (!options.skip_all_reduce_unused_params) return;
  if (!options.find_unused_parameters || options.static_graph) {
    throw ConfigError("parallel", {.what = "skip_all_reduce_unused_params has nothing to go by",
                                   .expected = "find_unused_parameters true and static_graph false",
                                   .got = "otherwise"});
  }
  if (options.ddp_comm_hook == DdpCommHook::kPowerSgd) {
    throw ConfigError("parallel",
                      {.what = "skip_all_reduce_unused_params with ddp_comm_hook powerSGD",
                       .expected = "one of them",
                       .got = "both",
                       .hint = "PowerSGD counts steps by their last buckets, which may be skipped"});
  }
}

template <class Embedding>
bool has_sparse_gradients(const torch::nn::Module& module) {
  const auto* const embedding = module.as<Embedding>();
  return embedding && embedding->options.sparse() && embedding->weight.requires_grad();
}

void refuse_sparse_gradients(const std::string& name, const torch::nn::Module& module) {
  if (!has_sparse_gradients<torch::nn::Embedding>(module) &&
      !has_sparse_gradients<torch::nn::EmbeddingBag>(module)) {
    return;
  }
  throw ConfigError("parallel", {.what = "sparse gradients cannot be averaged: those of " + name,
                                 .expected = "an embedding with dense gradients",
                                 .got = "sparse(true)"});
}

void refuse_sparse_embeddings(const torch::nn::Module& module) {
  refuse_sparse_gradients("the module", module);
  for (const auto& part : module.named_modules(/*name_prefix=*/"", /*include_self=*/false)) {
    refuse_sparse_gradients(part.key(), *part.value());
  }
}

std::vector<at::Tensor> tensors_of(const std::vector<detail::NamedTensor>& named) {
  std::vector<at::Tensor> tensors;
  for (const auto& each : named) tensors.push_back(each.tensor);
  return tensors;
}

// A rank that has no graph of its own would take its next backward for the one to learn from.
[[noreturn]] void refuse_unlearnt_graph() {
  throw ConfigError("parallel",
                    {.what = "static_graph under Join: a rank ran out of batches before the graph was learnt",
                     .expected = "one averaged backward on every rank at least",
                     .got = "none on some"});
}

}  // namespace

DdpEngine::Impl::Impl(const torch::nn::Module& module, const detail::ModuleStates& states, Communicator group,
                      const Ddp& ddp_options)
    : comm(std::move(group)),
      options(ddp_options),
      watch(module, states, options.find_unused_parameters && !options.static_graph),
      versions(tensors_of(states.parameters)),
      replicas(comm, states.parameters.size(),
               [all = states.parameters](std::size_t i) {
                 return detail::Replica{.name = all[i].name, .tensor = all[i].tensor};
               }),
      power_sgd(detail::make_power_sgd_state(options)),
      hook(detail::make_comm_hook(options, power_sgd)) {
  for (const auto& named : states.parameters) {
    parameters.push_back(named.tensor);
    if (named.tensor.requires_grad()) trained.push_back(named);
  }
  for (const auto& named : states.buffers) buffers.push_back(named.tensor);
  // It would count the local passes of the first window, too, when it learns a static graph.
  if (!options.static_graph) make_reducer();
}

detail::BucketReducer* DdpEngine::Impl::make_reducer() {
  if (!reducer && !trained.empty() && comm.size() > 1) {
    reducer = std::make_unique<detail::BucketReducer>(trained, comm, options, hook);
  }
  return reducer.get();
}

detail::BucketReducer* DdpEngine::Impl::prepare_backward(const Participants& participants) {
  has_prepared = true;
  auto* const ready = make_reducer();
  if (ready && !participants.are_all && ready->is_learning()) refuse_unlearnt_graph();
  return ready;
}

Participants DdpEngine::Impl::announce(const DdpEngine& engine, EngineEvent event) {
  if (!observer) return {.divisor = comm.size()};
  return observer->before(engine, event);
}

void DdpEngine::Impl::broadcast_buffers(int root) {
  if (options.broadcast_buffers) broadcast_coalesced(comm, buffers, root);
}

void DdpEngine::Impl::shadow_backward(const Participants& participants) {
  if (auto* const ready = prepare_backward(participants)) ready->shadow_backward(participants.divisor);
}

void DdpEngine::Impl::clear_gradients() {
  for (const auto& named : trained) named.tensor.mutable_grad().reset();
}

DdpEngine::DdpEngine(const torch::nn::Module& module, Communicator comm, const Ddp& options) {
  validate(options);
  refuse_sparse_embeddings(module);
  const detail::ModuleStates states(module);
  if (comm.size() > 1 && (options.init_sync || options.broadcast_buffers)) detail::require_writable(states);
  detail::materialize_states(states);
  if (options.init_sync) {
    detail::compare_states(states, comm);
    detail::broadcast_states(states, comm);
  }
  impl_ = std::make_unique<Impl>(module, states, std::move(comm), options);
}

DdpEngine::~DdpEngine() = default;

void DdpEngine::backward(const at::Tensor& loss, const BackwardOptions& options) {
  DdpEngine* const engines[] = {this};
  backward(loss, engines, options);
}

void DdpEngine::backward(const at::Tensor& loss, std::span<DdpEngine* const> engines,
                         const BackwardOptions& options) {
  detail::require_gradient(loss, engines.empty() ? nullptr : &engines.front()->impl_->comm);
  const auto run = [&] { loss.backward(options.gradient, options.retain_graph, options.create_graph); };
  std::vector<DdpEngine*> averaged;
  for (auto* engine : engines) {
    const bool is_new = std::ranges::count(averaged, engine) == 0;
    if (is_new && engine->impl_->no_sync_depth == 0) averaged.push_back(engine);
  }
  if (averaged.empty()) return run();
  if (options.create_graph) detail::refuse_create_graph();
  for (const auto* engine : averaged) {
    engine->impl_->watch.check();
    engine->impl_->versions.note_writes(engine->impl_->replicas);
  }
  const auto forget = [&] {
    for (const auto* engine : averaged) engine->impl_->reducer.reset();
  };
  try {
    detail::AveragedBackward backward(loss);
    for (const auto* engine : averaged) {
      const auto participants = engine->impl_->announce(*engine, EngineEvent::kBackward);
      if (auto* const reducer = engine->impl_->prepare_backward(participants)) {
        backward.add(*reducer, participants.divisor);
      }
    }
    backward.follow();
    run();
  } catch (const c10::Error& error) {
    const auto& impl = *averaged.front()->impl_;
    forget();
    detail::throw_named(error, impl.trained, impl.options, impl.comm.rank());
  } catch (...) {
    forget();
    throw;
  }
}

void DdpEngine::after_step() {
  const auto participants = impl_->announce(*this, EngineEvent::kStep);
  impl_->broadcast_buffers(participants.first_rank);
  if (impl_->reducer) impl_->reducer->end_step();
  impl_->versions.settle();
  if (!impl_->observer) impl_->replicas.end_step();  // ranks that have left a Join do not take part
}

void DdpEngine::check_replicas() {
  impl_->versions.note_writes(impl_->replicas);
  impl_->replicas.compare();
}

DdpEngine::NoSync::NoSync(DdpEngine& engine) : engine_(engine) { ++engine_.impl_->no_sync_depth; }
DdpEngine::NoSync::~NoSync() { --engine_.impl_->no_sync_depth; }

void DdpEngine::register_comm_hook(CommHook hook) {
  if (!hook || impl_->has_prepared) {
    throw ConfigError("parallel", {.what = "register_comm_hook",
                                   .expected = "a hook, before the first backward",
                                   .got = hook ? "after it" : "none"});
  }
  impl_->hook = std::move(hook);
  impl_->power_sgd = nullptr;
  impl_->options.comm_hook = impl_->hook;
  impl_->options.ddp_comm_wrapper = DdpCommWrapper::kNone;
  impl_->reducer = nullptr;
}

DdpLoggingData DdpEngine::logging_data() const {
  DdpLoggingData data{.rank = impl_->comm.rank(),
                      .world_size = impl_->comm.size(),
                      .num_parameter_tensors = static_cast<std::int64_t>(impl_->trained.size()),
                      .bucket_cap_bytes = detail::bucket_bytes(impl_->options),
                      .comm_hook = detail::name_of_comm_hook(impl_->options),
                      .join_uneven_inputs = impl_->was_joined};
  for (const auto& [name, tensor] : impl_->trained) data.total_parameter_size_bytes += tensor.nbytes();
  if (impl_->reducer) impl_->reducer->fill(data);
  return data;
}

StateTree DdpEngine::state() const {
  return impl_->power_sgd ? impl_->power_sgd->state(impl_->trained) : StateTree();
}

void DdpEngine::load_state(const StateTree& state) {
  if (impl_->power_sgd) impl_->power_sgd->load_state(state, impl_->trained);
}

const Communicator& DdpEngine::communicator() const { return impl_->comm; }

void DdpEngine::broadcast_module_states(const torch::nn::Module& module, const Communicator& comm) {
  const detail::ModuleStates states(module);
  if (comm.size() > 1) detail::require_writable(states);
  detail::materialize_states(states);
  detail::compare_states(states, comm);
  detail::broadcast_states(states, comm);
}

}  // namespace lockstep
