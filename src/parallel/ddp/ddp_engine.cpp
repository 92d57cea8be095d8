#include "parallel/ddp/ddp_engine.h"

#include <algorithm>
#include <sstream>
#include <vector>

#include <lockstep/base/error.h>
#include <lockstep/comm/packed_collectives.h>
#include <lockstep/parallel/ddp/ddp_engine.h>
#include <lockstep/torch.h>

#include "device/step_recording.h"
#include "parallel/backward_checks.h"
#include "parallel/ddp/gradient_reducer.h"

namespace lockstep::detail {
namespace {

// One backward that averages the gradients of several models.
class AveragedBackward {
 public:
  AveragedBackward() = default;
  ~AveragedBackward() {
    for (auto* reducer : reducers_) reducer->end_backward();
  }
  AveragedBackward(const AveragedBackward&) = delete;
  AveragedBackward& operator=(const AveragedBackward&) = delete;

  /// Before it: a model that takes part. Models send in the order of these calls.
  void add(GradientReducer& reducer, const at::Tensor& loss, int divisor) {
    auto* const before = reducers_.empty() ? nullptr : reducers_.back();
    reducers_.push_back(&reducer);
    reducer.prepare_backward(loss, divisor, before);
  }

  /// After it. What finishes a bucket may communicate again: that, too, in the order of the models.
  void finish() {
    for (auto* reducer : reducers_) reducer->complete_backward();
    for (auto* reducer : reducers_) reducer->finish_backward();
  }

 private:
  std::vector<GradientReducer*> reducers_;
};

std::string describe(at::IntArrayRef sizes, at::IntArrayRef strides, at::ScalarType dtype, at::Device device,
                     bool is_trained) {
  std::ostringstream text;
  text << sizes << " of strides " << strides << ' ' << dtype << " on " << device
       << (is_trained ? ", trained" : ", frozen");
  return text.str();
}

constexpr auto kHint =
    "release it (Fabric::release), or drop its DdpEngine, before it is changed, moved or frozen, and set it "
    "up "
    "again then; on all ranks";

// Who follows a parameter's gradients holds on to this; the parameter gets another one when its dtype or
// device changes.
auto accumulator_of(const at::Tensor& tensor) {
  return tensor.requires_grad() ? torch::autograd::impl::grad_accumulator(tensor) : nullptr;
}

}  // namespace

ModelWatch::ModelWatch(const torch::nn::Module& module, const ModuleStates& states, bool allows_freezing)
    : lists_(module, states, {.set_up_for = "ddp", .hint = kHint}), allows_freezing_(allows_freezing) {
  for (const auto& named : states.parameters) {
    const auto& tensor = named.tensor;
    parameters_.push_back({.named = named,
                           .sizes = tensor.sizes().vec(),
                           .strides = tensor.strides().vec(),
                           .dtype = tensor.scalar_type(),
                           .device = tensor.device(),
                           .is_trained = tensor.requires_grad(),
                           .accumulator = accumulator_of(tensor)});
  }
}

void ModelWatch::check() {
  for (const auto& known : parameters_) check(known);
  lists_.check();
}

void ModelWatch::check(const Known& known) const {
  const auto& tensor = known.named.tensor;
  const bool is_trained = tensor.requires_grad();
  const bool may_rest = allows_freezing_ && known.is_trained && !is_trained;
  const bool is_same = (is_trained == known.is_trained || may_rest) && tensor.scalar_type() == known.dtype &&
                       tensor.device() == known.device && tensor.sizes() == at::IntArrayRef(known.sizes) &&
                       tensor.strides() == at::IntArrayRef(known.strides);
  if (!is_same) {
    refuse_change(
        lists_.words(), "parameter " + known.named.name,
        describe(known.sizes, known.strides, known.dtype, known.device, known.is_trained),
        describe(tensor.sizes(), tensor.strides(), tensor.scalar_type(), tensor.device(), is_trained));
  }
  if (known.accumulator && torch::autograd::impl::try_get_grad_accumulator(tensor) != known.accumulator) {
    refuse_change(lists_.words(), "parameter " + known.named.name,
                  "of the same dtype and on the same device all the time", "converted or moved, and back");
  }
}

}  // namespace lockstep::detail

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

detail::GradientReducer* DdpEngine::Impl::make_reducer() {
  if (!reducer && !trained.empty() && comm.size() > 1) {
    reducer = std::make_unique<detail::GradientReducer>(trained, comm, options, hook);
  }
  return reducer.get();
}

detail::GradientReducer* DdpEngine::Impl::prepare_backward(const Participants& participants) {
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

// Recordings refer to it.
DdpEngine::~DdpEngine() { detail::outdate_recordings(); }

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
  for (const auto* engine : averaged) {
    const auto& ddp = engine->impl_->options;
    if (ddp.comm_hook || ddp.ddp_comm_hook == DdpCommHook::kPowerSgd)
      detail::refuse_in_recording("a communication hook that counts its calls, or is the program's own,");
  }
  if (options.create_graph) detail::refuse_create_graph();
  for (const auto* engine : averaged) {
    const auto look = [impl = engine->impl_.get()] {
      impl->watch.check();
      impl->versions.note_writes(impl->replicas);
    };
    look();
    if (auto* const recording = detail::StepRecording::current()) recording->before_replay(look);
  }
  const auto forget = [&] {
    for (const auto* engine : averaged) engine->impl_->reducer.reset();
  };
  try {
    detail::AveragedBackward backward;
    for (const auto* engine : averaged) {
      const auto participants = engine->impl_->announce(*engine, EngineEvent::kBackward);
      if (auto* const reducer = engine->impl_->prepare_backward(participants)) {
        backward.add(*reducer, loss, participants.divisor);
      }
    }
    run();
    backward.finish();
  } catch (...) {
    forget();
    throw;
  }
}

void DdpEngine::after_step() {
  const auto participants = impl_->announce(*this, EngineEvent::kStep);
  impl_->broadcast_buffers(participants.first_rank);
  if (impl_->reducer) impl_->reducer->end_step();
  detail::once_per_step([impl = impl_.get()] { impl->versions.settle(); });
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
