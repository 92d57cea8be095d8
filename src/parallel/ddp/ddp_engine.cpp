#include <lockstep/parallel/ddp/ddp_engine.h>

#include <cmath>
#include <sstream>

#include <lockstep/base/error.h>
#include <lockstep/comm/coalesced.h>

#include "parallel/ddp/average_hook.h"
#include "parallel/ddp/module_states.h"

namespace lockstep {
namespace {

using detail::NamedTensor;

std::int64_t bytes_of(const Ddp& options) {
  if (!(options.bucket_cap_mb > 0)) {
    throw ConfigError("parallel", {.what = "bucket_cap_mb is out of range",
                                   .expected = "more than 0",
                                   .got = std::to_string(options.bucket_cap_mb),
                                   .where = "",
                                   .hint = ""});
  }
  return std::max<std::int64_t>(1, std::llround(options.bucket_cap_mb * 1024 * 1024));
}

// The last layers' gradients come first, so buckets run from the last parameter to the first. Until the
// true order is known one bucket does, unless buckets will never be rebuilt.
std::vector<std::vector<std::size_t>> plan_buckets(const detail::ReducerArgs& args, bool are_final) {
  const auto everything = static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max());
  std::vector<std::size_t> caps{everything};
  if (are_final) {
    caps = {static_cast<std::size_t>(args.first_bucket_bytes_cap),
            static_cast<std::size_t>(args.bucket_bytes_cap)};
  }
  auto buckets = std::get<0>(c10d::compute_bucket_assignment_by_size(args.parameters, caps));
  std::reverse(buckets.begin(), buckets.end());
  return buckets;
}

std::unique_ptr<c10d::Reducer> plan_reducer(const std::vector<NamedTensor>& trained,
                                            const c10::intrusive_ptr<c10d::ProcessGroup>& group,
                                            const Ddp& options) {
  detail::ReducerArgs args;
  for (const auto& named : trained) {
    args.names[args.parameters.size()] = named.name;
    args.parameters.push_back(named.tensor);
  }
  args.process_group = group;
  args.bucket_bytes_cap = bytes_of(options);
  // As PyTorch: a cap of one's own means it for the first bucket, too.
  if (options.bucket_cap_mb != Ddp{}.bucket_cap_mb) args.first_bucket_bytes_cap = args.bucket_bytes_cap;
  args.find_unused_parameters = options.find_unused_parameters;
  args.gradient_as_bucket_view = options.gradient_as_bucket_view;
  args.buckets = plan_buckets(args, options.find_unused_parameters && !options.static_graph);
  auto reducer = detail::make_reducer(std::move(args));
  reducer->register_comm_hook(std::make_unique<detail::AverageHook>(group));
  if (options.static_graph) reducer->set_static_graph();
  return reducer;
}

// c10d lists the indices of such parameters at the end of its text, after "for rank R: ".
std::string missing_parameters(const std::string& text, const std::vector<NamedTensor>& trained) {
  static const std::string kMarker = "did not receive grad for rank ";
  const auto marker = text.find(kMarker);
  const auto colon = marker == std::string::npos ? marker : text.find(':', marker);
  if (colon == std::string::npos) return "";
  std::istringstream indices(text.substr(colon + 1));
  std::string names;
  for (std::size_t index = 0; indices >> index && index < trained.size();) {
    names += (names.empty() ? "" : ", ") + trained[index].name;
  }
  return names;
}

}  // namespace

struct DdpEngine::Impl {
  Communicator comm;
  Ddp options;
  std::vector<NamedTensor> trained = {};
  std::vector<at::Tensor> buffers = {};
  std::unique_ptr<c10d::Reducer> reducer = {};  // none in a world of one, or with nothing to train
  bool is_first_backward = true;

  void make_reducer();
  template <class Call>
  void call_reducer(Call call);
  void delay_first_reduction(const at::Tensor& loss);
};

void DdpEngine::Impl::make_reducer() {
  reducer.reset();  // its hooks must be gone before another one's come
  is_first_backward = true;
  const auto group = detail::process_group(comm);
  if (group && !trained.empty()) reducer = plan_reducer(trained, group, options);
}

// Gradients missing in one backward show when the Reducer is asked about it, or prepared for the next one.
template <class Call>
void DdpEngine::Impl::call_reducer(Call call) {
  try {
    call();
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    if (text.find("Expected to have finished reduction") == std::string::npos) throw;
    throw CommError("parallel",
                    {.what = "backward gave no gradient to some parameters, so that averaging them "
                             "over ranks never ended",
                     .expected = "a gradient for every trained parameter",
                     .got = "none for " + missing_parameters(text, trained),
                     .where = "rank " + std::to_string(comm.rank()),
                     .hint = "set find_unused_parameters = true, or freeze what the loss does not use"});
  }
}

// The first step of a static graph only counts gradients; they are reduced when backward is over.
void DdpEngine::Impl::delay_first_reduction(const at::Tensor& loss) {
  loss.register_hook([this](const at::Tensor& gradient) {
    torch::autograd::Engine::get_default_engine().queue_callback([this] { reducer->delay_all_reduce(); });
    return gradient;
  });
}

DdpEngine::DdpEngine(const torch::nn::Module& module, Communicator comm, const Ddp& options)
    : impl_(std::make_unique<Impl>(Impl{.comm = std::move(comm), .options = options})) {
  const detail::ModuleStates states(module);
  detail::compare_states(states, impl_->comm);
  detail::broadcast_states(states, impl_->comm);
  for (const auto& named : states.parameters) {
    if (named.tensor.requires_grad()) impl_->trained.push_back(named);
  }
  for (const auto& named : states.buffers) impl_->buffers.push_back(named.tensor);
  impl_->make_reducer();
}

DdpEngine::~DdpEngine() = default;

void DdpEngine::prepare_backward(const at::Tensor& loss) {
  if (!impl_->reducer) return;
  auto& reducer = *impl_->reducer;
  const auto& options = impl_->options;
  impl_->call_reducer([&] {
    reducer.prepare_for_forward();
    reducer.rebuild_buckets();
    const bool walks_graph = options.find_unused_parameters && !options.static_graph;
    reducer.prepare_for_backward(walks_graph ? std::vector<at::Tensor>{loss} : std::vector<at::Tensor>{});
  });
  if (std::exchange(impl_->is_first_backward, false) && options.static_graph)
    impl_->delay_first_reduction(loss);
}

void DdpEngine::check_backward_finished() {
  if (!impl_->reducer) return;
  impl_->call_reducer([&] { impl_->reducer->check_finalized(); });
}

void DdpEngine::reset() { impl_->make_reducer(); }

void DdpEngine::after_step() {
  if (impl_->options.broadcast_buffers) broadcast_coalesced(impl_->comm, impl_->buffers);
}

void DdpEngine::broadcast_module_states(const torch::nn::Module& module, const Communicator& comm) {
  const detail::ModuleStates states(module);
  detail::compare_states(states, comm);
  detail::broadcast_states(states, comm);
}

}  // namespace lockstep
