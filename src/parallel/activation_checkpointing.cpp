// Activation checkpointing of functions, and of the modules that a policy chooses.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <ranges>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/base/error.h>
#include <lockstep/parallel/activations.h>
#include <lockstep/parallel/dispatch/engine_hooks.h>
#include <lockstep/torch.h>

#include "parallel/activations/block_segments.h"
#include "parallel/activations/module_policies.h"
#include "parallel/activations/replay.h"
#include "parallel/dispatch/operator_dispatch.h"
#include "parallel/sharded/unit_plan.h"

namespace lockstep::detail {
namespace {

// Follows operators that write, running statistics of batch normalisation included, and keeps what the
// memory held before each of them: a second run can begin where the first one did, and leave no trace.
class WrittenTensors {
 public:
  /// During the first run. What an operator gives is no memory that was there before.
  class Watch final : public OperatorWatcher {
   public:
    explicit Watch(WrittenTensors& tensors) : tensors_(tensors) {}
    void before(OperatorCall& call) override;
    void after(OperatorCall& call) override;

   private:
    WrittenTensors& tensors_;
    std::unordered_set<const c10::StorageImpl*> outer_, made_;
  };

  /// The values of before the first run, as long as it lives; then those of now again. Autograd does not take
  /// either for a write.
  class ScopedBefore {
   public:
    explicit ScopedBefore(const WrittenTensors& tensors);
    ~ScopedBefore();
    ScopedBefore(const ScopedBefore&) = delete;
    ScopedBefore& operator=(const ScopedBefore&) = delete;

   private:
    const WrittenTensors& tensors_;
    std::vector<at::Tensor> now_;
    std::vector<std::uint32_t> versions_;
  };

  /// Whether it lies in memory that was written to.
  bool has_memory_of(const at::Tensor& tensor) const;

 private:
  struct Write {
    at::Tensor tensor, before;
    c10::VariableVersion version;
    std::size_t bytes = 0;  // of the storage, which a sharded model may have let go meanwhile
  };

  void keep_before_write(const at::Tensor& tensor);

  std::vector<Write> writes_;  // once for each place, in order
  std::unordered_map<const c10::StorageImpl*, std::vector<std::size_t>> by_storage_;
};

const c10::StorageImpl* written_storage(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

template <class Visit>
void for_each_stored(const c10::IValue& value, const Visit& visit) {
  if (value.isTensor()) {
    if (written_storage(value.toTensor())) visit(value.toTensor());
  } else if (value.isList()) {
    for (const auto& element : value.toListRef()) for_each_stored(element, visit);
  }
}

bool is_same_place(const at::Tensor& a, const at::Tensor& b) {
  return a.storage_offset() == b.storage_offset() && a.sizes() == b.sizes() && a.strides() == b.strides() &&
         a.scalar_type() == b.scalar_type();
}

// The memory of parameters of sharded models comes and goes.
bool is_kept_by_others(const at::Tensor& tensor) {
  if (!tensor.key_set().has(use_key())) return false;
  return tensor.requires_grad() || tensor.storage().nbytes() == 0;
}

void WrittenTensors::Watch::before(OperatorCall& call) {
  const auto written = operator_info(call.op()).written | replay_info(call.op()).statistics;
  const auto arguments = call.arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const bool is_written = i < 64 && (written >> i & 1) != 0;
    for_each_stored(arguments[i], [&](const at::Tensor& tensor) {
      if (made_.contains(written_storage(tensor))) return;
      outer_.insert(written_storage(tensor));
      if (is_written) tensors_.keep_before_write(tensor);
    });
  }
}

void WrittenTensors::Watch::after(OperatorCall& call) {
  for (const auto& result : call.results()) {
    for_each_stored(result, [&](const at::Tensor& tensor) {
      if (!outer_.contains(written_storage(tensor))) made_.insert(written_storage(tensor));
    });
  }
}

void WrittenTensors::keep_before_write(const at::Tensor& tensor) {
  if (is_kept_by_others(tensor)) return;
  auto& known = by_storage_[written_storage(tensor)];
  const auto is_known = [&](std::size_t i) { return is_same_place(writes_[i].tensor, tensor); };
  if (std::ranges::any_of(known, is_known)) return;
  known.push_back(writes_.size());
  writes_.push_back({.tensor = tensor.variable_data(),
                     .before = tensor.detach().clone(),
                     .version = tensor.unsafeGetTensorImpl()->version_counter(),
                     .bytes = tensor.storage().nbytes()});
}

bool WrittenTensors::has_memory_of(const at::Tensor& tensor) const {
  return written_storage(tensor) && by_storage_.contains(written_storage(tensor));
}

// Backwards: places may overlap.
WrittenTensors::ScopedBefore::ScopedBefore(const WrittenTensors& tensors) : tensors_(tensors) {
  const at::NoGradGuard no_grad;
  for (const auto& write : tensors_.writes_) {
    const bool is_there = write.tensor.storage().nbytes() == write.bytes;
    now_.push_back(is_there ? write.tensor.clone() : at::Tensor());
    versions_.push_back(write.version.enabled() ? write.version.current_version() : 0);
  }
  for (std::size_t i = now_.size(); i-- > 0;) {
    if (now_[i].defined()) tensors_.writes_[i].tensor.copy_(tensors_.writes_[i].before);
  }
}

WrittenTensors::ScopedBefore::~ScopedBefore() {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < now_.size(); ++i) {
    if (!now_[i].defined()) continue;
    auto version = tensors_.writes_[i].version;
    tensors_.writes_[i].tensor.copy_(now_[i]);
    if (version.enabled()) version.set_version(versions_[i]);
  }
}

class Segment final : public CheckpointedSegment {
 public:
  Segment(std::function<void()> run_again, const CheckpointOptions& options)
      : run_again_(std::move(run_again)),
        generator_(options.preserve_rng_state ? generator_state() : GeneratorState()),
        tensors_(/*compares_bytes=*/false) {}

  std::shared_ptr<void> first_run() override { return std::make_shared<FirstRun>(self()); }

 private:
  struct FirstRun {
    explicit FirstRun(const std::shared_ptr<Segment>& segment) : hooks(segment->hooks()) {
      if (at::GradMode::is_enabled()) watch.emplace(segment->written_);
    }
    ScopedSavedTensorHooks hooks;
    std::optional<WrittenTensors::Watch> watch;
  };

  std::shared_ptr<Segment> self() { return std::static_pointer_cast<Segment>(shared_from_this()); }

  SavedTensorHooks hooks() {
    return {.pack = [self = self()](const at::Tensor& tensor) -> std::any {
              return self->tensors_.leave_out(tensor);
            },
            .unpack = [self = self()](
                          const std::any& packed) { return self->take(std::any_cast<std::size_t>(packed)); }};
  }

  // Each tensor goes once it was needed; who needs it again runs the part again.
  at::Tensor take(std::size_t number) {
    if (auto tensor = tensors_.take(number); tensor.defined()) return tensor;
    run_again();
    return tensors_.take(number);
  }

  void run_again() {
    tensors_.forget();
    tensors_.continue_at(0);
    const ScopedRunState state;
    if (generator_.defined()) set_generator_state(generator_);
    ScopedRunState::enter(autocast_);
    const at::AutoGradMode with_gradients(true);
    const WrittenTensors::ScopedBefore before(written_);
    const ScopedSavedTensorHooks scope(
        {.pack = [this](const at::Tensor& tensor) -> std::any {
           tensors_.keep(written_.has_memory_of(tensor) ? tensor.detach().clone() : tensor);
           return {};
         },
         .unpack = [](const std::any&) -> at::Tensor { refuse_inner_backward(); }});
    run_again_();
    tensors_.expect_next(tensors_.size());
  }

  [[noreturn]] static void refuse_inner_backward() {
    throw Error("parallel", {.what = "a checkpointed part of the model ran a backward of its own",
                             .hint = "take gradients outside of ls::checkpoint()"});
  }

  std::function<void()> run_again_;
  GeneratorState generator_;
  AutocastState autocast_ = AutocastState::now();
  LeftOutTensors tensors_;
  WrittenTensors written_;
};

}  // namespace

CheckpointedSegment::~CheckpointedSegment() = default;

std::shared_ptr<CheckpointedSegment> CheckpointedSegment::begin(std::function<void()> run_again,
                                                                const CheckpointOptions& options) {
  return std::make_shared<Segment>(std::move(run_again), options);
}

}  // namespace lockstep::detail

namespace lockstep {

ActivationCheckpointing::ActivationCheckpointing(std::string_view text) {
  auto parsed = OptionType<ActivationCheckpointing>::parse(text);
  if (!parsed) {
    throw ConfigError("parallel", {.what = "a choice of modules to checkpoint",
                                   .expected = parsed.error(),
                                   .got = '"' + std::string(text) + '"'});
  }
  *this = std::move(*parsed);
}

Expected<ActivationCheckpointing> OptionType<ActivationCheckpointing>::parse(std::string_view text) {
  if (const auto is_on = OptionType<bool>::parse(text)) return ActivationCheckpointing(*is_on);
  if (detail::same_name(text, "none")) return ActivationCheckpointing();
  auto policy = OptionType<WrapPolicy>::parse(text);
  if (!policy) return Unexpected{accepted()};
  return ActivationCheckpointing(std::move(*policy));
}

std::string OptionType<ActivationCheckpointing>::print(const ActivationCheckpointing& value) {
  if (value.policy()) return value.policy()->print();
  return value.is_on() ? "true" : "false";
}

std::string OptionType<ActivationCheckpointing>::accepted() {
  return "true (every unit), false, repeated_blocks, min_num_params=N, or names of module types with commas "
         "between";
}

void apply_activation_checkpointing(const torch::nn::Module& module, const WrapPolicy& policy) {
  detail::set_policy(module, "activation checkpointing", typeid(detail::BlockSegments), [&] {
    return std::make_unique<detail::BlockSegments>(detail::plan_blocks(module, policy));
  });
}

}  // namespace lockstep
