// fast_dev_run: a few batches through every part of a program, to find its mistakes.
#pragma once

#include <string>
#include <string_view>

#include <lockstep/base/expected.h>
#include <lockstep/base/export.h>
#include <lockstep/base/option_type.h>

namespace lockstep {

/// How many batches of each stage are run instead of all: false for no such run, true for 1, or a number.
class LOCKSTEP_API FastDevRun {
 public:
  FastDevRun() = default;
  FastDevRun(bool one) : batches_(one ? 1 : 0) {}
  FastDevRun(int batches) : batches_(batches) {}

  /// 0: this is no such run.
  int batches() const { return batches_; }
  explicit operator bool() const { return batches_ != 0; }

  static Expected<FastDevRun> parse(std::string_view text);
  std::string print() const;

 private:
  int batches_ = 0;
};

template <>
struct OptionType<FastDevRun> {
  static Expected<FastDevRun> parse(std::string_view text) { return FastDevRun::parse(text); }
  static std::string print(const FastDevRun& run) { return run.print(); }
  static std::string accepted() { return "true, false or a number of batches >= 0"; }
  static std::string type() { return "bool or int"; }
};

}  // namespace lockstep
