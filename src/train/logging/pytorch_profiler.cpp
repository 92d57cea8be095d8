// PyTorchProfiler: starts and stops LibTorch's Kineto, and turns its events into those of a time line.
#include <lockstep/train/pytorch_profiler.h>

#include <chrono>
#include <exception>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <kineto/ActivityType.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <lockstep/base/env.h>
#include <lockstep/base/error.h>
#include <lockstep/base/log.h>
#include <lockstep/device/torch_device.h>

namespace lockstep {
namespace {

namespace kineto = torch::autograd::profiler;
using libkineto::ActivityType;
using torch::profiler::impl::ProfilerConfig;
using torch::profiler::impl::ProfilerState;
using Activities = std::set<torch::profiler::impl::ActivityType>;

Activities activities_of(at::Device device) {
  using Kind = torch::profiler::impl::ActivityType;
  if (device.is_cuda()) return {Kind::CPU, Kind::CUDA};
  return {Kind::CPU};
}

// LibTorch's events have the time since 1970, ours that of the monotonic clock.
std::int64_t monotonic_minus_unix_ns() {
  const auto monotonic = Profiler::Clock::now().time_since_epoch();
  const auto unix_time = std::chrono::system_clock::now().time_since_epoch();
  return (std::chrono::nanoseconds(monotonic) - std::chrono::nanoseconds(unix_time)).count();
}

bool is_on_device(const kineto::KinetoEvent& event) { return event.deviceType() != c10::DeviceType::CPU; }

std::string category_of(const kineto::KinetoEvent& event) {
  switch (static_cast<ActivityType>(event.activityType())) {
    case ActivityType::GPU_MEMCPY:
    case ActivityType::GPU_MEMSET:
      return "copy";
    case ActivityType::CUDA_RUNTIME:
    case ActivityType::CUDA_DRIVER:
      return "runtime";
    case ActivityType::CONCURRENT_KERNEL:
      return event.name().starts_with("nccl") ? "device collective" : "kernel";
    default:
      return is_on_device(event) ? "device" : "libtorch";
  }
}

std::string track_of(const kineto::KinetoEvent& event, const std::string& category) {
  if (is_on_device(event))
    return c10::DeviceTypeName(event.deviceType(), /*lower_case=*/true) + ":" +
           std::to_string(event.deviceIndex()) + ", stream " + std::to_string(event.deviceResourceId());
  if (category == "runtime") return "CUDA's runtime, thread " + std::to_string(event.deviceResourceId());
  return "LibTorch, thread " + std::to_string(event.startThreadId());
}

// What the loops call a step of a stage: Lightning's profiler takes these actions for steps, too. The sanity
// check of a fit does not count.
std::string_view step_of(std::string_view stage) {
  if (stage == "fit") return ".training_step";
  if (stage == "validate") return ".validation_step";
  return stage == "test" ? ".test_step" : ".predict_step";
}

bool is_step(Action action, std::string_view step) {
  return action.category() == ActionCategory::kOperator && action.name().ends_with(step) &&
         action.name().starts_with("[Strategy]");
}

}  // namespace

struct PyTorchProfiler::Window {
  int wait = 0, active = 0;
  int steps = 0;
  std::string_view step_name = step_of("fit");
  bool is_open = false;
  std::int64_t clock_offset_ns = 0;
  std::vector<OtherEvent> events = {};

  void open() {
    // Else it tells of its start and stop on stderr, by way of a logger that nothing else can quieten.
    if (!env::get("KINETO_LOG_LEVEL")) env::set("KINETO_LOG_LEVEL", "99");
    const ProfilerConfig config(ProfilerState::KINETO);
    const auto activities = activities_of(device_in_use());
    clock_offset_ns = monotonic_minus_unix_ns();
    kineto::prepareProfiler(config, activities);
    kineto::enableProfiler(
        config, activities,
        {at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION, at::RecordScope::USER_SCOPE});
    is_open = true;
  }

  void close() {
    if (!is_open) return;
    is_open = false;
    synchronize(device_in_use());  // what was issued in these steps belongs to them
    const auto result = kineto::disableProfiler();
    for (const auto& event : result->events()) {
      const auto category = category_of(event);
      events.push_back({.name = event.name(),
                        .category = category,
                        .track = track_of(event, category),
                        .begin_ns = static_cast<std::int64_t>(event.startNs()) + clock_offset_ns,
                        .duration_ns = static_cast<std::int64_t>(event.durationNs())});
    }
  }

  template <class Body>
  void attempt(const Body& body) noexcept {
    try {
      body();
    } catch (const std::exception& error) {
      log_warning(std::string("LibTorch's profiler does not measure these steps: ") + error.what());
    }
  }
};

PyTorchProfiler::PyTorchProfiler(PyTorchProfilerOptions options)
    : TraceProfiler({.dirpath = std::move(options.dirpath),
                     .filename = std::move(options.filename),
                     .events_per_thread = options.events_per_thread}),
      window_(std::make_unique<Window>()) {
  if (options.wait < 0 || options.active < 1)
    throw ConfigError("train", {.what = "PyTorchProfilerOptions",
                                .expected = "wait >= 0 and active >= 1",
                                .got = "wait " + std::to_string(options.wait) + ", active " +
                                       std::to_string(options.active)});
  window_->wait = options.wait;
  window_->active = options.active;
}

PyTorchProfiler::~PyTorchProfiler() {
  window_->attempt([&] { window_->close(); });
}

void PyTorchProfiler::setup(std::string stage, std::optional<int> rank, std::filesystem::path log_dir) {
  window_->attempt([&] { window_->close(); });
  window_->step_name = step_of(stage);
  TraceProfiler::setup(std::move(stage), rank, std::move(log_dir));
  window_->steps = 0;
  if (window_->wait == 0) window_->attempt([&] { window_->open(); });
}

void PyTorchProfiler::teardown() {
  window_->attempt([&] { window_->close(); });
  TraceProfiler::teardown();
}

void PyTorchProfiler::record(Action action, Clock::time_point begin, Clock::time_point end) noexcept {
  TraceProfiler::record(action, begin, end);
  if (is_step(action, window_->step_name)) step();
}

void PyTorchProfiler::step() noexcept {
  const int steps = ++window_->steps;
  if (steps == window_->wait) window_->attempt([&] { window_->open(); });
  if (steps == window_->wait + window_->active) window_->attempt([&] { window_->close(); });
}

bool PyTorchProfiler::is_active() const { return window_->is_open; }

std::vector<PyTorchProfiler::OtherEvent> PyTorchProfiler::take_other_events() {
  window_->attempt([&] { window_->close(); });
  return std::exchange(window_->events, {});
}

}  // namespace lockstep
