// How the ranks of a strategy come to be and talk: options that all strategies of several ranks have.
#pragma once

#include <span>
#include <string>

#include <lockstep/base/export.h>
#include <lockstep/base/option_type.h>
#include <lockstep/base/options.h>
#include <lockstep/comm/reduce_op.h>

namespace lockstep {

/// How the ranks of one node come to be.
enum class StartMethod {
  kAuto,  ///< fork where that is still possible, else spawn ("popen")
  kFork,  ///< fork, or an error
  kSpawn  ///< re-execute the program
};

LOCKSTEP_API std::span<const OptionName<StartMethod>> option_names(StartMethod);
LOCKSTEP_API std::span<const OptionName<Reduction>> option_names(Reduction);

namespace detail {

/// What the option `process_group_backend` says of itself: it names the transports of this build.
const std::string& backend_description();

/// Describes the members of that name, which all strategies of several ranks have.
template <class Options>
void describe_joining(OptionVisitor& v, Options& o) {
  v.field("timeout", o.timeout, "Longest wait for other ranks, when joining and in each collective",
          more_than(0));
  v.field("process_group_backend", o.process_group_backend, backend_description());
  v.field("reduction", o.reduction,
          "ordered: the same bits for every algorithm; fast: the backend's own sums");
  v.field("check_collectives", o.check_collectives, "Ranks compare what they call before each collective");
  v.field("start_method", o.start_method, "How ranks are started: popen (fork if possible), fork or spawn");
  v.field("cluster_environment", o.cluster_environment,
          "Cluster environment that tells each rank its place; detected by default");
}

}  // namespace detail

}  // namespace lockstep
