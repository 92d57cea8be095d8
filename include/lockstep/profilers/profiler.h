// The time that actions of a run take: actions are names, scopes measure them, and profilers record them.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <lockstep/base/export.h>

namespace lockstep {

/// What kind of work an action is; time lines colour and filter by it.
enum class ActionCategory : std::uint8_t {
  kHook,        ///< a hook of a module or callback
  kCollective,  ///< a collective, or a message between ranks
  kOperator,    ///< an operator of LibTorch
  kData,        ///< waiting for a batch
  kCheckpoint   ///< saving or loading
};

/// The name of `category` in files: "hook", "collective", "operator", "data", "checkpoint".
LOCKSTEP_API std::string_view category_name(ActionCategory category);

namespace detail {

struct ActionInfo {
  std::string name;
  ActionCategory category;
  std::uint32_t index;
};

}  // namespace detail

/// A name under which time is measured. Making one takes a lock and looks the name up: keep it, as in
/// `static const Action kBackward("[Strategy]DdpStrategy.backward");`. A copy is a pointer. Names are kept
/// until the process ends: an action per batch would fill the memory.
class LOCKSTEP_API Action {
 public:
  /// The action called `name` (UTF-8). The category counts the first time that a name is given. Thread-safe.
  explicit Action(std::string_view name, ActionCategory category = ActionCategory::kHook);

  /// The name it was made with.
  const std::string& name() const { return info_->name; }
  /// What kind of action it is.
  ActionCategory category() const { return info_->category; }
  /// Its place in all().
  std::uint32_t index() const { return info_->index; }

  /// All that were made in this process, in that order. Thread-safe.
  static std::vector<Action> all();

  friend bool operator==(Action, Action) = default;

 private:
  friend class ProfileScope;
  Action() = default;
  explicit Action(const detail::ActionInfo* info) : info_(info) {}

  const detail::ActionInfo* info_ = nullptr;  // lives as long as the process
};

/// Lightning's name of a hook: `[KIND]OWNER.HOOK`, such as `[Strategy]DdpStrategy.backward`.
LOCKSTEP_API std::string hook_action_name(std::string_view kind, std::string_view owner,
                                          std::string_view hook);

class ProfileScope;

/// Where a profiler's report goes.
struct ProfilerFile {
  std::filesystem::path dirpath = {};  ///< folder, made if absent; empty: the one that setup() gives
  std::string filename = {};           ///< without extension; empty: the report is printed on rank 0
};

/// Takes the begin and end of actions and reports on them. Names and meaning are those of Lightning's
/// profilers. Every rank has its own; nothing here is Collective.
///
/// A program without a profiler has a null pointer: see ProfileScope. Derive your own by record() and
/// summary().
class LOCKSTEP_API Profiler {
 public:
  /// Monotonic, and the same for all processes of a machine.
  using Clock = std::chrono::steady_clock;

  explicit Profiler(ProfilerFile file = {});
  virtual ~Profiler();
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  /// Takes one call of `action` that this thread made. Called in every step by any thread: must neither wait
  /// nor allocate, save for what a thread needs once per action.
  virtual void record(Action action, Clock::time_point begin, Clock::time_point end) noexcept = 0;

  /// Takes the value that a counter, such as bytes in use, has from now on. Those without a time line ignore
  /// it, all ignore what is not finite. Costs as record().
  virtual void count(Action /*counter*/, double /*value*/) noexcept {}

  /// The report on all that was recorded until now. Thread-safe.
  virtual std::string summary() const = 0;

  /// A stage ("fit", "validate", "test", "predict") begins on this rank. `rank` is the rank in the job, so
  /// that ranks of several nodes can share a folder; `log_dir` is for a ProfilerFile without a folder. Not
  /// thread-safe, as describe() and teardown().
  virtual void setup(std::string stage, std::optional<int> rank = {}, std::filesystem::path log_dir = {});

  /// Writes the report to DIRPATH/STAGE-FILENAME-RANK.txt, behind what is there, or prints it on rank 0 when
  /// there is no file name or folder. A failure is a warning: the run that was measured matters more.
  void describe() noexcept;

  /// The stage is over; for profilers that hold something open.
  virtual void teardown() {}

  /// Begins to measure `action` in this thread; a scope of profile() is shorter and cannot be left open.
  /// @throws ConfigError when this thread has started it already
  void start(Action action);
  /// The same by name, which is looked up.
  void start(std::string_view name) { start(Action(name)); }

  /// Ends what this thread's start() began.
  /// @throws ConfigError when this thread did not start it
  void stop(Action action);
  /// The same by name, which is looked up.
  void stop(std::string_view name) { stop(Action(name)); }

  /// Measures `action` until the scope ends. Scopes may nest, also of one action: each call counts.
  [[nodiscard]] ProfileScope profile(Action action) noexcept;
  /// Starts an action, which the returned object stops.
  [[nodiscard]] ProfileScope profile(std::string_view name);

 protected:
  /// What describe() does.
  virtual void report();
  /// `FIT Profiler Report`
  std::string heading() const;
  /// DIRPATH/STAGE-FILENAME-RANK and `extension`, with Lightning's replacements for what paths cannot hold.
  std::filesystem::path file_path(std::string_view extension) const;
  /// 0 before setup().
  int rank() const { return rank_.value_or(0); }

 private:
  ProfilerFile file_;
  std::optional<std::string> stage_;
  std::optional<int> rank_;
  std::uint64_t id_;  // never given twice
};

/// Measures one action from its construction to its end, also when an exception ends it. Without a profiler
/// it is a test of a pointer; with one, two readings of the clock and record().
class [[nodiscard]] ProfileScope {
 public:
  /// Borrows `profiler`, which may be null.
  ProfileScope(Profiler* profiler, Action action) noexcept : profiler_(profiler), action_(action) {
    if (profiler_) begin_ = Profiler::Clock::now();
  }
  /// The name is looked up, when there is a profiler: not for what happens in every step.
  ProfileScope(Profiler* profiler, std::string_view name)
      : ProfileScope(profiler, profiler ? Action(name) : Action()) {}
  ~ProfileScope() {
    if (profiler_) profiler_->record(action_, begin_, Profiler::Clock::now());
  }
  ProfileScope(const ProfileScope&) = delete;
  ProfileScope& operator=(const ProfileScope&) = delete;

 private:
  Profiler* profiler_;
  Action action_;
  Profiler::Clock::time_point begin_;
};

inline ProfileScope Profiler::profile(Action action) noexcept { return {this, action}; }
inline ProfileScope Profiler::profile(std::string_view name) { return {this, name}; }

}  // namespace lockstep
