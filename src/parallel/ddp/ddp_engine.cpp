#include <lockstep/parallel/ddp/ddp_engine.h>

#include <sstream>

#include <lockstep/base/error.h>
#include <lockstep/comm/coalesced.h>
#include <lockstep/torch.h>

#include "parallel/ddp/engine_impl.h"

namespace lockstep {
namespace {

using detail::EngineEvent;
using detail::NamedTensor;
using detail::Participants;

void validate(const Ddp& options) {
  detail::bucket_bytes(options);
  if (!options.skip_all_reduce_unused_params || (options.find_unused_parameters && !options.static_graph))
    return;
  throw ConfigError("parallel", {.what = "skip_all_reduce_unused_params has nothing to go by",
                                 .expected = "find_unused_parameters true and static_graph false",
                                 .got = "otherwise"});
}

// c10d lists the indices of such parameters at the end of its text, after "for rank R: ".
std::string missing_parameters(const std::string& text, const std::vector<NamedTensor>& trained) {
  static const std::string kMarker = "did not receive grad for rank ";
  const auto marker = text.rfind(kMarker);
  const auto colon = marker == std::string::npos ? marker : text.find(':', marker);
  if (colon == std::string::npos) return "";
  std::istringstream indices(text.substr(colon + 1));
  std::string names;
  for (std::size_t index = 0; indices >> index && index < trained.size();) {
    names += (names.empty() ? "" : ", ") + trained[index].name;
  }
  return names;
}

[[noreturn]] void refuse_missing(const std::string& names, const Ddp& options, int rank) {
  const bool is_static = options.static_graph;
  throw CommError(
      "parallel",
      {.what = "backward gave no gradient to some parameters, so that averaging them over ranks "
               "never ended",
       .expected = is_static ? "the parameters of the first averaged backward, as static_graph promises"
                             : "a gradient for every trained parameter",
       .got = "none for " + names,
       .where = "rank " + std::to_string(rank),
       .hint = is_static ? "set static_graph = false"
                         : "set find_unused_parameters = true, or freeze what the loss does not use"});
}

}  // namespace

DdpEngine::Impl::Impl(const torch::nn::Module& module, const detail::ModuleStates& states, Communicator group,
                      const Ddp& ddp_options)
    : comm(std::move(group)),
      options(ddp_options),
      watch(module, states, options.find_unused_parameters && !options.static_graph),
      hook(detail::make_comm_hook(options)) {
  for (const auto& named : states.parameters) {
    parameters.push_back(named.tensor);
    if (named.tensor.requires_grad()) trained.push_back(named);
  }
  for (const auto& named : states.buffers) buffers.push_back(named.tensor);
  // It would count the local passes of the first window, too, when it learns a static graph.
  if (!options.static_graph) make_reducer();
}

void DdpEngine::Impl::make_reducer() {
  if (reducer || trained.empty() || comm.size() == 1) return;
  reducer = std::make_unique<detail::BucketReducer>(trained, comm, options, hook);
}

void DdpEngine::Impl::restart() {
  is_backward_pending = false;
  if (!std::exchange(reducer, nullptr)) return;
  if (!options.static_graph) make_reducer();
}

// Gradients missing in one backward show when the Reducer is asked about it, or prepared for the next one.
template <class Call>
void DdpEngine::Impl::call_reducer(Call call) {
  try {
    call();
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    restart();
    if (text.find("Expected to have finished reduction") == std::string::npos) throw;
    refuse_missing(missing_parameters(text, trained), options, comm.rank());
  }
}

Participants DdpEngine::Impl::announce(const DdpEngine& engine, EngineEvent event) {
  if (!observer) return {.divisor = comm.size()};
  return observer->before(engine, event);
}

void DdpEngine::Impl::broadcast_buffers(int root) {
  if (options.broadcast_buffers) broadcast_coalesced(comm, buffers, root);
}

void DdpEngine::Impl::shadow_backward(const Participants& participants, bool keeps_gradients) {
  has_prepared = true;
  make_reducer();
  if (reducer) reducer->shadow_backward(participants.divisor, keeps_gradients);
}

DdpEngine::DdpEngine(const torch::nn::Module& module, Communicator comm, const Ddp& options) {
  validate(options);
  const detail::ModuleStates states(module);
  if (options.init_sync) {
    detail::compare_states(states, comm);
    detail::broadcast_states(states, comm);
  }
  impl_ = std::make_unique<Impl>(module, states, std::move(comm), options);
}

DdpEngine::~DdpEngine() = default;

void DdpEngine::backward(const at::Tensor& loss, const BackwardOptions& options) {
  const auto run = [&] { loss.backward(options.gradient, options.retain_graph, options.create_graph); };
  if (impl_->no_sync_depth > 0) return run();
  prepare_backward(loss);
  try {
    run();
    check_backward_finished();
  } catch (...) {
    reset();
    throw;
  }
}

void DdpEngine::prepare_backward(const at::Tensor& loss) {
  if (impl_->no_sync_depth > 0) return;
  check_backward_finished();
  impl_->watch.check();
  const auto participants = impl_->announce(*this, EngineEvent::kBackward);
  impl_->has_prepared = true;
  impl_->make_reducer();
  if (!impl_->reducer) return;
  impl_->call_reducer([&] { impl_->reducer->prepare_backward(loss, participants.divisor); });
  impl_->is_backward_pending = true;
}

void DdpEngine::check_backward_finished() {
  if (impl_->no_sync_depth > 0 || !impl_->is_backward_pending) return;
  impl_->call_reducer([&] { impl_->reducer->check_finished(); });
  impl_->is_backward_pending = false;
}

void DdpEngine::reset() { impl_->restart(); }

void DdpEngine::after_step() {
  const auto participants = impl_->announce(*this, EngineEvent::kStep);
  impl_->broadcast_buffers(participants.first_rank);
  if (impl_->reducer) impl_->reducer->end_step();
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
  impl_->options.comm_hook = impl_->hook;
  impl_->options.ddp_comm_wrapper = DdpCommWrapper::kNone;
  impl_->restart();
}

DdpLoggingData DdpEngine::logging_data() const {
  DdpLoggingData data{.rank = impl_->comm.rank(),
                      .world_size = impl_->comm.size(),
                      .comm_hook = detail::name_of_comm_hook(impl_->options),
                      .join_uneven_inputs = impl_->was_joined};
  if (impl_->reducer) impl_->reducer->fill(data);
  return data;
}

const Communicator& DdpEngine::communicator() const { return impl_->comm; }

void DdpEngine::broadcast_module_states(const torch::nn::Module& module, const Communicator& comm) {
  const detail::ModuleStates states(module);
  detail::compare_states(states, comm);
  detail::broadcast_states(states, comm);
}

}  // namespace lockstep
