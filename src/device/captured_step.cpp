#include <lockstep/device/captured_step.h>

#include <algorithm>
#include <optional>

#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/device/torch_device.h>

#include "device/compat.h"
#include "device/step_recording.h"

namespace lockstep {
namespace {

using Tensors = CapturedStep::Tensors;

// Recordings that were outdated before a second replay, in a row, until steps are taken to differ for good.
constexpr int kMostShortLived = 3;

// What has to be the same of inputs of the same recording.
struct Look {
  explicit Look(const at::Tensor& tensor) : is_defined(tensor.defined()) {
    if (!is_defined) return;
    sizes = tensor.sizes().vec();
    dtype = tensor.scalar_type();
    device = tensor.device();
  }
  bool operator==(const Look&) const = default;

  bool is_defined;
  std::vector<std::int64_t> sizes = {};
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
};

using Looks = std::vector<Look>;

Looks looks_of(const Tensors& tensors) { return {tensors.begin(), tensors.end()}; }

// The first line, without what LibTorch appends for its developers.
std::string first_line(std::string text) {
  text.resize(std::min(text.find('\n'), text.size()));
  return text;
}

[[noreturn]] void throw_not_captured(const std::exception& error) {
  throw Error("device", {.what = "a step cannot be captured: " + first_line(error.what()),
                         .expected = "a step of which all can be recorded, on CUDA",
                         .hint = "cuda_graphs = false runs steps as they are"});
}

// One recording of the function, and where it reads and writes.
struct Recorded {
  explicit Recorded(at::Device on)
      : device(on), recording(std::make_unique<detail::StepRecording>(on)), graph(detail::make_graph(on)) {}
  // A replay may be under way.
  ~Recorded() {
    try {
      synchronize(device);
    } catch (const std::exception& error) {
      log_warning(std::string("a captured step ends with an error of its device: ") + error.what());
    }
  }
  Recorded(const Recorded&) = delete;
  Recorded& operator=(const Recorded&) = delete;

  at::Device device;
  Looks looks = {};
  Tensors inputs = {}, outputs = {};
  std::int64_t replays = 0;
  std::unique_ptr<detail::StepRecording> recording;
  std::unique_ptr<detail::DeviceGraph> graph;  // destroyed first: what was recorded uses the rest
};

}  // namespace

struct CapturedStep::State {
  at::Device device;
  Function function;
  Around around;
  int warm_up;
  int calls_to_come = warm_up;  // before one may record
  int short_lived = 0;
  std::int64_t replays = 0;
  std::string refusal = {};
  std::optional<Looks> last = {};
  std::unique_ptr<Recorded> recorded = {};

  Tensors call(const Tensors& inputs);
  bool may_record(const Looks& looks) const { return refusal.empty() && calls_to_come <= 0 && last == looks; }
  void record(const Tensors& inputs, const Looks& looks);
  void drop_outdated();
  Tensors replay(const Tensors& inputs);
  void refuse(const std::string& why);
};

// Ranks that replay forget what they have kept from earlier steps; so do those that do not, or they would not
// all gather the same.
Tensors CapturedStep::State::call(const Tensors& inputs) {
  if (device.is_cpu()) return function(inputs);
  --calls_to_come;
  detail::RecordingListener::tell_all(/*is_given_up=*/false);
  auto outputs = function(inputs);
  detail::RecordingListener::tell_all(/*is_given_up=*/false);
  return outputs;
}

void CapturedStep::State::refuse(const std::string& why) {
  refusal = why;
  recorded.reset();
  log_warning("steps are not captured: " + why);
}

// What is kept from earlier steps is forgotten first, for the recording to compute it in each replay, and
// afterwards, as nothing of it has been computed yet.
void CapturedStep::State::record(const Tensors& inputs, const Looks& looks) {
  bool can_be_abandoned = true;
  try {
    auto made = std::make_unique<Recorded>(device);
    if (made->graph) can_be_abandoned = made->graph->can_be_abandoned();
    if (!made->graph) return refuse("LibTorch has no graphs for devices of type " + device.str());
    synchronize(device);
    detail::RecordingListener::tell_all(/*is_given_up=*/false);
    made->looks = looks;
    for (const auto& input : inputs) made->inputs.push_back(input.defined() ? input.clone() : at::Tensor());
    {
      const detail::StepRecording::Scope scope(*made->recording);
      made->graph->begin();
      try {
        made->outputs = function(made->inputs);
        made->graph->end();
      } catch (...) {
        made->graph->abandon();
        throw;
      }
    }
    detail::RecordingListener::tell_all(/*is_given_up=*/false);
    if (replays == 0) log_info("a step is captured: it is replayed from now on");
    recorded = std::move(made);
  } catch (const std::exception& error) {
    if (!can_be_abandoned) throw_not_captured(error);
    detail::RecordingListener::tell_all(/*is_given_up=*/true);
    if (around.given_up) around.given_up();
    refuse(first_line(error.what()));
  }
}

// What begins with the first step after a change, such as an optimizer's state, must not be recorded.
void CapturedStep::State::drop_outdated() {
  const auto& recording = *recorded->recording;
  if (recording.is_of_the_past()) {
    calls_to_come = warm_up;
    return recorded.reset();
  }
  if (!recording.has_other_settings()) return;
  short_lived = recorded->replays > 1 ? 0 : short_lived + 1;
  if (short_lived >= kMostShortLived)
    return refuse(
        "settings that a recording holds, such as the optimizer's betas or momentum, change from step to "
        "step");
  calls_to_come = 1;
  recorded.reset();
}

Tensors CapturedStep::State::replay(const Tensors& inputs) {
  auto& made = *recorded;
  {
    // Gates are reached in the order in which the host opens them: see staging_stream().
    detail::order_streams(detail::staging_stream(device), detail::current_stream(device));
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < made.inputs.size(); ++i)
      if (made.inputs[i].defined()) made.inputs[i].copy_(inputs[i], /*non_blocking=*/true);
    made.recording->begin_replay();
  }
  try {
    made.graph->replay();
    ++made.replays;
    ++replays;
    made.recording->end_replay();
  } catch (...) {
    detail::RecordingListener::tell_all(/*is_given_up=*/false);
    recorded.reset();
    throw;
  }
  detail::RecordingListener::tell_all(/*is_given_up=*/false);
  return made.outputs;
}

CapturedStep::CapturedStep(at::Device device, Function function, int warm_up, Around around)
    : state_(new State{.device = device,
                       .function = std::move(function),
                       .around = std::move(around),
                       .warm_up = warm_up}) {
  if (warm_up < 1)
    throw ConfigError("device", {.what = "CapturedStep: warm_up is out of range",
                                 .expected = ">= 1, since the first step makes state that is not recorded",
                                 .got = std::to_string(warm_up)});
}

CapturedStep::~CapturedStep() = default;
CapturedStep::CapturedStep(CapturedStep&&) noexcept = default;
CapturedStep& CapturedStep::operator=(CapturedStep&&) noexcept = default;

Tensors CapturedStep::operator()(const Tensors& inputs) {
  auto& state = *state_;
  if (state.around.before_step) state.around.before_step();
  if (state.device.is_cpu() || !state.refusal.empty()) return state.call(inputs);
  const auto looks = looks_of(inputs);
  if (state.recorded) state.drop_outdated();
  if (!state.recorded && state.may_record(looks)) state.record(inputs, looks);
  state.last = looks;
  return state.recorded && state.recorded->looks == looks ? state.replay(inputs) : state.call(inputs);
}

std::int64_t CapturedStep::replays() const { return state_->replays; }
const std::string& CapturedStep::refusal() const { return state_->refusal; }

}  // namespace lockstep
