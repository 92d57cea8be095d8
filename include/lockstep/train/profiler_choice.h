// The Trainer's `profiler`: a name, or a profiler of the program's own.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <lockstep/base/expected.h>
#include <lockstep/base/export.h>
#include <lockstep/base/option_type.h>

namespace lockstep {

class Profiler;

/// No profiler, the one of that name ("simple", "advanced", "trace", or "pytorch", which is PyTorchProfiler),
/// or one that the program made, which as text is `own`.
class LOCKSTEP_API ProfilerChoice {
 public:
  ProfilerChoice() = default;
  /// @throws ConfigError naming the profilers that there are
  ProfilerChoice(const char* name) : ProfilerChoice(std::string(name)) {}
  ProfilerChoice(std::string name);
  ProfilerChoice(std::shared_ptr<Profiler> profiler) : profiler_(std::move(profiler)) {}
  template <class Derived>
  ProfilerChoice(std::shared_ptr<Derived> profiler) : profiler_(std::move(profiler)) {}

  /// Whether there is one.
  explicit operator bool() const { return profiler_ || !name_.empty(); }
  /// The profiler chosen, made anew where it was named; null for none.
  /// @throws ConfigError for the word `own` in the place of the profiler that it stands for
  std::shared_ptr<Profiler> get() const;

  /// Reads a profiler's name.
  static Expected<ProfilerChoice> parse(std::string_view text);
  /// The text that parse() reads.
  std::string print() const;

 private:
  std::string name_;
  std::shared_ptr<Profiler> profiler_;
};

template <>
struct OptionType<ProfilerChoice> {
  static Expected<ProfilerChoice> parse(std::string_view text) { return ProfilerChoice::parse(text); }
  static std::string print(const ProfilerChoice& choice) { return choice.print(); }
  static std::string accepted();
  static std::string type() { return "name"; }
};

}  // namespace lockstep
