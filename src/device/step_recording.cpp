#include "device/step_recording.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <mutex>

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <lockstep/base/error.h>

namespace lockstep::detail {
namespace {

constexpr std::int64_t kMostNumbers = 1024;

std::atomic<StepRecording*> under_way = nullptr;
std::atomic<std::int64_t> generation = 0;

struct Listeners {
  std::mutex mutex = {};
  std::vector<RecordingListener*> all = {};
};

// Never destroyed: optimizers and models may be static.
Listeners& listeners() {
  static auto* const known = new Listeners;
  return *known;
}

[[noreturn]] void refuse(std::string_view what) {
  throw Error("device", {.what = std::string(what) + " cannot be part of a captured step"});
}

}  // namespace

StepRecording* StepRecording::current() { return under_way; }

StepRecording::StepRecording(at::Device device)
    : generation_(generation),
      numbers_(at::full({kMostNumbers}, std::numeric_limits<double>::quiet_NaN(),
                        at::TensorOptions(device).dtype(at::kDouble))) {}

StepRecording::~StepRecording() = default;

StepRecording::Scope::Scope(StepRecording& recording) { under_way = &recording; }
StepRecording::Scope::~Scope() { under_way = nullptr; }

void StepRecording::before_replay(std::function<void()> check) { checks_.push_back(std::move(check)); }

void StepRecording::post(std::function<void()> body, std::function<void()> give_up) {
  posts_.push_back({.body = std::move(body), .give_up = std::move(give_up)});
}

void StepRecording::after_replay(std::function<void()> body) { ends_.push_back(std::move(body)); }

void StepRecording::meet_after_replay(std::function<void()> body) {
  has_meetings_ = true;
  after_replay(std::move(body));
}

at::Tensor StepRecording::number(std::function<double()> value) {
  const auto place = static_cast<std::int64_t>(values_.size());
  if (place == kMostNumbers) refuse("more than 1,024 numbers that the host computes");
  values_.push_back(std::move(value));
  return numbers_.select(0, place);
}

void StepRecording::depend_on(std::function<double()> value) {
  const double now = value();
  settings_.push_back({.value = std::move(value), .recorded = now});
}

bool StepRecording::is_of_the_past() const { return generation_ != generation; }

bool StepRecording::has_other_settings() const {
  return std::ranges::any_of(settings_,
                             [](const auto& setting) { return setting.value() != setting.recorded; });
}

// A copy that was issued before may still read its page-locked memory: each has its own.
void StepRecording::begin_replay() {
  for (const auto& check : checks_) check();
  if (values_.empty()) return;
  std::vector<double> now;
  for (const auto& value : values_) now.push_back(value());
  if (now == known_) return;
  const auto size = static_cast<std::int64_t>(now.size());
  const bool can_be_pinned =
      numbers_.device().type() != at::kXLA;  // whose copies have read it when they return
  const auto host = at::empty({size}, at::TensorOptions(at::kDouble).pinned_memory(can_be_pinned));
  std::ranges::copy(now, host.mutable_data_ptr<double>());
  numbers_.narrow(0, 0, size).copy_(host, /*non_blocking=*/true);
  known_ = std::move(now);
}

// The device waits for all that is to be posted.
void StepRecording::end_replay() {
  for (auto post = posts_.begin(); post != posts_.end(); ++post) {
    try {
      post->body();
    } catch (...) {
      for (; post != posts_.end(); ++post) post->give_up();
      throw;
    }
  }
  for (const auto& body : ends_) body();
}

void outdate_recordings() { ++generation; }

void refuse_in_recording(std::string_view what) {
  if (StepRecording::current() != nullptr) refuse(what);
}

void refuse_in_recording_thread(std::string_view what) {
  const auto* const recording = StepRecording::current();
  if (recording != nullptr && recording->is_of_this_thread()) refuse(what);
}

RecordingListener::RecordingListener(std::function<void(bool)> forget) : forget_(std::move(forget)) {
  const std::lock_guard lock(listeners().mutex);
  listeners().all.push_back(this);
}

RecordingListener::~RecordingListener() {
  const std::lock_guard lock(listeners().mutex);
  std::erase(listeners().all, this);
}

void RecordingListener::tell_all(bool is_given_up) {
  const std::lock_guard lock(listeners().mutex);
  for (const auto* listener : listeners().all) listener->forget_(is_given_up);
}

}  // namespace lockstep::detail
