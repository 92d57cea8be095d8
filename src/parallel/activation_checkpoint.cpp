#include <lockstep/parallel/activation_checkpoint.h>

#include <optional>

#include <lockstep/base/error.h>
#include <lockstep/parallel/dispatch/saved_tensor_hooks.h>
#include <lockstep/torch.h>

#include "parallel/activations/left_out_tensors.h"
#include "parallel/activations/run_state.h"
#include "parallel/activations/written_tensors.h"

namespace lockstep::detail {
namespace {

class Segment final : public CheckpointedSegment {
 public:
  Segment(std::function<void()> run_again, const CheckpointOptions& options)
      : run_again_(std::move(run_again)),
        generator_(options.preserve_rng_state ? generator_state() : at::Tensor()),
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
  at::Tensor generator_;
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
