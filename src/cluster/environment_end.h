// The end of the cluster environments by which this process was a rank: each is torn down once.
#pragma once

#include <memory>

#include <lockstep/base/export.h>
#include <lockstep/cluster/environment.h>

namespace lockstep::cluster {

/// Promises `environment` its teardown(): at end_environments() or, where nobody calls that, when this
/// process ends by exit(), as a forked rank, or by an exception that nobody catches. One that is promised it
/// already gets it once. Children of a fork do not take the promise over. Thread-safe.
LOCKSTEP_API void tear_down_at_end(std::shared_ptr<ClusterEnvironment> environment);

/// Calls the teardown() of the environments that were promised it, the last one first. What one of them
/// throws is a warning. Thread-safe.
LOCKSTEP_API void end_environments() noexcept;

}  // namespace lockstep::cluster
