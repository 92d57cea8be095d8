// What a step of training asks for while it is recorded (lockstep/device/captured_step.h): the host's part of
// each replay, numbers that the host computes anew, and that the recording be given up.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <ATen/core/Tensor.h>

#include <lockstep/base/export.h>

namespace lockstep::detail {

/// One recording. Called by the thread that records and, for it, by those of a backward pass.
class LOCKSTEP_API StepRecording {
 public:
  /// The one under way in this process; null while there is none. Thread-safe.
  static StepRecording* current();

  explicit StepRecording(at::Device device);
  ~StepRecording();
  StepRecording(const StepRecording&) = delete;
  StepRecording& operator=(const StepRecording&) = delete;

  /// Runs `check` before anything of a replay is issued. What it throws ends the step.
  void before_replay(std::function<void()> check);

  /// Runs `body` as soon as the device's part of a replay was issued, which may wait for it; the device must
  /// not be waited for. `give_up` runs in its place where an earlier one has thrown.
  void post(std::function<void()> body, std::function<void()> give_up);

  /// Runs `body` at the end of each replay, when all is posted: it may wait for the device.
  void after_replay(std::function<void()> body);

  /// The same, where the ranks meet in `body`: no collective may be recorded behind it.
  void meet_after_replay(std::function<void()> body);
  bool has_meetings() const { return has_meetings_; }

  /// A number on the device, float64 without dimensions, that is `value()` in each replay.
  at::Tensor number(std::function<double()> value);

  /// The recording holds what `value()` gives now: once it gives something else, the step is recorded anew.
  void depend_on(std::function<double()> value);

  // For CapturedStep.

  /// While it lives, `recording` is current().
  class Scope {
   public:
    explicit Scope(StepRecording& recording);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
  };

  /// Whether what it refers to may be gone, or has begun to be something else.
  bool is_of_the_past() const;
  /// Whether a setting that it holds has changed. Not to be asked where it is of the past.
  bool has_other_settings() const;
  /// Before the device's part of a replay is issued, and after. What the first throws has changed nothing.
  void begin_replay();
  void end_replay();
  /// Whether the calling thread records, not one of its backward pass.
  bool is_of_this_thread() const { return thread_ == std::this_thread::get_id(); }

 private:
  struct Setting {
    std::function<double()> value;
    double recorded;
  };
  struct Post {
    std::function<void()> body, give_up;
  };

  const std::thread::id thread_ = std::this_thread::get_id();
  const std::int64_t generation_;
  at::Tensor numbers_;         // on the device
  std::vector<double> known_;  // what numbers_ holds
  std::vector<std::function<double()>> values_;
  std::vector<Setting> settings_;
  std::vector<std::function<void()>> checks_, ends_;
  std::vector<Post> posts_;
  bool has_meetings_ = false;
};

/// All recordings refer to what is no more, such as an engine that was released: none is replayed again.
LOCKSTEP_API void outdate_recordings();

/// Runs `body`, the host's part of a step, or leaves it to the end of each replay while the step is recorded.
template <class Body>
void once_per_step(Body&& body) {
  auto* const recording = StepRecording::current();
  if (recording == nullptr) return body();
  recording->after_replay(std::forward<Body>(body));
}

/// The same, where the ranks meet in `body`.
template <class Body>
void meet_once_per_step(Body&& body) {
  auto* const recording = StepRecording::current();
  if (recording == nullptr) return body();
  recording->meet_after_replay(std::forward<Body>(body));
}

/// Gives up the recording that is under way, if there is one, because of `what`, which the host must do in
/// each step. @throws Error then
LOCKSTEP_API void refuse_in_recording(std::string_view what);

/// The same for the thread that records alone: others, such as that of a background save, go on.
LOCKSTEP_API void refuse_in_recording_thread(std::string_view what);

/// Who keeps between steps what they have computed on a device, such as gathered parameters. While it lives,
/// `forget` is called where that no longer holds: before and after a recording, when its work was not done,
/// and after each replay, of which nothing is known on the host. It may not throw.
class LOCKSTEP_API RecordingListener {
 public:
  /// `forget` is told whether work that was recorded will never be done.
  explicit RecordingListener(std::function<void(bool is_given_up)> forget);
  ~RecordingListener();
  RecordingListener(const RecordingListener&) = delete;
  RecordingListener& operator=(const RecordingListener&) = delete;

  static void tell_all(bool is_given_up);

 private:
  std::function<void(bool)> forget_;
};

}  // namespace lockstep::detail
