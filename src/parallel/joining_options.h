// The options of strategies that say how ranks find each other and talk.
#pragma once

#include <string>

#include <lockstep/base/options.h>
#include <lockstep/parallel/joining_options.h>

#include "comm/transport/transport.h"

namespace lockstep::detail {

/// Describes the members of that name, which all strategies of several ranks have.
template <class Options>
void describe_joining(OptionVisitor& v, Options& o) {
  v.field("timeout", o.timeout, "Longest wait for other ranks, when joining and in each collective",
          more_than(0));
  static const auto backends = "Communication backend: " + transport_names();
  v.field("process_group_backend", o.process_group_backend, backends);
  v.field("reduction", o.reduction,
          "ordered: the same bits for every algorithm; fast: the backend's own sums");
  v.field("check_collectives", o.check_collectives, "Ranks compare what they call before each collective");
  v.field("start_method", o.start_method, "How ranks are started: popen (fork if possible), fork or spawn");
  v.field("cluster_environment", o.cluster_environment, "Cluster environment that tells each rank its place; detected by default");
}

}  // namespace lockstep::detail
