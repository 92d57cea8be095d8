#include "rdzv_flags.h"

#include <utility>

#include <lockstep/base/log.h>
#include <lockstep/base/option_type.h>

#include "either_name.h"
#include "number_checks.h"
#include "rdzv_conf.h"
#include "refusal.h"

namespace {

using lockstep::RendezvousOptions;

constexpr int kStaticPort = 29'500;  // torchrun's, as all defaults here
constexpr int kElasticPort = 29'400;
constexpr int kLastPort = 65'535;

struct NodeRange {
  int min = 1;
  int max = 1;
  bool is_range = false;  ///< given as MIN:MAX
};

NodeRange nodes_of(const std::string& text) {
  const auto colon = text.find(':');
  const auto min = lockstep::OptionType<int>::parse(text.substr(0, colon));
  const auto max =
      colon == std::string::npos ? min : lockstep::OptionType<int>::parse(text.substr(colon + 1));
  if (!min || !max || *min < 1 || *max < *min) refuse_value("--nnodes", "a number >= 1, or MIN:MAX", text);
  return {*min, *max, colon != std::string::npos};
}

bool is_static(const RdzvFlags& flags, const NodeRange& nodes) {
  if (flags.backend.empty()) return !nodes.is_range;
  if (flags.backend != "c10d" && flags.backend != "static")
    refuse_value("--rdzv-backend", "c10d or static", flags.backend);
  if (flags.backend == "static" && nodes.min != nodes.max)
    refuse_value("--nnodes", "a number >= 1 with --rdzv-backend static", flags.nnodes);
  return flags.backend == "static";
}

std::pair<std::string, int> endpoint_of(const RdzvFlags& flags, bool is_static) {
  if (flags.endpoint.empty()) return {flags.master_addr, flags.master_port.value_or(kStaticPort)};
  const auto endpoint =
      lockstep::parse_rendezvous_endpoint(flags.endpoint, is_static ? kStaticPort : kElasticPort);
  if (!endpoint) refuse_value("--rdzv-endpoint", endpoint.error(), flags.endpoint);
  return *endpoint;
}

// Nobody else can know a port that the system chooses.
void require_meeting_place(const RdzvFlags& flags, const RendezvousOptions& meeting) {
  const bool is_port = meeting.port >= 1 && meeting.port <= kLastPort;
  if (!is_port)
    refuse_value(flags.endpoint.empty() ? "--master-port" : "--rdzv-endpoint", "a port of 1 to 65535",
                 std::to_string(meeting.port), "all nodes have to know it");
  if (!meeting.is_static && flags.endpoint.empty())
    refuse_value("--rdzv-endpoint", "HOST[:PORT], where the nodes meet", "",
                 "it is the same for all of them");
}

}  // namespace

void add_rdzv_flags(CLI::App& verb, RdzvFlags& flags) {
  verb.add_option("--nnodes", flags.nnodes, "Nodes of the job: a number, or MIN:MAX")->capture_default_str();
  verb.add_option(either("--node-rank"), flags.node_rank,
                  "This node's number, from 0 (default: 0); not with c10d")
      ->check(whole_number(0));
  verb.add_option(either("--master-addr"), flags.master_addr, "Address of node 0; not with c10d")
      ->capture_default_str();
  verb.add_option(either("--master-port"), flags.master_port,
                  "Port of rank 0; 0: a free one. With several nodes: where the launchers meet (29500)")
      ->check(whole_number(0, kLastPort));
  verb.add_flag("--standalone", flags.standalone, "One node, and a free port");
  verb.add_option(either("--rdzv-backend"), flags.backend,
                  "static: nodes have numbers; c10d: they come and go (default with MIN:MAX)");
  verb.add_option(either("--rdzv-endpoint"), flags.endpoint,
                  "HOST[:PORT] of the node where they meet (port 29400)");
  verb.add_option(either("--rdzv-conf"), flags.conf, "KEY=VALUE,...: join_timeout, last_call_timeout, ...");
  verb.add_option(either("--local-addr"), flags.local_addr,
                  "Where other nodes reach this one (default: where it calls the endpoint from)");
  verb.add_option(either("--monitor-interval"), flags.monitor_interval_s,
                  "Accepted for torchrun's sake: ranks are watched all the time")
      ->check(number_of_seconds(0.001));
}

void apply(const RdzvFlags& flags, lockstep::ProgramOptions& options) {
  const auto nodes = nodes_of(flags.nnodes);
  if (nodes.max > 1 && flags.standalone) refuse_value("--standalone", "--nnodes 1", flags.nnodes);
  RendezvousOptions meeting{
      .min_nodes = nodes.min, .max_nodes = nodes.max, .is_static = is_static(flags, nodes)};
  std::tie(meeting.host, meeting.port) = endpoint_of(flags, meeting.is_static);
  meeting.local_address = flags.local_addr;
  apply_rdzv_conf(flags.conf, meeting);
  auto& launch = options.launch;
  launch.num_nodes = meeting.is_static ? nodes.max : 1;
  launch.node_rank = meeting.is_static ? flags.node_rank.value_or(0) : 0;
  launch.main_address = flags.master_addr;
  launch.main_port = nodes.max > 1 ? meeting.port : flags.master_port.value_or(0);
  const bool is_placed = options.first_rank >= 0;  // somebody else knows where all nodes are
  // Port 0 is how torchrun's pages start several jobs of one node beside each other.
  const bool has_no_place = flags.endpoint.empty() || flags.standalone || meeting.port == 0;
  if (is_placed || (nodes.max == 1 && has_no_place)) return;
  require_meeting_place(flags, meeting);
  if (!meeting.is_static && flags.node_rank)
    lockstep::log_warning("--node-rank " + std::to_string(*flags.node_rank) +
                          " is not used with --rdzv-backend c10d: nodes get their numbers when they meet");
  options.rendezvous = meeting;
}
