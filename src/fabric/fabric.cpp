#include <lockstep/fabric/fabric.h>

#include <cstdio>
#include <exception>
#include <sstream>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/device/torch_device.h>
#include <lockstep/fabric/fabric_loader.h>
#include <lockstep/fabric/fabric_options.h>
#include <lockstep/fabric/fabric_steps.h>
#include <lockstep/torch.h>

#include "device/batch_transfer.h"
#include "device/step_recording.h"
#include "fabric/fabric_state.h"
#include "state/module_tensors.h"
#include "strategy/scaled_step.h"
#include "strategy/trained_modules.h"

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
  state.share_run_directory();
  if (is_global_zero()) state.run_directory_lock = launch::hold_run_directory(run_dir);
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
  Example moved{detail::part_to_device(batch.data, device()), detail::part_to_device(batch.target, device())};
  detail::finish_batch(device());
  return moved;
}

void detail::refuse_batch_without_tensors() {
  throw ConfigError("fabric",
                    {.what = "capture() found no tensors in a batch",
                     .expected = "a function with_tensors(batch, change) beside the type of the batch",
                     .got = "a type of batch whose tensors lockstep does not know",
                     .hint = "replays would train on the recorded batch again and again"});
}

at::Device Fabric::captured_device() const {
  state_->require_launched("capture()");
  return state_->options.cuda_graphs ? device() : at::Device(at::kCPU);
}

CapturedStep::Around Fabric::around_step() const { return detail::around_scaled_step(state_->precision); }

at::Tensor Fabric::to_device(const at::Tensor& tensor) const { return lockstep::to_device(tensor, device()); }

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

TensorChange Fabric::input_conversion(const SetupLoaderOptions& options) const {
  const auto precision = state_->precision;
  const auto to = device();
  if (options.move_to_device && !to.is_cpu()) {
    return [precision, to](const at::Tensor& input) {
      return precision->convert_input(detail::batch_to_device(input, to));
    };
  }
  if (!precision->converts_inputs()) return {};
  return [precision](const at::Tensor& input) { return precision->convert_input(input); };
}

std::shared_ptr<AnyLoader> Fabric::ending_together(std::shared_ptr<AnyLoader> loader,
                                                   const SetupLoaderOptions& options) const {
  return agree_on_batches(std::move(loader), state_->strategy->communicator(), options.uneven_streams);
}

std::uint64_t Fabric::seed_everything(std::uint64_t seed) {
  torch::manual_seed(seed);
  if (state_->strategy && !device().is_cpu()) detail::seed_generator(generator_of(device()), seed);
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
  if (!value.defined() || value.numel() != 1)
    throw ConfigError(
        "fabric",
        {.what = "log(): the value of \"" + std::string(name) + "\" is not a single number",
         .expected = "a tensor of one element",
         .got = value.defined() ? std::to_string(value.numel()) + " elements" : "an undefined tensor",
         .hint = "log its mean(), or its parts under names of their own"});
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
at::Device Fabric::device() const {
  return state_->strategy ? state_->strategy->root_device() : state_->connector.device();
}
int Fabric::local_rank() const { return state_->connector.environment()->local_rank(); }
int Fabric::node_rank() const { return state_->connector.environment()->node_rank(); }
int Fabric::global_rank() const { return state_->connector.environment()->global_rank(); }
int Fabric::world_size() const { return state_->connector.world_size(); }
const std::vector<std::shared_ptr<Logger>>& Fabric::loggers() const { return state_->options.loggers; }
const std::vector<std::shared_ptr<FabricCallback>>& Fabric::callbacks() const {
  return state_->options.callbacks;
}

void Fabric::run_backward(const at::Tensor& loss, const BackwardOptions& options,
                          std::initializer_list<const torch::nn::Module*> models) {
  auto& state = *state_;
  state.require_launched("backward()");
  state.modules.remove_expired();
  detail::check_loss(loss, options);
  state.modules.backward(*state.strategy, detail::scaled_loss(*state.precision, loss), options,
                         {models.begin(), models.size()});
}

std::shared_ptr<detail::TrainedModule> Fabric::known_module(const torch::nn::Module& module) const {
  auto known = state_->modules.find(module);
  if (known) return known;
  throw ConfigError("fabric", {.what = "a model that this Fabric has not set up",
                               .expected = "one that setup() was given",
                               .got = module.name()});
}

std::optional<Scalar> Fabric::clip_gradients_of(FabricOptimizer& optimizer, const ClipGradients& clip) {
  if (clip.clip_val.has_value() == clip.max_norm.has_value()) {
    throw ConfigError("fabric", {.what = "clip_gradients() takes clip_val or max_norm",
                                 .expected = "exactly one of them",
                                 .got = clip.clip_val ? "both" : "neither"});
  }
  const auto norm =
      detail::clip_gradients(strategy(), precision(), optimizer,
                             {.value = clip.clip_val ? *clip.clip_val : *clip.max_norm,
                              .algorithm = clip.clip_val ? ClipAlgorithm::kValue : ClipAlgorithm::kNorm,
                              .norm_type = clip.norm_type,
                              .error_if_nonfinite = clip.error_if_nonfinite});
  return clip.max_norm ? std::optional(norm) : std::nullopt;
}

namespace {

// Element type and shape, as text.
std::string described(const at::Tensor& tensor) {
  std::ostringstream text;
  text << static_cast<int>(tensor.scalar_type());
  for (const auto extent : tensor.sizes()) text << ' ' << extent;
  return text.str();
}

at::Tensor empty_like(const std::string& description, at::Device device) {
  std::istringstream text(description);
  int type = 0;
  text >> type;
  std::vector<std::int64_t> shape;
  for (std::int64_t extent = 0; text >> extent;) shape.push_back(extent);
  return at::empty(shape, at::TensorOptions(device).dtype(static_cast<at::ScalarType>(type)));
}

void require_defined(const Fabric& fabric, const at::Tensor& tensor, const char* call) {
  if (tensor.defined()) return;
  throw ConfigError("fabric", {.what = std::string(call) + " on rank " + std::to_string(fabric.global_rank()),
                               .expected = "a tensor",
                               .got = "an undefined one"});
}

}  // namespace

const Communicator& Fabric::communicator() const { return strategy().communicator(); }

at::Tensor Fabric::all_gather(const at::Tensor& tensor) const {
  require_defined(*this, tensor, "all_gather()");
  std::vector<std::int64_t> shape{world_size()};
  shape.insert(shape.end(), tensor.sizes().begin(), tensor.sizes().end());
  const auto gathered = at::empty(shape, tensor.detach().options());
  communicator().all_gather(gathered, tensor.detach());
  return gathered;
}

at::Tensor Fabric::all_reduce(const at::Tensor& tensor, EnumOption<ReduceOp> op) const {
  require_defined(*this, tensor, "all_reduce()");
  auto reduced = tensor.detach().clone();
  communicator().all_reduce(reduced, op);
  return reduced;
}

double Fabric::all_reduce(double value, EnumOption<ReduceOp> op) const {
  return all_reduce(at::scalar_tensor(value, at::kDouble), op).item<double>();
}

at::Tensor Fabric::broadcast(const at::Tensor& tensor, int source) const {
  const bool is_source = global_rank() == source;
  if (is_source) require_defined(*this, tensor, "broadcast()");
  const auto description = communicator().broadcast_bytes(is_source ? described(tensor) : "", source);
  auto received = is_source ? tensor.detach().contiguous() : empty_like(description, device());
  communicator().broadcast(received, source);
  return received;
}

std::string Fabric::broadcast(const std::string& text, int source) const {
  return communicator().broadcast_bytes(text, source);
}

void Fabric::barrier() const { communicator().barrier(); }

void Fabric::rank_zero_first(const std::function<void()>& function, bool local) const {
  const bool is_first = (local ? local_rank() : global_rank()) == 0;
  if (!is_first) barrier();
  std::exception_ptr failure;
  try {
    function();
  } catch (...) {
    failure = std::current_exception();
  }
  try {
    if (is_first) barrier();
  } catch (const std::exception& error) {
    if (!failure) throw;
    log_warning(std::string("after a failure, letting the other ranks begin failed too: ") + error.what());
  }
  if (failure) std::rethrow_exception(failure);
}

FabricCallback::~FabricCallback() = default;

void describe(OptionVisitor& v, FabricOptions& o) {
  v.field("accelerator", o.accelerator, "Kind of device: auto, cpu, or gpu");
  v.choice("strategy", o.strategy, strategy_choices(), "How models are spread over ranks");
  v.choice("precision", o.precision, precision_choices(),
           "Element types of the forward pass and of what is kept");
  v.field("devices", o.devices, "Ranks on this node: auto, a number, or a list of devices");
  v.field("num_nodes", o.num_nodes, "Number of nodes", at_least(1));
  v.field("cuda_graphs", o.cuda_graphs, "Record steps that are given to capture() once, and replay them");
  v.field("expandable_segments", o.expandable_segments,
          "Let CUDA's allocator grow its segments, which wastes less memory");
}

void describe(OptionVisitor& v, FabricRunOptions& o) {
  v.field("run_dir", o.run_dir, "The exact folder of this run; empty: runs/NAME/version_N");
  v.field("seed_everything", o.seed_everything, "Seed of all random generators and samplers");
}

FabricOptimizer::FabricOptimizer(std::shared_ptr<Strategy> strategy, std::shared_ptr<Precision> precision,
                                 std::unique_ptr<Optimizer> optimizer,
                                 std::vector<std::shared_ptr<FabricCallback>> callbacks,
                                 const GradientClip& clip)
    : strategy_(std::move(strategy)),
      precision_(std::move(precision)),
      optimizer_(std::move(optimizer)),
      callbacks_(std::move(callbacks)),
      clip_(clip) {}

Scalar FabricOptimizer::step() {
  if (clip_.value > 0) detail::clip_gradients(*strategy_, *precision_, *optimizer_, clip_);
  const auto taken = detail::step_optimizer(*strategy_, *precision_, *optimizer_);
  detail::once_per_step([this] {
    for (const auto& callback : callbacks_) callback->on_after_optimizer_step(*this);
  });
  return taken;
}

void FabricOptimizer::zero_grad(bool set_to_none) {
  detail::zero_grad(*precision_, *optimizer_, set_to_none);
}

NoBackwardSync::NoBackwardSync(std::shared_ptr<detail::TrainedModule> module) : module_(std::move(module)) {
  if (module_) ++module_->local_scopes;
}

NoBackwardSync::~NoBackwardSync() {
  if (module_) --module_->local_scopes;
}

}  // namespace lockstep
