#include <lockstep/parallel/activation_checkpoint.h>

#include <optional>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/autocast_mode.h>

#include <lockstep/base/error.h>
#include <lockstep/torch.h>

namespace lockstep::detail {
namespace {

namespace autocast = at::autocast;

at::Tensor generator_state() {
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

void set_generator_state(const at::Tensor& state) {
  auto generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  generator.set_state(state);
}

struct AutocastState {
  bool is_enabled = autocast::is_autocast_enabled(at::kCPU);
  bool is_cache_enabled = autocast::is_autocast_cache_enabled();
  at::ScalarType dtype = autocast::get_autocast_dtype(at::kCPU);

  void set() const {
    autocast::set_autocast_enabled(at::kCPU, is_enabled);
    autocast::set_autocast_cache_enabled(is_cache_enabled);
    autocast::set_autocast_dtype(at::kCPU, dtype);
  }
};

// The state that the first run began with, for as long as the second one takes.
class StateOfThen {
 public:
  StateOfThen(const at::Tensor& generator, const AutocastState& then) {
    if (generator.defined()) {
      generator_now_ = generator_state();
      set_generator_state(generator);
    }
    then.set();
  }
  ~StateOfThen() {
    if (generator_now_.defined()) set_generator_state(generator_now_);
    autocast_now_.set();
  }
  StateOfThen(const StateOfThen&) = delete;
  StateOfThen& operator=(const StateOfThen&) = delete;

 private:
  at::Tensor generator_now_;
  AutocastState autocast_now_;
};

// What can be known of a tensor that was not kept.
struct Absent {
  std::vector<std::int64_t> sizes;
  at::ScalarType dtype;

  explicit Absent(const at::Tensor& tensor) : sizes(tensor.sizes().vec()), dtype(tensor.scalar_type()) {}
  bool operator==(const Absent&) const = default;
  std::string text() const { return c10::str(dtype, ' ', at::IntArrayRef(sizes)); }
};

[[noreturn]] void refuse_other(const std::string& expected, const std::string& got) {
  throw Error("parallel",
              {.what = "a checkpointed part of the model computed something else in its second run",
               .expected = expected,
               .got = got,
               .hint = "it must depend on nothing but its arguments, and draw its random numbers "
                       "from LibTorch's generator"});
}

class Segment final : public CheckpointedSegment {
 public:
  Segment(std::function<void()> run_again, const CheckpointOptions& options)
      : run_again_(std::move(run_again)),
        generator_(options.preserve_rng_state ? generator_state() : at::Tensor()) {}

  SavedTensorHooks hooks() override {
    const auto self = std::static_pointer_cast<Segment>(shared_from_this());
    return {
        .pack = [self](const at::Tensor& tensor) -> std::any { return self->leave_out(tensor); },
        .unpack = [self](const std::any& packed) { return self->take(std::any_cast<std::size_t>(packed)); }};
  }

 private:
  std::size_t leave_out(const at::Tensor& tensor) {
    absent_.emplace_back(tensor);
    return absent_.size() - 1;
  }

  // Each tensor goes once it was needed; who needs it again runs the part again.
  at::Tensor take(std::size_t number) {
    if (number >= again_.size() || !again_[number].defined()) run_again();
    return std::exchange(again_[number], at::Tensor());
  }

  void run_again() {
    again_.clear();
    const StateOfThen state(generator_, autocast_);
    const at::AutoGradMode with_gradients(true);
    const ScopedSavedTensorHooks scope(
        {.pack = [this](const at::Tensor& tensor) -> std::any {
           keep(tensor);
           return {};
         },
         .unpack = [](const std::any&) -> at::Tensor { refuse_inner_backward(); }});
    run_again_();
    if (again_.size() != absent_.size())
      refuse_other(c10::str(absent_.size(), " tensors for backward"), c10::str(again_.size()));
  }

  void keep(const at::Tensor& tensor) {
    const auto number = again_.size();
    if (number < absent_.size() && Absent(tensor) != absent_[number])
      refuse_other(absent_[number].text(), Absent(tensor).text());
    again_.push_back(tensor);
  }

  [[noreturn]] static void refuse_inner_backward() {
    throw Error("parallel", {.what = "a checkpointed part of the model ran a backward of its own",
                             .hint = "take gradients outside of ls::checkpoint()"});
  }

  std::function<void()> run_again_;
  at::Tensor generator_;
  AutocastState autocast_;
  std::vector<Absent> absent_;     // in the order of the first run
  std::vector<at::Tensor> again_;  // those of the second run
};

}  // namespace

CheckpointedSegment::~CheckpointedSegment() = default;

std::shared_ptr<CheckpointedSegment> CheckpointedSegment::begin(std::function<void()> run_again,
                                                                const CheckpointOptions& options) {
  return std::make_shared<Segment>(std::move(run_again), options);
}

}  // namespace lockstep::detail
