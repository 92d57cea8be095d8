// Opens a log for the hooks that run inside a scope, and closes it again.
#pragma once

#include "train/run_state.h"

namespace lockstep::detail {

class LogScopeGuard {
 public:
  LogScopeGuard(RunState& state, MetricLog& log, const LogScope& scope)
      : state_(state), log_(log), outer_log_(state.active_log), outer_scope_(log.scope()) {
    state_.active_log = &log;
    log_.set_scope(scope);
  }
  ~LogScopeGuard() {
    log_.set_scope(outer_scope_);
    state_.active_log = outer_log_;
  }
  LogScopeGuard(const LogScopeGuard&) = delete;
  LogScopeGuard& operator=(const LogScopeGuard&) = delete;

 private:
  RunState& state_;
  MetricLog& log_;
  MetricLog* outer_log_;
  LogScope outer_scope_;
};

}  // namespace lockstep::detail
